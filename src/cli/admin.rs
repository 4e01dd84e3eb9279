//! What a running router says on its admin listener, for the commands that show it.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

use super::exit::Exit;

/// Longest time for one question, and the largest answer, bytes: ten thousand endpoints take 2 MB.
const LIMIT: Duration = Duration::from_secs(5);
const MOST: usize = 64 << 20;

/// Which router.
#[derive(Debug, Args)]
pub(super) struct Admin {
    /// Admin listener of the router
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:9090",
        env = "TANDEM_ADMIN",
        hide_env_values = true
    )]
    admin: String,
}

/// Form of a result on standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For people
    Table,
    /// One JSON document
    Json,
}

/// Why there is no answer; decides the exit code.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The URL cannot be one.
    Usage(anyhow::Error),
    Unreachable(anyhow::Error),
    /// Something answered, but not as this version's router does.
    Strange(anyhow::Error),
}

impl NoAnswer {
    /// On standard error, with what to do about it.
    pub(super) fn report(&self, admin: &Admin) -> Exit {
        let (exit, error, hint) = match self {
            Self::Usage(error) => (Exit::Usage, error, "write it as http://HOST:PORT"),
            Self::Unreachable(error) => (
                Exit::Unreachable,
                error,
                "is the router running, and is this its `admin.listen`? Name another with --admin URL",
            ),
            Self::Strange(error) => {
                (Exit::Failure, error, "is this the admin listener of a router of this version?")
            }
        };
        super::exit::say(&format!("{}: {error:#}; {hint}", admin.admin));
        exit
    }
}

impl Admin {
    /// The JSON document at `path`.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, NoAnswer> {
        let at = self.authority().map_err(NoAnswer::Usage)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| NoAnswer::Strange(e.into()))?;
        let answer = runtime.block_on(async { tokio::time::timeout(LIMIT, ask(&at, path)).await });
        runtime.shutdown_background();
        let answer = answer.unwrap_or_else(|_| {
            Err(NoAnswer::Unreachable(anyhow!("no answer within {} s", LIMIT.as_secs())))
        })?;
        serde_json::from_slice(&answer).context("the answer is not as expected").map_err(NoAnswer::Strange)
    }

    /// `HOST:PORT` of the URL; the scheme may be left out.
    fn authority(&self) -> anyhow::Result<String> {
        let bare = self.admin.strip_prefix("http://").unwrap_or(&self.admin).trim_end_matches('/');
        let uri: Uri = format!("http://{bare}/").parse().context("not a URL")?;
        match uri.authority() {
            Some(at) if at.port_u16().is_some() && uri.path() == "/" => Ok(at.to_string()),
            Some(_) if uri.path() != "/" => bail!("a path has no meaning here"),
            _ => bail!("the port is missing"),
        }
    }
}

async fn ask(at: &str, path: &str) -> Result<Vec<u8>, NoAnswer> {
    let io = TcpStream::connect(at).await.map_err(|e| NoAnswer::Unreachable(e.into()))?;
    exchange(io, at, path).await.map_err(NoAnswer::Strange)
}

async fn exchange(io: TcpStream, at: &str, path: &str) -> anyhow::Result<Vec<u8>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await?;
    let request = Request::get(path).header("host", at).body(Empty::<Bytes>::new())?;
    // The sender goes with the first part, and with it the connection.
    let answered = async move {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        if status != StatusCode::OK {
            bail!("{path} was answered with {status}");
        }
        let body =
            Limited::new(answer.into_body(), MOST).collect().await.map_err(anyhow::Error::from_boxed)?;
        Ok(body.to_bytes().to_vec())
    };
    let (answer, _) = tokio::join!(answered, connection);
    answer
}

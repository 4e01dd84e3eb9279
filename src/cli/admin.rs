//! What a running router says on its admin listener, for the commands that show it.

use std::fmt::Write as _;
use std::future::Future;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::TcpStream;

use super::exit::Exit;
use crate::admin::Fleet;

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
    /// 401 or 403, which asking again does not change.
    Denied(anyhow::Error),
    /// Something answered, but not as this version's router does.
    Strange(anyhow::Error),
}

impl NoAnswer {
    pub(super) fn error(&self) -> &anyhow::Error {
        match self {
            Self::Usage(error) | Self::Unreachable(error) | Self::Denied(error) | Self::Strange(error) => {
                error
            }
        }
    }

    /// On standard error, with what to do about it.
    pub(super) fn report(&self, admin: &Admin) -> Exit {
        let error = self.error();
        let (exit, hint) = match self {
            Self::Usage(_) => (Exit::Usage, "write it as http://HOST:PORT"),
            Self::Unreachable(_) => (
                Exit::Unreachable,
                "is the router running, and is this its `admin.listen`? Name another with --admin URL",
            ),
            Self::Denied(_) | Self::Strange(_) => {
                (Exit::Failure, "is this the admin listener of a router of this version?")
            }
        };
        super::exit::say(&format!("{}: {error:#}; {hint}", admin.admin));
        exit
    }
}

impl Admin {
    /// As it was given.
    pub(super) fn url(&self) -> &str {
        &self.admin
    }

    /// One request, with a JSON body where there is one, and what it is answered with.
    pub(super) fn send(
        &self,
        method: &Method,
        path: &str,
        token: Option<&str>,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Bytes), NoAnswer> {
        let at = authority(&self.admin).map_err(NoAnswer::Usage)?;
        block_on(send(&at, method, path, token, body))?
    }

    /// The JSON document at `path`.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, NoAnswer> {
        let at = authority(&self.admin).map_err(NoAnswer::Usage)?;
        block_on(call(&at, &Method::GET, path, None))?
    }
}

/// What a `/endpoints` document says.
pub(super) fn fleet(document: &Value) -> Result<Fleet, NoAnswer> {
    Fleet::deserialize(document).context("the answer is not as expected").map_err(NoAnswer::Strange)
}

/// Runs a command's conversation to its end.
pub(super) fn block_on<T>(work: impl Future<Output = T>) -> Result<T, NoAnswer> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| NoAnswer::Strange(e.into()))?;
    let done = runtime.block_on(work);
    // Not waiting for a name that is not resolved.
    runtime.shutdown_background();
    Ok(done)
}

/// `HOST:PORT` of a URL; the scheme may be left out.
pub(super) fn authority(url: &str) -> anyhow::Result<String> {
    let bare = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
    let uri: Uri = format!("http://{bare}/").parse().context("not a URL")?;
    match uri.authority() {
        Some(at) if at.port_u16().is_some() && uri.path() == "/" => Ok(at.to_string()),
        Some(_) if uri.path() != "/" => bail!("a path has no meaning here"),
        _ => bail!("the port is missing"),
    }
}

/// `HOST:PORT` and path of a URL that may have one.
pub(super) fn target(url: &str) -> anyhow::Result<(String, String)> {
    let uri: Uri = url.parse().context("not a URL")?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http"), Some(host)) => {
            let path = uri.path_and_query().map_or("/", |path| path.as_str());
            Ok((format!("{host}:{}", uri.port_u16().unwrap_or(80)), path.to_owned()))
        }
        _ => bail!("not http://HOST:PORT/PATH"),
    }
}

/// A value of a query.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}"); // a String takes everything
        }
    }
    out
}

/// One call of an admin route, answered by a JSON document. `token`: for routes that change something.
pub(super) async fn call<T: DeserializeOwned>(
    at: &str,
    method: &Method,
    path: &str,
    token: Option<&str>,
) -> Result<T, NoAnswer> {
    let (status, body) = ask(at, method, path, token).await?;
    let said = || anyhow!("{method} {path} was answered with {status}{}", said(&body));
    match status {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(NoAnswer::Denied(said())),
        _ => return Err(NoAnswer::Strange(said())),
    }
    serde_json::from_slice(&body).context("the answer is not as expected").map_err(NoAnswer::Strange)
}

/// One request without a body, and what it is answered with.
pub(super) async fn ask(
    at: &str,
    method: &Method,
    path: &str,
    token: Option<&str>,
) -> Result<(StatusCode, Bytes), NoAnswer> {
    send(at, method, path, token, None).await
}

async fn send(
    at: &str,
    method: &Method,
    path: &str,
    token: Option<&str>,
    body: Option<&Value>,
) -> Result<(StatusCode, Bytes), NoAnswer> {
    let asked = async {
        let io = TcpStream::connect(at).await.map_err(|e| NoAnswer::Unreachable(e.into()))?;
        exchange(io, at, method, path, token, body).await.map_err(NoAnswer::Strange)
    };
    let late = || NoAnswer::Unreachable(anyhow!("no answer within {} s", LIMIT.as_secs()));
    tokio::time::timeout(LIMIT, asked).await.unwrap_or_else(|_| Err(late()))
}

async fn exchange(
    io: TcpStream,
    at: &str,
    method: &Method,
    path: &str,
    token: Option<&str>,
    body: Option<&Value>,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await?;
    let mut request = Request::builder().method(method).uri(path).header("host", at);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    if body.is_some() {
        request = request.header("content-type", "application/json");
    }
    let request = request.body(Full::new(Bytes::from(body.map(Value::to_string).unwrap_or_default())))?;
    // The sender goes with the first part, and with it the connection.
    let answered = async move {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body =
            Limited::new(answer.into_body(), MOST).collect().await.map_err(anyhow::Error::from_boxed)?;
        Ok((status, body.to_bytes()))
    };
    let (answer, _) = tokio::join!(answered, connection);
    answer
}

/// `: ` and the message of an error body, if it is one of ours.
pub(super) fn said(body: &[u8]) -> String {
    let document: Value = serde_json::from_slice(body).unwrap_or_default();
    document["error"]["message"].as_str().map(|message| format!(": {message}")).unwrap_or_default()
}

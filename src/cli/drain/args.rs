//! The command line of `tandem drain`, and what it means as a whole.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::{Args, ValueEnum};

use super::super::admin::{authority, target as place};
use super::super::help;
use super::target::Named;
use crate::config::Kubernetes;
use crate::types::clock;
use crate::types::drain_order::{DrainOrder, instant};

/// Withdraw an engine from every router, wait for zero
#[derive(Debug, Args)]
#[command(after_help = help::DRAIN, after_long_help = help::DRAIN)]
pub(in crate::cli) struct Drain {
    /// Engine: a Pod, as NAME, pod/NAME or NAMESPACE/NAME; or http://HOST:PORT as the routers' configuration lists it
    #[arg(value_name = "TARGET", env = "TANDEM_ENGINE", hide_env_values = true, value_parser = Named::parse)]
    pub(super) target: Named,
    /// Namespace of the Pod; else POD_NAMESPACE, else the kubeconfig's or the service account's, else `default`
    #[arg(long, value_name = "NAME", env = "POD_NAMESPACE", hide_env = true)]
    namespace: Option<String>,
    /// Exactly this Pod, whatever follows under its name; else POD_UID, else the one that the API server has
    #[arg(long, value_name = "UID", env = "POD_UID", hide_env = true)]
    uid: Option<String>,
    /// Admin listener; a name with several addresses, as of a headless Service, means every one. May be repeated, or
    /// several with commas
    #[arg(
        long,
        value_name = "URL",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:9090",
        env = "TANDEM_ADMIN",
        hide_env_values = true
    )]
    admin: Vec<String>,
    /// File with the routers' admin token; for listed engines
    #[arg(long, value_name = "FILE", env = "TANDEM_TOKEN_FILE", hide_env_values = true)]
    token_file: Option<PathBuf>,
    /// How long to wait for the end, such as 10m [default: 240s; with --abort 30s]
    #[arg(long, value_name = "TIME", value_parser = super::super::time)]
    wait: Option<Duration>,
    /// For so long the routers have to stay the same ones before one that restarted, came or went is believed: what an
    /// earlier process handed over may still be pulled until the KV lease ends
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = super::super::time)]
    pub(super) settle: Duration,
    /// What is open then is cut: a time from now, such as 200s, or one as 2026-12-01T10:30:00Z
    #[arg(long, value_name = "TIME", conflicts_with = "abort", value_parser = When::parse)]
    pub(super) force_at: Option<When>,
    /// Why, for whoever looks at the engine meanwhile
    #[arg(long, value_name = "TEXT", conflicts_with = "abort", value_parser = reason)]
    pub(super) reason: Option<String>,
    /// Annotation that says it at the Pod, as the routers have it in `keys.drain`
    #[arg(long, value_name = "KEY", default_value = "tandem.dev/drain")]
    pub(super) annotation: String,
    /// Do not annotate the Pod: something else withdraws it
    #[arg(long, conflicts_with = "abort")]
    pub(super) no_annotate: bool,
    /// How the API server is reached; else KUBECONFIG, ~/.kube/config or the service account of this Pod
    #[arg(long, value_name = "FILE", env = "TANDEM_KUBERNETES_KUBECONFIG", hide_env = true)]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME", env = "TANDEM_KUBERNETES_CONTEXT", hide_env = true)]
    context: Option<String>,
    /// Take the drain back: new requests again
    #[arg(long, alias = "undo")]
    pub(super) abort: bool,
    /// Only once this answers with 2xx, else exit code 3; for the startup probe of a listed engine that comes back
    #[arg(long, value_name = "URL", requires = "abort")]
    health: Option<String>,
    /// Form of the result on standard output; with json the progress goes to standard error
    #[arg(long, value_enum, default_value_t = Form::Text, value_name = "FORM")]
    pub(super) output: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// For people
    Text,
    /// One JSON document at the end
    Json,
}

/// A moment, as it is named on a command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    In(Duration),
    /// Wall clock, milliseconds.
    At(u64),
}

impl When {
    fn parse(text: &str) -> Result<Self, String> {
        let at = || instant(text).map(Self::At);
        let found = super::super::time(text).ok().map(Self::In).or_else(at);
        found.ok_or_else(|| "no time such as 200s or 2026-12-01T10:30:00Z".to_owned())
    }

    pub(super) fn ms(self) -> u64 {
        match self {
            Self::In(time) => in_ms(time),
            Self::At(ms) => ms,
        }
    }
}

/// The wall clock after so long.
pub(super) fn in_ms(time: Duration) -> u64 {
    clock::wall_ms().saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// A reason has to be read back as one: a `; force` in it would be an order.
fn reason(text: &str) -> Result<String, String> {
    let reads = DrainOrder { reason: text.to_owned(), ..DrainOrder::default() };
    let good = DrainOrder::parse(text) == reads && !text.contains(char::is_control);
    good.then(|| text.to_owned()).ok_or_else(|| "one line of at most 200 characters, no `;`".to_owned())
}

/// The values that need more than a look at themselves.
#[derive(Debug)]
pub(super) struct Settings {
    /// `HOST:PORT` of each `--admin`.
    pub(super) admins: Vec<String>,
    pub(super) token: Option<String>,
    /// `HOST:PORT` and path.
    pub(super) health: Option<(String, String)>,
    pub(super) kubernetes: Kubernetes,
}

impl Drain {
    /// # Errors
    /// The flag that is wrong, and why.
    pub(super) fn settings(&self) -> Result<Settings, (&'static str, anyhow::Error)> {
        let at =
            |url: &String| authority(url).with_context(|| format!("{url}; write it as http://HOST:PORT"));
        let admins: anyhow::Result<Vec<String>> = self.admin.iter().map(at).collect();
        let read = |path: &PathBuf| std::fs::read_to_string(path).with_context(|| path.display().to_string());
        let token =
            self.token_file.as_ref().map(read).transpose().map_err(|error| ("--token-file", error))?;
        let health = self.health.as_deref().map(place).transpose().map_err(|error| ("--health", error))?;
        let kubeconfig = self.kubeconfig.clone().filter(|path| !path.as_os_str().is_empty());
        if let Some(path) = &kubeconfig {
            read(path).map_err(|error| ("--kubeconfig", error))?;
        }
        if health.is_some() && matches!(self.target, Named::Pod { .. }) {
            return Err((
                "--health",
                anyhow!("a Pod that follows is another one: there is nothing to take back"),
            ));
        }
        Ok(Settings {
            admins: admins.map_err(|error| ("--admin", error))?,
            token: token.map(|text| text.trim().to_owned()),
            health,
            kubernetes: Kubernetes { kubeconfig, context: filled(self.context.as_ref()) },
        })
    }

    pub(super) fn wait(&self) -> Duration {
        let default = match (self.abort, &self.health) {
            (false, _) => Duration::from_mins(4),
            (true, None) => Duration::from_secs(30),
            // A probe asks again by itself.
            (true, Some(_)) => Duration::ZERO,
        };
        self.wait.unwrap_or(default)
    }

    pub(super) fn namespace(&self) -> Option<String> {
        filled(self.namespace.as_ref())
    }

    pub(super) fn uid(&self) -> Option<String> {
        filled(self.uid.as_ref())
    }

    /// What the annotation says. Its deadline is seen by others, whether anything is cut then or not.
    pub(super) fn order(&self) -> DrainOrder {
        DrainOrder {
            reason: self.reason.clone().unwrap_or_else(|| "tandem drain".to_owned()),
            deadline_ms: Some(self.force_at.map_or_else(|| in_ms(self.wait()), When::ms)),
            force: self.force_at.is_some(),
        }
    }
}

/// An empty variable is none.
fn filled(value: Option<&String>) -> Option<String> {
    value.filter(|text| !text.is_empty()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_time_from_now_or_a_date() {
        assert_eq!(When::parse("200s"), Ok(When::In(Duration::from_secs(200))));
        assert_eq!(When::parse("2026-12-01T10:30:00Z"), Ok(When::At(1_796_121_000_000)));
        assert_eq!(When::parse("2026-12-01T11:30:00+01:00"), Ok(When::At(1_796_121_000_000)));
        for wrong in ["", "soon", "10", "2026-12-01", "10:30"] {
            assert!(When::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_reason_gives_no_orders() {
        assert_eq!(reason("new disk: /dev/sda"), Ok("new disk: /dev/sda".to_owned()));
        for wrong in ["x; force", "force", "deadline=2026-12-01T10:30:00Z", "a\nb", &"x".repeat(201)] {
            assert!(reason(wrong).is_err(), "{wrong}");
        }
    }
}

//! `tandem drain`: no new requests for an engine at any router, and a wait until it carries none.
//!
//! Every replica counts: a name with several addresses, as a headless Service has, means all of them, looked up again each round
//! because replicas come and go. A replica that does not answer is not known to be done; one that refuses the order will go on
//! refusing it, so there is no wait for that.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use http::Method;
use serde_json::Value;
use tokio::time::sleep;

use super::admin::{NoAnswer, ask, authority, block_on, call, fleet, target};
use super::exit::{Exit, fail, say, show};
use super::help;
use crate::admin::EndpointStatus;
use crate::types::clock;

/// Between two rounds.
const PAUSE: Duration = Duration::from_secs(1);

/// Withdraw an engine from running routers and wait until it carries nothing
#[derive(Debug, Args)]
#[command(after_help = help::DRAIN, after_long_help = help::DRAIN)]
pub(super) struct Drain {
    /// Engine, http://HOST:PORT as the routers' configuration has it
    #[arg(value_name = "ENGINE", env = "TANDEM_ENGINE", hide_env_values = true)]
    engine: String,
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
    /// File with the routers' admin token
    #[arg(long, value_name = "FILE", env = "TANDEM_TOKEN_FILE", hide_env_values = true)]
    token_file: Option<PathBuf>,
    /// How long to wait until nothing is open, such as 240s
    #[arg(long, value_name = "TIME", default_value = "240s", value_parser = super::time)]
    wait: Duration,
    /// Take the drain back: new requests again, without a wait
    #[arg(long, conflicts_with = "wait")]
    undo: bool,
    /// Only once this answers with 2xx, else exit code 3; for the startup probe of an engine that comes back
    #[arg(long, value_name = "URL", requires = "undo")]
    health: Option<String>,
}

/// What one router says of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
enum At {
    NotListed,
    /// Whether it takes no new requests; requests and hand-offs that it carries.
    Open {
        withdrawn: bool,
        requests: u64,
        handoffs: u64,
    },
    /// Nothing has this name.
    NoName(String),
    /// It does not take the order from us.
    Denied(String),
    Unknown(String),
}

type Round = BTreeMap<String, At>;

impl Drain {
    pub(super) fn run(&self) -> Exit {
        let token = match self.token() {
            Ok(token) => token,
            Err(error) => {
                say(&format!("--token-file: {error:#}"));
                return Exit::Usage;
            }
        };
        let health = match self.health.as_deref().map(target).transpose() {
            Ok(health) => health,
            Err(error) => {
                say(&format!("--health: {error:#}"));
                return Exit::Usage;
            }
        };
        let admins: Result<Vec<String>, _> =
            self.admin.iter().map(|url| authority(url).with_context(|| url.clone())).collect();
        match admins {
            Ok(admins) => block_on(self.all(&admins, token.as_deref(), health))
                .unwrap_or_else(|_| fail(&anyhow::anyhow!("the runtime cannot be made"))),
            Err(error) => {
                say(&format!("--admin: {error:#}; write it as http://HOST:PORT"));
                Exit::Usage
            }
        }
    }

    fn token(&self) -> anyhow::Result<Option<String>> {
        let read = |path: &PathBuf| std::fs::read_to_string(path).with_context(|| path.display().to_string());
        Ok(self.token_file.as_ref().map(read).transpose()?.map(|text| text.trim().to_owned()))
    }

    async fn all(&self, admins: &[String], token: Option<&str>, health: Option<(String, String)>) -> Exit {
        if let Some((at, path)) = health
            && let Err(why) = healthy(&at, &path).await
        {
            say(&format!("http://{at}{path}: {why}; a drain is not taken back yet"));
            return Exit::Unreachable;
        }
        let end = clock::now() + self.wait;
        let mut shown = Round::new();
        loop {
            let round = self.round(admins, token).await;
            if round != shown && show(&self.line(&round)) != Exit::Ok {
                return Exit::Failure;
            }
            if let Some(exit) = self.verdict(&round, self.undo || clock::now() >= end) {
                return exit;
            }
            shown = round;
            sleep(PAUSE).await;
        }
    }

    /// Orders it at every router that there is now, and asks what is left.
    async fn round(&self, admins: &[String], token: Option<&str>) -> Round {
        let mut round = Round::new();
        for admin in admins {
            match tokio::net::lookup_host(admin).await {
                Ok(found) => {
                    for at in found.map(|at| at.to_string()) {
                        let state = self.order(&at, token).await.unwrap_or_else(At::from);
                        round.insert(at, state);
                    }
                }
                Err(error) => _ = round.insert(admin.clone(), not_found(&error.to_string())),
            }
        }
        round
    }

    async fn order(&self, at: &str, token: Option<&str>) -> Result<At, NoAnswer> {
        let method = if self.undo { Method::DELETE } else { Method::PUT };
        // One that has left takes no orders, and counts until it carries nothing.
        for endpoint in self.listed(at).await?.iter().filter(|e| !e.gone) {
            let _: Value = call(at, &method, &format!("/endpoints/{}/drain", endpoint.id), token).await?;
        }
        Ok(self.state(&self.listed(at).await?))
    }

    fn state(&self, listed: &[EndpointStatus]) -> At {
        // There is nothing to take back where it has left.
        if listed.iter().all(|e| e.gone && self.undo) {
            return At::NotListed;
        }
        At::Open {
            withdrawn: listed.iter().all(|e| !e.selectable),
            requests: listed.iter().map(|e| e.in_flight).sum(),
            handoffs: listed.iter().map(|e| e.handoffs).sum(),
        }
    }

    /// The engine, once for each role and service that it stands in.
    async fn listed(&self, at: &str) -> Result<Vec<EndpointStatus>, NoAnswer> {
        let document: Value = call(at, &Method::GET, "/endpoints", None).await?;
        let all = fleet(&document)?.endpoints;
        let engine = self.engine.trim_end_matches('/');
        let bare = engine.strip_prefix("http://").unwrap_or(engine);
        Ok(all.into_iter().filter(|e| e.url.strip_prefix("http://") == Some(bare)).collect())
    }

    /// `None`: not over yet. `last`: there is no time for another round.
    fn verdict(&self, round: &Round, last: bool) -> Option<Exit> {
        let denied = |(at, state): (&String, &At)| match state {
            At::Denied(why) => Some(format!("{at}: {why}")),
            _ => None,
        };
        if let Some(why) = round.iter().find_map(denied) {
            say(&format!("{why}; name the file of the routers' admin token by --token-file"));
            return Some(Exit::Failure);
        }
        // An engine that starts has nothing to take back where no router is, or none that lists it.
        let starts = self.health.is_some();
        let unknown = |at: &At| matches!(at, At::Unknown(_)) || matches!(at, At::NoName(_)) && !starts;
        let unknown = round.is_empty() || round.values().any(unknown);
        let listed = round.values().any(|at| matches!(at, At::Open { .. }));
        let done = round.values().all(|at| match at {
            At::Open { withdrawn, requests, handoffs } => {
                self.undo || *withdrawn && *requests == 0 && *handoffs == 0
            }
            _ => true,
        });
        if done && !unknown && (listed || starts) {
            return Some(Exit::Ok);
        }
        if !unknown && !listed {
            let engine = &self.engine;
            say(&format!("no router lists {engine}; name it by its URL, as `tandem endpoints` shows it"));
            return Some(Exit::Failure);
        }
        last.then(|| {
            let (exit, what) = if unknown {
                (Exit::Unreachable, "not known to be done: a router did not answer")
            } else {
                (Exit::Failure, "not drained in time; the drain stands, --undo takes it back")
            };
            say(&format!("{}: {what}", self.engine));
            exit
        })
    }

    fn line(&self, round: &Round) -> String {
        let one = |(at, state): (&String, &At)| match state {
            At::NotListed => format!("{at} does not list it"),
            At::Open { withdrawn: false, .. } => format!("{at} gives it requests"),
            At::Open { requests, handoffs: 0, .. } => format!("{at} has {requests} open"),
            At::Open { requests, handoffs, .. } => {
                format!("{at} has {requests} open and {handoffs} hand-offs")
            }
            At::NoName(why) | At::Denied(why) | At::Unknown(why) => format!("{at}: {why}"),
        };
        let all: Vec<String> = round.iter().map(one).collect();
        format!(
            "{}: {}\n",
            self.engine,
            if all.is_empty() { "no router found".to_owned() } else { all.join("; ") }
        )
    }
}

impl From<NoAnswer> for At {
    fn from(error: NoAnswer) -> Self {
        let why = format!("{:#}", error.error());
        if matches!(error, NoAnswer::Denied(_)) { Self::Denied(why) } else { Self::Unknown(why) }
    }
}

/// Whether there is no such name, or it is not known: the C library tells it by its words alone (of musl, and of glibc).
fn not_found(why: &str) -> At {
    let none = ["Name does not resolve", "no usable address", "service not known", "No address associated"];
    let named = if none.iter().any(|words| why.contains(words)) { At::NoName } else { At::Unknown };
    named(why.to_owned())
}

async fn healthy(at: &str, path: &str) -> Result<(), String> {
    match ask(at, &Method::GET, path, None).await {
        Ok((status, _)) if status.is_success() => Ok(()),
        Ok((status, _)) => Err(format!("answered with {status}")),
        Err(error) => Err(format!("{:#}", error.error())),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        drain: Drain,
    }

    /// How a single router, or none, ends a command line when there is no time left.
    fn last(arguments: &[&str], state: At) -> Option<Exit> {
        let line = Line::try_parse_from([&["tandem", "http://e:1"], arguments].concat()).unwrap();
        line.drain.verdict(&Round::from([("r:9090".to_owned(), state)]), true)
    }

    #[test]
    fn a_name_that_is_not_there_holds_up_a_drain_and_no_start() {
        let none = [
            "failed to lookup address information: Name does not resolve",
            "failed to lookup address information: Name or service not known",
        ];
        let starts = ["--undo", "--health", "http://e:1/health"];
        for (arguments, ends) in
            [(&starts[..], Exit::Ok), (&starts[..1], Exit::Unreachable), (&[], Exit::Unreachable)]
        {
            for why in none {
                assert_eq!(last(arguments, not_found(why)), Some(ends), "{arguments:?} {why}");
            }
        }
        // No DNS just now: there may be routers that have the drain.
        let unsure = "failed to lookup address information: Temporary failure in name resolution";
        assert_eq!(last(&starts, not_found(unsure)), Some(Exit::Unreachable));
    }
}

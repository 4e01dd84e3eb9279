//! Every router behind the names, looked up again each round and asked all at once, each with a time limit of its own. Listed
//! engines are also ordered out, or taken back, here: that is each router's own affair and lost when one restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::anyhow;
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::time::timeout;

use super::super::admin::{NoAnswer, ask, call, fleet};
use super::proof::{self, Round};
use super::target::Target;
use crate::drain::Tracker;
use crate::registry::report::Report;
use crate::types::clock;

/// Longest time for a name.
const LOOKUP: Duration = Duration::from_secs(5);

/// What is to be done at each router, besides reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Work {
    /// Pods are withdrawn by what the API server says of them.
    Read,
    /// No new requests; with the query of the order, if it says something.
    Drain(Option<String>),
    Restore,
}

#[derive(Debug)]
pub(super) struct Replicas {
    /// `HOST:PORT` as named, and where that led to when it was looked up last.
    names: BTreeMap<String, Vec<String>>,
    token: Option<String>,
    /// Processes that an order which says something was given to: instance and boot generation.
    told: BTreeSet<(String, u64)>,
    tracker: Tracker,
}

impl Replicas {
    pub(super) fn new(admins: Vec<String>, token: Option<String>) -> Self {
        let names = admins.into_iter().map(|name| (name, Vec::new())).collect();
        Self { names, token, told: BTreeSet::new(), tracker: Tracker::default() }
    }

    /// # Errors
    /// A router refuses the order, and will go on refusing it.
    pub(super) async fn round(&mut self, target: &Target, work: &Work) -> Result<Round, String> {
        let nameless = self.look_up().await;
        let at = clock::now();
        let addresses: BTreeSet<&String> = self.names.values().flatten().collect();
        let mut asked = Vec::new();
        for address in addresses {
            let one = One {
                at: address.clone(),
                target: target.clone(),
                work: work.clone(),
                token: self.token.clone(),
                told: self.told.clone(),
            };
            asked.push((address.clone(), self.tracker.spawn("replica", one.visit())));
        }
        let (mut answers, mut denied) = (BTreeMap::new(), None);
        for (address, answer) in asked {
            let answer = match answer.await {
                Ok(Ok(report)) => {
                    let router = &report.router;
                    if *work != Work::Read {
                        self.told.insert((router.instance.clone(), router.boot_generation));
                    }
                    Ok(report)
                }
                Ok(Err(error)) => {
                    let why = format!("{:#}", error.error());
                    if matches!(error, NoAnswer::Denied(_)) {
                        denied = denied.or(Some(format!("{address}: {why}")));
                    }
                    Err(why)
                }
                Err(_) => Err("not asked".to_owned()),
            };
            answers.insert(address, answer);
        }
        match denied {
            Some(why) => Err(why),
            None => Ok(Round { at, answers, nameless }),
        }
    }

    /// Names that lead nowhere now; where they led before is asked all the same.
    async fn look_up(&mut self) -> BTreeMap<String, String> {
        let mut nameless = BTreeMap::new();
        for (name, addresses) in &mut self.names {
            match timeout(LOOKUP, tokio::net::lookup_host(name.as_str())).await {
                Ok(Ok(found)) => {
                    *addresses = found.map(|at| at.to_string()).collect();
                    if addresses.is_empty() {
                        nameless.insert(name.clone(), "no address".to_owned());
                    }
                }
                Ok(Err(error)) => _ = nameless.insert(name.clone(), error.to_string()),
                Err(_) => {
                    let why = format!("not looked up within {} s", LOOKUP.as_secs());
                    nameless.insert(name.clone(), why);
                }
            }
        }
        nameless
    }
}

/// One router.
#[derive(Debug)]
struct One {
    at: String,
    target: Target,
    work: Work,
    token: Option<String>,
    told: BTreeSet<(String, u64)>,
}

impl One {
    /// What it says after it did what it had to. It is read first: an order that it has is no news to it, and a line in its log.
    async fn visit(self) -> Result<Report, NoAnswer> {
        let mut report = self.read().await?;
        if self.is_due(&report) {
            if self.order().await? {
                return self.read().await;
            }
            // There is nothing to take back where it has left.
            if self.work == Work::Restore {
                report.endpoints.retain(|entry| !self.target.is(entry));
            }
        }
        Ok(report)
    }

    async fn read(&self) -> Result<Report, NoAnswer> {
        let path = format!("/observer/inflight?{}", self.target.query());
        let (status, body) = ask(&self.at, &Method::GET, &path, None).await?;
        let strange = |why: String| NoAnswer::Strange(anyhow!(why));
        match status {
            StatusCode::OK => proof::read(&body).map_err(strange),
            StatusCode::NOT_FOUND => {
                Err(strange("it has no /observer/inflight; is it of an older version?".to_owned()))
            }
            status => Err(strange(format!("GET /observer/inflight was answered with {status}"))),
        }
    }

    fn is_due(&self, report: &Report) -> bool {
        let mut drained =
            report.endpoints.iter().filter(|entry| self.target.is(entry)).map(|e| e.volatile_drain);
        let process = (report.router.instance.clone(), report.router.boot_generation);
        match &self.work {
            Work::Read => false,
            Work::Drain(Some(_)) if !self.told.contains(&process) => drained.next().is_some(),
            Work::Drain(_) => drained.any(|drained| !drained),
            Work::Restore => drained.any(|drained| drained),
        }
    }

    /// Whether there was something to order: one that has left takes no orders, and counts until it carries nothing.
    async fn order(&self) -> Result<bool, NoAnswer> {
        let (method, query) = match &self.work {
            Work::Drain(Some(query)) => (Method::PUT, format!("?{query}")),
            Work::Drain(None) => (Method::PUT, String::new()),
            Work::Read | Work::Restore => (Method::DELETE, String::new()),
        };
        let document: Value = call(&self.at, &Method::GET, "/endpoints", None).await?;
        let all = fleet(&document)?.endpoints;
        let mut ordered = false;
        for endpoint in all.iter().filter(|e| !e.gone && self.target.is_listed(e)) {
            let path = format!("/endpoints/{}/drain{query}", super::super::admin::encoded(&endpoint.id));
            let _: Value = call(&self.at, &method, &path, self.token.as_deref()).await?;
            ordered = true;
        }
        Ok(ordered)
    }
}

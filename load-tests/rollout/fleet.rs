//! Two releases of engines, their Pods, and what the engines say of the pairs they were part of.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use tandem::engine::{EngineConfig, Role, Running, Seen, Timing, Wire};
use tandem::testkit::kube::{FakeKube, PodSpec, set_ready};
use tandem::types::clock::{Instant, now};
use tokio::net::TcpListener;
use tokio::time::sleep;

/// One port for all of them, as routers that are told a port instead of reading it need.
pub(crate) const FRONT: u16 = 8000;
const SIDE: u16 = 8998;
const ELIGIBLE: &str = "tandem.dev/endpoint-eligible";
/// From a router's last look at the withdrawn bit to the engine's: as in R1.
const SLACK: Duration = Duration::from_millis(50);

/// Prefills and decodes of each release.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) prefills: usize,
    pub(crate) decodes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Release {
    Old,
    New,
}

impl Release {
    fn token(self) -> &'static str {
        if self == Self::Old { "kv-v1" } else { "kv-v2" }
    }

    pub(crate) fn revision(self) -> &'static str {
        if self == Self::Old { "r1" } else { "r2" }
    }
}

/// How a controller takes an endpoint out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Withdraw {
    /// Its eligibility label goes, or Ready becomes False, by turns.
    Marks,
    /// Its Pod gets a deletion time: what every router can see.
    Delete,
}

/// One engine and its Pod.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) role: Role,
    pub(crate) release: Release,
    ip: Ipv4Addr,
    pub(crate) engine: Running,
    /// When its object was changed so that it takes no new requests.
    pub(crate) changed: Option<Instant>,
    /// When every router had said that it gives it none.
    pub(crate) acknowledged: Option<Instant>,
    /// Connections that came when it was gone.
    late: Arc<AtomicU64>,
}

impl Member {
    /// Requests for text that it was asked.
    fn asked<T>(&self, look: impl Fn(&Seen) -> Option<T>) -> Vec<T> {
        let is_chat = |seen: &&Seen| seen.method == "POST" && seen.path() == "/v1/chat/completions";
        self.engine.log.read(|records| records.requests.iter().filter(is_chat).filter_map(&look).collect())
    }

    pub(crate) fn is_used(&self) -> bool {
        !self.asked(|_| Some(())).is_empty()
    }

    fn begun_after(&self, at: Instant) -> usize {
        self.asked(|seen| (seen.head_at > at).then_some(())).len()
    }
}

pub(crate) struct Fleet {
    api: FakeKube,
    wire: Wire,
    timing: Timing,
    withdraw: Withdraw,
    /// Pods do not say their pairing token.
    blind: bool,
    pub(crate) members: Vec<Member>,
    withdrawn: usize,
}

impl Fleet {
    pub(crate) fn new(api: &FakeKube, wire: Wire, timing: Timing, withdraw: Withdraw, blind: bool) -> Self {
        Self { api: api.clone(), wire, timing, withdraw, blind, members: Vec::new(), withdrawn: 0 }
    }

    /// A new Pod, its engine serving already. Gives its place.
    pub(crate) async fn add(&mut self, role: Role, release: Release) -> usize {
        // Addresses of this run alone; none is used twice.
        let own = std::process::id().to_be_bytes();
        let number = u8::try_from(self.members.len() + 1).unwrap();
        let ip = Ipv4Addr::new(127, own[2] | 128, own[3], number);
        let name = format!("{}-{}-{number}", role.as_str(), release.revision());
        let engine = tandem::engine::start(self.config(role, ip)).await.unwrap();
        let mut spec = PodSpec::new(&name)
            .label("app", "llm")
            .label("tandem.dev/role", role.as_str())
            .label("tandem.dev/revision", release.revision())
            .label(ELIGIBLE, "true")
            .annotation("tandem.dev/ports", &FRONT.to_string())
            .at(IpAddr::V4(ip));
        if !self.blind {
            spec = spec.label("tandem.dev/pairing-token", release.token());
        }
        if role == Role::Prefill {
            for key in ["tandem.dev/bootstrap-port", "sglang.ai/bootstrap-port"] {
                spec = spec.annotation(key, &SIDE.to_string());
            }
        }
        if self.wire == Wire::Vllm {
            // The words of smg.
            let engine_id = format!("engine-{number}");
            spec = spec.annotation("smg.ai/kv-connector", "NixlConnector");
            spec = spec.annotation("smg.ai/kv-engine-id", &engine_id);
        }
        let uid = self.api.create(spec);
        let (changed, acknowledged, late) = (None, None, Arc::default());
        self.members.push(Member { name, uid, role, release, ip, engine, changed, acknowledged, late });
        self.members.len() - 1
    }

    fn config(&self, role: Role, ip: Ipv4Addr) -> EngineConfig {
        let mut config = EngineConfig::new(self.wire, role);
        config.listen = SocketAddr::from((ip, FRONT));
        config.side_listen = SocketAddr::from((ip, SIDE));
        config.advertise = ip.to_string();
        config.timing = self.timing;
        (config.pages, config.log) = (1 << 14, 1 << 18);
        // Whoever pairs wrongly shall be seen within the run.
        config.waits.bootstrap = Duration::from_secs(10);
        config.waits.waiting = Duration::from_secs(10);
        config
    }

    /// From here on it is to get no new request.
    pub(crate) fn withdraw(&mut self, place: usize) {
        let member = &mut self.members[place];
        member.changed = Some(now());
        let by_label = self.withdrawn.is_multiple_of(2);
        self.withdrawn += 1;
        match self.withdraw {
            Withdraw::Delete => self.api.delete("default", &member.name),
            Withdraw::Marks if by_label => self.api.update("default", &member.name, |pod| {
                pod["metadata"]["labels"].as_object_mut().unwrap().remove(ELIGIBLE);
            }),
            Withdraw::Marks => self.api.update("default", &member.name, |pod| set_ready(pod, "False", None)),
        };
    }

    /// `kill -9`, and its Pod is gone. Whoever connects to its address afterwards is counted.
    pub(crate) async fn kill(&mut self, place: usize) {
        let member = &self.members[place];
        member.engine.kill();
        member.engine.ended().await;
        self.api.finish_delete("default", &member.name);
        let (at, late) = (SocketAddr::from((member.ip, FRONT)), Arc::clone(&member.late));
        let listener = TcpListener::bind(at).await.unwrap();
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                late.fetch_add(1, Ordering::Relaxed);
            }
        });
    }

    /// The engine has been idle for `settle`, by its own count; `false` after `limit`.
    pub(crate) async fn idle(&self, place: usize, settle: Duration, limit: Duration) -> bool {
        let engine = &self.members[place].engine;
        let (began, mut busy) = (now(), now());
        while busy.elapsed() < settle {
            if began.elapsed() > limit {
                return false;
            }
            if !engine.state().is_idle() {
                busy = now();
            }
            sleep(Duration::from_millis(5)).await;
        }
        true
    }

    /// Requests that a release's engines got after a moment, the slack granted.
    pub(crate) fn begun_after(&self, release: Release, at: Instant) -> usize {
        let of = self.members.iter().filter(|member| member.release == release);
        of.map(|member| member.begun_after(at + SLACK)).sum()
    }

    /// Requests that a release's engines got at all.
    pub(crate) fn begun(&self, release: Release) -> usize {
        let of = self.members.iter().filter(|member| member.release == release);
        of.map(|member| member.asked(|_| Some(())).len()).sum()
    }

    /// What the engines saw.
    pub(crate) fn verdict(&self) -> Verdict {
        let prefill = |member: &&Member| member.role == Role::Prefill;
        let prefills: HashMap<String, Release> =
            self.members.iter().filter(prefill).map(|m| (m.ip.to_string(), m.release)).collect();
        let asked = |role| {
            let of = self.members.iter().filter(move |m| m.role == role);
            of.map(|member| member.asked(|_| Some(())).len() as u64).sum::<u64>()
        };
        let prefills_unused = asked(Role::Prefill).saturating_sub(asked(Role::Decode));
        let mut verdict = Verdict { prefills_unused, ..Verdict::default() };
        for member in &self.members {
            verdict.connections_after_the_end += member.late.load(Ordering::Relaxed);
            let state = member.engine.state();
            verdict.wrong_kv +=
                state.count("mismatched") + state.count("corrupted") + state.count("stale_pulls");
            verdict.failed_transfers += state.count("failed_transfers");
            if let Some(at) = member.acknowledged {
                verdict.begun_after_acknowledged += member.begun_after(at + SLACK);
            }
            if let Some(at) = member.changed {
                let last = member.asked(|seen| Some(seen.head_at)).into_iter().max();
                let late = last.map_or(0.0, |last| ms(last.saturating_duration_since(at)));
                verdict.last_begun_after_change_ms = verdict.last_begun_after_change_ms.max(late);
            }
            if member.role == Role::Decode {
                for pair in member.asked(|seen| Some(partner(seen))) {
                    match pair.and_then(|host| prefills.get(&host).copied()) {
                        None => verdict.unpaired += 1,
                        Some(release) if release != member.release => verdict.crossed += 1,
                        Some(Release::Old) => verdict.pairs_old += 1,
                        Some(Release::New) => verdict.pairs_new += 1,
                    }
                }
            }
        }
        verdict
    }
}

/// Whose KV a decode was told to use.
fn partner(seen: &Seen) -> Option<String> {
    let body = seen.json();
    let host = body["kv_transfer_params"]["remote_host"].as_str().or(body["bootstrap_host"].as_str())?;
    Some(host.to_owned())
}

pub(crate) fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e5).round() / 100.0
}

/// The engines' word on a run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Verdict {
    pub(crate) pairs_old: u64,
    pub(crate) pairs_new: u64,
    /// Decodes that were told to use the KV of a prefill of the other release.
    pub(crate) crossed: u64,
    /// Decodes that were told of no prefill.
    pub(crate) unpaired: u64,
    /// Prefills that no decode was told of: their requests were decided again.
    pub(crate) prefills_unused: u64,
    /// Answers made from another prompt's KV, or from KV that was no longer kept.
    pub(crate) wrong_kv: u64,
    pub(crate) failed_transfers: u64,
    /// More than the slack after every router had said that it gives the endpoint none.
    pub(crate) begun_after_acknowledged: usize,
    /// From the change of a Pod to the last request that its engine got: the longest of all.
    pub(crate) last_begun_after_change_ms: f64,
    /// To addresses whose engine was gone.
    pub(crate) connections_after_the_end: u64,
}

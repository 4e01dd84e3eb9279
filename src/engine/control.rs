//! `/mock/…` on the front door: what a test or a person asks of the mock itself. Loopback is not enforced here: the engine
//! listens where it is told to, and has no secrets.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};

use super::body::{Body, Response};
use super::core::{Core, Stage};
use super::json::{Json, ordered};
use super::script::Rule;

pub(super) fn handle(core: &Arc<Core>, method: &Method, path: &str, body: &Bytes) -> Response {
    match (method.as_str(), path) {
        ("GET", "log") => Body::json(StatusCode::OK, &log(core)),
        ("GET", "state") => Body::json(StatusCode::OK, &Json::Map(state(core))),
        ("DELETE", "log") => {
            core.log.clear();
            Body::empty()
        }
        ("POST", "script") => script(core, body, true),
        ("PUT", "script") => script(core, body, false),
        ("DELETE", "script") => {
            core.set_rules(Vec::new());
            Body::empty()
        }
        ("POST", "die") => {
            core.die_in(std::time::Duration::from_millis(5));
            Body::empty()
        }
        _ => Body::not_found(),
    }
}

/// A rule a line; `add` keeps those that are there.
fn script(core: &Core, body: &Bytes, add: bool) -> Response {
    let text = String::from_utf8_lossy(body);
    let rules: Result<Vec<Rule>, String> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(Rule::parse).collect();
    match rules {
        Ok(rules) if add => rules.into_iter().for_each(|rule| core.add_rule(rule)),
        Ok(rules) => core.set_rules(rules),
        Err(error) => return Body::json(StatusCode::BAD_REQUEST, &ordered! { "error": error }),
    }
    Body::empty()
}

fn log(core: &Core) -> Json {
    let mut all = core.log.json();
    all.extend(state(core));
    Json::Map(all)
}

/// What is held now, and what was counted.
fn state(core: &Core) -> Vec<(&'static str, Json)> {
    let (held, kept) = (core.sglang.held(), core.vllm.kept());
    let room = |(room, prefill, decode, phase): &(u64, bool, bool, &'static str)| {
        ordered! { "room": *room, "prefill": *prefill, "decode": *decode, "phase": *phase }
    };
    let stage = |stage| Json::from(core.stages.get(stage));
    let stages = ordered! {
        "queued": stage(Stage::Queued), "running": stage(Stage::Running), "bootstrap": stage(Stage::Bootstrap),
        "inflight": stage(Stage::Inflight), "prealloc": stage(Stage::Prealloc), "transfer": stage(Stage::Transfer),
    };
    let counts = core.counts.list().into_iter().map(|(name, count)| (name, count.into())).collect();
    vec![
        ("wire", core.config.wire.as_str().into()),
        ("role", core.config.role.as_str().into()),
        ("side_port", core.side_port.get().copied().into()),
        ("live_requests", core.live_jobs().into()),
        ("stages", stages),
        ("rooms", held.rooms.iter().map(room).collect::<Vec<_>>().into()),
        (
            "pages",
            ordered! {
                "used": held.pages_used, "dirty": held.pages_dirty, "deferred": held.pages_deferred,
                "total": held.pages_total,
            },
        ),
        (
            "leases",
            ordered! { "requests": kept.requests, "blocks": kept.blocks, "expired": kept.expired, "total": kept.total },
        ),
        ("counts", Json::Map(counts)),
    ]
}

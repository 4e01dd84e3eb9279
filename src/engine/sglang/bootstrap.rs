//! The prefill's bootstrap server: the real one's `/route` and `/health`, and the transfer itself.
//!
//! Real KV moves by RDMA; here a decode keeps `POST /mock/kv/rooms/ROOM` open and is told, a line per step, what the prefill
//! does with its pages.

use std::sync::Arc;

use http::{Method, StatusCode};
use tokio::sync::mpsc;

use super::prefill::Seated;
use super::rooms::{Phase, Seat};
use crate::engine::body::{Body, Response};
use crate::engine::core::Core;
use crate::engine::json::ordered;

/// Answers one request of the bootstrap port.
pub(in crate::engine) fn handle(core: &Arc<Core>, method: &Method, path: &str, query: &str) -> Response {
    match (method.as_str(), path) {
        ("GET", "/health") | ("PUT", "/route") => Body::text(StatusCode::OK, "OK"),
        ("GET", "/route") => route(core, query),
        ("POST", _) => match path.strip_prefix("/mock/kv/rooms/").and_then(|room| room.parse().ok()) {
            Some(room) => join(core, room),
            None => Body::not_found(),
        },
        _ => Body::not_found(),
    }
}

fn route(core: &Arc<Core>, query: &str) -> Response {
    let all = ["prefill_dp_rank", "prefill_cp_rank", "target_tp_rank", "target_pp_rank"];
    let asked =
        |key: &&str| query.split('&').any(|pair| pair.strip_prefix(*key).is_some_and(|v| v.starts_with('=')));
    if !all.iter().all(asked) {
        return Body::text(StatusCode::BAD_REQUEST, "Missing inputs for bootstrap server.");
    }
    let port = core.side_port.get().copied();
    Body::json(
        StatusCode::OK,
        &ordered! {
            "attn_tp_size": 1_u32, "attn_cp_size": 1_u32, "dp_size": 1_u32, "pp_size": 1_u32,
            "page_size": core.config.page_size, "kv_cache_dtype": "auto", "follow_bootstrap_room": true,
            "prefill_http_port": port,
        },
    )
}

fn join(core: &Arc<Core>, room: u64) -> Response {
    let Some(seat) = Seated::enter(core, room, Seat::Decode) else {
        return Body::text(StatusCode::CONFLICT, "the room has a decode");
    };
    let mut phase = seat.phase.clone();
    let (lines, receiver) = mpsc::unbounded_channel();
    core.tasks.spawn_light(async move {
        loop {
            let (line, over) = {
                let now = phase.borrow_and_update();
                (line(&now), now.is_over())
            };
            if lines.send(line).is_err() || over {
                return;
            }
            tokio::select! {
                () = lines.closed() => return,
                changed = phase.changed() => if changed.is_err() { return },
            }
        }
    });
    Body::lines(receiver, Box::new(seat))
}

fn line(phase: &Phase) -> String {
    match phase {
        Phase::Done { content, corrupted } => format!("done {content:016x} {corrupted}\n"),
        Phase::Failed(why) => format!("failed {why}\n"),
        other => format!("{}\n", other.as_str()),
    }
}

/// A line that [`line()`] made.
pub(super) fn parse(line: &str) -> Option<Phase> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match word {
        "waiting" => Some(Phase::Waiting),
        "met" => Some(Phase::Met),
        "writing" => Some(Phase::Writing),
        "failed" => Some(Phase::Failed(rest.to_owned())),
        "done" => {
            let (content, corrupted) = rest.split_once(' ')?;
            let content = u64::from_str_radix(content, 16).ok()?;
            Some(Phase::Done { content, corrupted: corrupted == "true" })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_is_read_as_it_was_written() {
        let done = Phase::Done { content: 0xabc, corrupted: true };
        for phase in [Phase::Waiting, Phase::Met, Phase::Writing, done, Phase::Failed("a b".to_owned())] {
            assert_eq!(parse(line(&phase).trim_end()), Some(phase));
        }
    }
}

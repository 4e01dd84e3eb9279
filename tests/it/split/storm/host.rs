//! The engine of one Pod: scripted, and now and then broken.

use parking_lot::Mutex;
use tandem::testkit::engine::openai::{chat_json, chat_sse, error, kv_answer};
use tandem::testkit::engine::{Engine, EngineHandle, IntoSteps, RecordedRequest, Response, Script, Step};
use tandem::testkit::memory::MemoryNet;

use super::ms;
use crate::split::rig::CHAT;

/// A service, and how its pairs meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    /// vLLM, NIXL: the decode is told whose KV it pulls.
    Pull,
    /// SGLang: both are told the room.
    Rooms,
}

pub(super) const KINDS: [Kind; 2] = [Kind::Pull, Kind::Rooms];
pub(super) const RELEASES: [&str; 3] = ["r1", "r2", "r3"];

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pull => "pull",
            Self::Rooms => "rooms",
        }
    }
}

/// What an engine is as long as it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) kind: Kind,
    pub(super) prefill: bool,
    pub(super) release: &'static str,
    pub(super) token: &'static str,
    /// Of all engines that ever were.
    pub(super) number: usize,
}

impl Facts {
    pub(super) fn ip(&self) -> String {
        format!("10.0.{}.{}", self.number / 200, self.number % 200 + 1)
    }
}

#[derive(Debug)]
pub(super) struct Host {
    pub(super) facts: Facts,
    pub(super) engine: EngineHandle,
}

impl Host {
    pub(super) fn start(facts: Facts, net: &MemoryNet, random: fastrand::Rng) -> Self {
        Self { facts, engine: Engine::in_memory(net, &facts.ip(), script(facts, random)) }
    }
}

fn script(facts: Facts, random: fastrand::Rng) -> Script {
    let random = Mutex::new(random);
    Script::new(move |request| {
        if request.path() != CHAT {
            return Response::text(200, "").into_steps();
        }
        let (pause, fault) = {
            let mut random = random.lock();
            (random.u64(0..15), random.u8(..100))
        };
        let mut steps = vec![Step::Sleep(ms(pause))];
        steps.extend(match fault {
            0..3 => vec![Step::Reset],
            3..5 => vec![Step::Close],
            5..10 => error(500, "of the storm").into_steps(),
            10..14 => error(503, "of the storm").into_steps(),
            14 => vec![Step::Stall],
            15..18 => [vec![Step::Sleep(ms(120))], answer(facts, request)].concat(),
            _ => answer(facts, request),
        });
        steps
    })
}

/// A NIXL prefill keeps its KV under a name of which one attempt alone knows.
fn answer(facts: Facts, request: &RecordedRequest) -> Vec<Step> {
    let body = request.json();
    if body["kv_transfer_params"]["do_remote_decode"] == true {
        Response::json(200, kv_answer(&kv(facts, request)).to_string()).into_steps()
    } else if body["stream"] == true {
        chat_sse(3, ms(4))
    } else {
        chat_json(facts.release).into_steps()
    }
}

/// What a NIXL prefill calls the KV of this request.
pub(super) fn kv(facts: Facts, request: &RecordedRequest) -> String {
    format!("{}/{}", facts.number, request.headers.get("x-request-id").unwrap_or_default())
}

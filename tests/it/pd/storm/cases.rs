//! What can happen, as one table: which side does what harm at which stage, times protocol, stream flag and kind of engine.

use super::super::rig::Proto;

/// How an engine hands KV over, and how a pair of it may be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// SGLang with its guard: legs are ended at once.
    Guarded,
    /// SGLang without: legs are kept for the grace.
    Unguarded,
    /// vLLM, NIXL.
    Pull,
}

/// How far the request is. The engines work by the clock, so a time is a stage; see [`super::world`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// No connection, or one that waited.
    Connect,
    /// Written, and nobody has begun.
    Sent,
    /// The prefill computes.
    Computing,
    /// KV is on its way from prefill to decode. (vLLM's decode has sent its head and role by now.)
    Transfer,
    /// KV is there, the first token is not out.
    Held,
    /// Two of four tokens are out.
    Streaming,
    /// The decode has its first token, the prefill's answer is not there. The only stage of a request without a fault.
    Tail,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Side {
    Client,
    Prefill,
    Decode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Harm {
    Nothing,
    /// The client closes (h1: FIN; h2: RST_STREAM).
    Leaves,
    /// The client resets (h1: RST; h2: the whole connection goes).
    Resets,
    /// 400.
    Rejects,
    /// 500.
    Fails,
    /// 503.
    Busy,
    /// The engine's connection is reset; the engine lives and its work goes on.
    Lost,
    /// The same by FIN.
    Closed,
    /// It says nothing more.
    Silent,
    /// Its own error, in-stream where there is a stream.
    Errs,
    /// `finish_reason: "abort"`.
    Aborts,
    /// 200 without KV parameters.
    NoKv,
    /// The dial is refused.
    Refused,
    /// The dial is not answered.
    Unanswered,
    /// The dial takes longer than KV parameters may be old.
    Slow,
    /// A pooled connection is reset as it is used.
    Raced,
    /// `kill -9`, and a new process at the same address 50 ms later.
    Killed,
    /// Withdrawn by an operator.
    Drained,
}

/// One variant of the storm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Case {
    pub(super) kind: Kind,
    pub(super) side: Side,
    pub(super) harm: Harm,
    pub(super) stage: Stage,
    pub(super) proto: Proto,
    pub(super) stream: bool,
}

use Harm::*;
use Stage::*;

const ANY: &[Stage] = &[Sent, Computing, Transfer, Streaming];

const TABLE: &[(Side, Harm, &[Stage])] = &[
    (Side::Client, Nothing, &[Tail]),
    (Side::Client, Leaves, ANY),
    (Side::Client, Resets, ANY),
    (Side::Prefill, Rejects, &[Sent]),
    (Side::Prefill, Fails, &[Sent]),
    (Side::Prefill, Busy, &[Sent]),
    (Side::Prefill, Errs, &[Sent]),
    (Side::Prefill, Lost, &[Sent, Computing, Transfer, Tail]),
    (Side::Prefill, Closed, &[Computing]),
    (Side::Prefill, Silent, &[Sent, Tail]),
    (Side::Prefill, NoKv, &[Computing]),
    (Side::Prefill, Refused, &[Connect]),
    (Side::Prefill, Unanswered, &[Connect]),
    (Side::Prefill, Raced, &[Connect]),
    (Side::Prefill, Killed, &[Computing, Transfer, Streaming]),
    (Side::Prefill, Drained, ANY),
    (Side::Decode, Rejects, &[Sent]),
    (Side::Decode, Fails, &[Sent]),
    (Side::Decode, Busy, &[Sent]),
    (Side::Decode, Errs, &[Held, Streaming]),
    (Side::Decode, Lost, &[Sent, Transfer, Held, Streaming]),
    (Side::Decode, Closed, &[Streaming]),
    (Side::Decode, Silent, &[Sent, Held, Streaming]),
    (Side::Decode, Aborts, &[Streaming]),
    (Side::Decode, Refused, &[Connect]),
    (Side::Decode, Unanswered, &[Connect]),
    (Side::Decode, Slow, &[Connect]),
    (Side::Decode, Raced, &[Connect]),
    (Side::Decode, Killed, &[Computing, Transfer, Streaming]),
    (Side::Decode, Drained, ANY),
];

/// Every variant of a kind.
pub(super) fn all(kind: Kind) -> Vec<Case> {
    let mut all = Vec::new();
    for &(side, harm, stages) in TABLE {
        for &stage in stages {
            for proto in [Proto::H1, Proto::H2] {
                for stream in [true, false] {
                    all.push(Case { kind, side, harm, stage, proto, stream });
                }
            }
        }
    }
    all.retain(|case| case.is_possible());
    all
}

impl Case {
    /// What cannot happen: SGLang returns no parameters that could be missing or grow old, and asks both engines at once, so
    /// its prefill is the only one with a tail; vLLM's prefill is over before its decode is asked, so nothing happens to the
    /// decode while the prefill computes except to the engine as such, or to the prefill while the decode streams.
    fn is_possible(self) -> bool {
        !matches!(
            (self.kind == Kind::Pull, self.side, self.harm, self.stage),
            (false, _, NoKv | Slow, _)
                | (true, Side::Prefill, _, Tail)
                | (true, Side::Prefill, Drained, Streaming)
                | (true, Side::Decode, Killed, Computing)
        )
    }

    /// What is counted: at CI's size an answer that is streamed and one that is not are the same variant, drawn by halves.
    pub(super) fn variant(self) -> Self {
        Self { stream: self.stream && crate::replay::scale(false, true), ..self }
    }

    pub(super) fn is_sglang(self) -> bool {
        self.kind != Kind::Pull
    }

    /// What the engine at fault does, in the mock engines' words. `None`: the fault is not an engine's own.
    pub(super) fn words(self) -> Option<String> {
        let end = match self.harm {
            Rejects => "status=400",
            Fails => "status=500",
            Busy => "status=503",
            Errs if self.stage == Sent => "fail",
            Errs => "error",
            Lost => "reset",
            Closed => "close",
            Silent => "hang",
            Aborts => "abort",
            NoKv => return Some("no-kv".to_owned()),
            Raced => return Some("reused,reset".to_owned()),
            _ => return None,
        };
        let when = match (self.stage, self.side) {
            (Sent | Connect, _) => "delay=10ms",
            (Computing, _) => "at=60ms",
            // Its answer, with the parameters, is what is lost.
            (Transfer, Side::Prefill) if !self.is_sglang() => "after=0",
            (Transfer, _) if self.is_sglang() => "at=150ms",
            (Transfer, _) => "at=50ms",
            (Held | Tail, _) => "after=0",
            (Streaming, _) => "after=2",
        };
        Some(format!("{when},{end}"))
    }

    /// What the case needs of the whole net; requests of one weather go together.
    pub(super) fn weather(self) -> Option<(Side, Harm)> {
        let whole = matches!(self.harm, Refused | Unanswered | Slow | Raced | Killed | Drained);
        whole.then_some((self.side, self.harm))
    }
}

#[test]
fn every_harm_and_every_stage_is_drawn_for_some_kind() {
    let all: Vec<Case> = [Kind::Guarded, Kind::Unguarded, Kind::Pull].into_iter().flat_map(all).collect();
    for &(side, harm, stages) in TABLE {
        for &stage in stages {
            assert!(
                all.iter().any(|c| (c.side, c.harm, c.stage) == (side, harm, stage)),
                "{side:?} {harm:?} {stage:?}"
            );
        }
    }
    let distinct: std::collections::HashSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len());
}

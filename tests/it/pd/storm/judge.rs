//! What a case may come to: the retry table of `docs/pd.md`, read against what the engines saw.

use tandem::engine::{Ended, expected};
use tandem::types::clock::Instant;

use super::super::rig::ms;
use super::cases::{Case, Harm, Side, Stage};
use super::client::{Answer, Ask};
use super::legs::Leg;
use super::world::{EACH, TOKENS};

/// What the client must have got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expect {
    /// The right text, complete.
    Whole,
    /// An engine's own error: status, and words of its body.
    Relayed(u16, &'static str),
    /// An error of the router: status and code; whether the client is told not to try again.
    Refused(u16, &'static str, bool),
    /// A stream that ends in one error event, marked as broken.
    Cut(&'static str),
    /// The engine's own in-stream error or abort, passed on.
    Passed,
    /// The client did not wait.
    Left,
}

use Expect::{Cut, Left, Passed, Refused, Relayed, Whole};

/// `hits`: legs that ran into the fault.
pub(super) fn expect(ask: &Ask, legs: &[Leg], answer: Option<&Answer>) -> Expect {
    let case = ask.case;
    let hits = hits(ask, legs);
    if matches!(case.harm, Harm::Leaves | Harm::Resets) {
        return Left;
    }
    if case.weather().is_some() {
        return in_weather(ask, legs, answer);
    }
    let tried_on = |last: Expect| if hits > 2 { last } else { Whole };
    match (hits, case.harm) {
        (0, _) => Whole,
        (_, Harm::Rejects) => Relayed(400, "scripted 400"),
        (_, Harm::Busy) => {
            if hits > 1 {
                Relayed(503, "scripted 503")
            } else {
                Whole
            }
        }
        (_, Harm::Fails) => tried_on(Relayed(500, "scripted 500")),
        (_, Harm::NoKv) => Refused(502, "prefill_no_kv", false),
        (_, Harm::Aborts) => Passed,
        (_, Harm::Errs) if case.stage == Stage::Streaming && case.stream => Passed,
        (_, Harm::Errs) => tried_on(Relayed(500, "Internal server error")),
        _ if case.side == Side::Prefill => lost_prefill(case).map_or(Whole, tried_on),
        // SGLang's prefill waits for its decode: the silence of either is the silence of both, and the prefill's counts.
        (_, Harm::Silent) if case.stage == Stage::Sent && case.is_sglang() => {
            tried_on(Refused(504, "prefill_timeout", true))
        }
        _ if answer.is_some_and(|a| a.status == 200)
            && case.stage != Stage::Streaming
            && may_race(ask, legs) =>
        {
            Whole
        }
        _ => lost_decode(case),
    }
}

/// A leg lost so early on a connection that had waited that the engine may have closed it before: that is tried again.
fn may_race(ask: &Ask, legs: &[Leg]) -> bool {
    let early = |leg: &Leg| {
        let lost = leg.logged.ended.filter(|(how, _)| matches!(how, Ended::Cut | Ended::Died));
        leg.logged.ordinal > 0
            && leg.logged.status.is_none()
            && lost.is_some_and(|(_, at)| at - leg.logged.head_at <= ms(105))
    };
    legs.iter().any(|leg| leg.side == ask.case.side && early(leg))
}

/// `None`: it is ignored, because the client has its first token or gets it before the silence is noticed.
fn lost_prefill(case: Case) -> Option<Expect> {
    let silent = case.harm == Harm::Silent;
    match case.stage {
        Stage::Tail if silent || case.stream => None,
        _ if silent => Some(Refused(504, "prefill_timeout", case.is_sglang())),
        _ => Some(Refused(502, "prefill_lost", case.is_sglang())),
    }
}

fn lost_decode(case: Case) -> Expect {
    let code = if case.harm == Harm::Silent { "upstream_timeout" } else { "upstream_lost" };
    match case.stage {
        Stage::Streaming if case.stream => Cut(code),
        _ => Refused(if case.harm == Harm::Silent { 504 } else { 502 }, code, true),
    }
}

fn in_weather(ask: &Ask, legs: &[Leg], answer: Option<&Answer>) -> Expect {
    let case = ask.case;
    let everywhere = ask.victims.count_ones() as usize == EACH;
    match case.harm {
        Harm::Refused if everywhere => Refused(502, "upstream_connect_failed", false),
        Harm::Unanswered if everywhere => Refused(504, "upstream_connect_timeout", false),
        // A slow one is well, and may be chosen again.
        Harm::Slow if everywhere || answer.is_some_and(|a| a.status == 504) => {
            Refused(504, "upstream_timeout", false)
        }
        // A lost connection, the same engine again, another dead one: all attempts are used up.
        Harm::Killed if answer.is_some_and(unconnected) && may_race(ask, legs) => {
            Refused(502, "upstream_connect_failed", false)
        }
        Harm::Killed if case.side == Side::Decode && died(legs) => {
            let again = case.stage != Stage::Streaming && may_race(ask, legs);
            if again && answer.is_some_and(|a| a.status == 200) { Whole } else { lost_decode(case) }
        }
        _ => Whole,
    }
}

fn unconnected(answer: &Answer) -> bool {
    answer.json()["error"]["code"] == "upstream_connect_failed"
}

fn died(legs: &[Leg]) -> bool {
    legs.iter().any(|leg| leg.side == Side::Decode && leg.died())
}

/// Legs that ran into the fault, or requests that met the weather: 0 means that the case did not happen.
pub(super) fn hits(ask: &Ask, legs: &[Leg]) -> usize {
    let at_fault = |leg: &&Leg| leg.side == ask.case.side && ask.victims & (1 << leg.host) != 0;
    legs.iter().filter(at_fault).count()
}

/// Whether the case really happened, as far as anything shows it. `strike`: when the weather came.
pub(super) fn happened(ask: &Ask, legs: &[Leg], answer: Option<&Answer>, strike: Option<Instant>) -> bool {
    let case = ask.case;
    let on_victim = |leg: &&Leg| leg.side == case.side && ask.victims & (1 << leg.host) != 0;
    let met = |what: &dyn Fn(&Leg) -> bool| legs.iter().filter(on_victim).any(what);
    // Nothing of it is on the engine any more: KV of vLLM's decode, or a decode that waits for its prefill.
    let unseen = match case.side {
        Side::Prefill => {
            case.stage == Stage::Streaming || (!case.is_sglang() && case.stage == Stage::Transfer)
        }
        _ => !case.is_sglang() && matches!(case.stage, Stage::Sent | Stage::Computing),
    };
    let failed = answer.is_some_and(|answer| answer.status != 200);
    match case.harm {
        Harm::Nothing | Harm::Leaves | Harm::Resets => true,
        // Nothing of a dial that failed is in any engine's log; a request that failed with all of them met it.
        Harm::Refused | Harm::Unanswered => failed,
        Harm::Slow => failed || legs.first().zip(legs.last()).is_some_and(|(a, b)| a.attempt != b.attempt),
        Harm::Raced => met(&|leg| leg.logged.ordinal > 0 && is_cut(leg)),
        Harm::Killed if unseen => met(&|_| true),
        Harm::Killed => met(&Leg::died),
        Harm::Drained if unseen => case.side == Side::Decode || met(&|_| true),
        Harm::Drained => strike.is_some_and(|at| met(&|leg| leg.runs_at(at))),
        _ => met(&|_| true),
    }
}

fn is_cut(leg: &Leg) -> bool {
    matches!(leg.logged.ended, Some((Ended::Cut, _)))
}

/// The outcome that the access line must name, and whether this is what the client got.
pub(super) fn judge(ask: &Ask, expect: Expect, answer: Option<&Answer>) -> Result<&'static str, String> {
    let Some(answer) = answer else {
        return if expect == Left { Ok("client_cancelled") } else { Err("no answer".to_owned()) };
    };
    let wrong = |what: &str| Err(format!("{what} instead of {expect:?}"));
    if answer.status == 200 {
        text(ask, answer)?;
    }
    match expect {
        Left => wrong("an answer"),
        Whole if answer.status != 200 => wrong("an error"),
        Whole if !answer.is_framed_as_complete() || answer.error_events() > 0 => wrong("a broken answer"),
        Whole if answer.finish() != Some("length") => wrong("an unfinished answer"),
        Whole => Ok("ok"),
        Relayed(status, words) => {
            let said = String::from_utf8_lossy(&answer.body).contains(words);
            if answer.status != status || !said || !answer.complete {
                return wrong("another answer");
            }
            Ok(match status {
                503 => "upstream_busy",
                500.. => "upstream_error",
                _ => "upstream_rejected",
            })
        }
        Refused(status, code, told) => {
            let same = answer.status == status && answer.json()["error"]["code"] == code;
            if !same || !answer.complete || answer.told_not_to_retry != told {
                return wrong("another error");
            }
            Ok(if status == 504 { "upstream_timeout" } else { "upstream_error" })
        }
        Cut(code) => {
            let marked = answer.error_events() == 1 && !answer.complete && !answer.is_framed_as_complete();
            if answer.status != 200 || !marked {
                return wrong("an answer that is not marked as broken");
            }
            Ok(if code == "upstream_timeout" { "upstream_timeout" } else { "upstream_error" })
        }
        Passed => {
            let marked = answer.error_events() == 1 || answer.finish() == Some("abort");
            if answer.status != 200 || !answer.complete || !marked {
                return wrong("an answer that hides its end");
            }
            Ok("upstream_error")
        }
    }
}

/// A complete answer is the right text, any other the beginning of it.
fn text(ask: &Ask, answer: &Answer) -> Result<(), String> {
    let (right, said) = (expected(0, ask.body().as_bytes(), TOKENS).unwrap(), answer.text());
    let whole = answer.is_framed_as_complete() && answer.error_events() == 0;
    let aborted = answer.finish() == Some("abort");
    if said == right || ((!whole || aborted) && right.starts_with(&said)) {
        return Ok(());
    }
    Err(format!("said {said:?}, not {right:?}"))
}

//! Any bytes as an engine's answer, in any pieces: our client and hyper's make the same of them, or both refuse. Where
//! ours refuses what hyper takes, the rule is in [`STRICTER`] with its reason; nothing is taken that hyper refuses.
#![no_main]

use http::Method;
use libfuzzer_sys::fuzz_target;
use tandem::testkit::upstream::{Received, receive};
use tandem::upstream::Fault;
use tandem_fuzz::reference::{Answer, by_hyper, cuts};

/// Rules of ours that hyper's client does not have, each because another reader of the same bytes may see another
/// message, or because no engine says so in earnest.
const STRICTER: &[(&str, &str)] = &[
    (
        "not an HTTP/1 answer",
        "hyper skips empty lines before the status line; they are leftovers of something else",
    ),
    ("bare line feed in the head", "RFC 9112 §2.2 only permits it, and not every reader does"),
    ("bare line feed in the trailers", "the same"),
    (
        "status code out of range",
        "RFC 9110 §15: codes above 599 are invalid, and their class decides about retries",
    ),
    ("101 without a request to switch", "we never ask for an upgrade"),
    ("too many interim answers", "hyper takes any number"),
    ("interim answer with a body", "RFC 9110 §8.6, RFC 9112 §6.1 forbid it; its body would be the next head"),
    ("both content-length and transfer-encoding", "RFC 9112 §6.3: ought to be handled as an error"),
    ("more than one transfer-encoding", "hyper looks at the last one"),
    ("transfer-encoding other than chunked", "hyper reads until the close; we decode nothing else"),
    ("transfer-encoding in HTTP/1.0", "RFC 9112 §6.1: faulty framing; hyper reads until the close"),
    ("more than one content-length", "hyper takes equal ones"),
    ("content-length is not a number", "hyper takes lists of equal numbers and any count of zeros in front"),
    ("chunk size out of range", "hyper takes any count of zeros in front"),
    ("bad byte in a chunk extension", "hyper takes controls in them"),
    ("chunk extension too long", "1 KiB in one chunk here, 16 KiB in all there"),
];

/// hyper's own limit, where ours is 128.
const HYPER_FIELDS: usize = 100;

fuzz_target!(|input: &[u8]| {
    let Some((&flags, rest)) = input.split_first() else { return };
    let head = flags & 1 == 1;
    let (cuts, response) = cuts(rest);
    let method = if head { Method::HEAD } else { Method::GET };
    let ours = receive(response, cuts, &method);
    let whole = receive(response, &[], &method);
    assert_eq!(essence(&ours), essence(&whole), "the split changed the answer");
    compare(&ours, by_hyper(response, cuts, head), response);
});

fn essence(seen: &Received) -> (Option<u16>, &[u8], Result<usize, bool>) {
    let end = seen.end.map(|_| seen.left).map_err(|fault| fault == Fault::Lost);
    (seen.status.map(|s| s.as_u16()), &seen.body, end)
}

fn compare(ours: &Received, hyper: Option<Answer>, response: &[u8]) {
    match (ours.end, hyper) {
        (Ok(_), Some(hyper)) => {
            assert_eq!((ours.status.map(|s| s.as_u16()), &ours.body), (Some(hyper.status), &hyper.body));
        }
        (Err(Fault::Malformed(rule)), Some(hyper)) => {
            assert!(
                STRICTER.iter().any(|(known, _)| *known == rule),
                "refused for {rule:?}, hyper saw {hyper:?}"
            );
        }
        (Err(fault), Some(hyper)) => panic!("{fault:?}, hyper saw {hyper:?}"),
        (Ok(_), None) => {
            let lines = response.iter().filter(|b| **b == b'\n').count();
            assert!(lines > HYPER_FIELDS, "taken, and refused by hyper: {ours:?}");
        }
        (Err(_), None) => {}
    }
}

//! What real engines answered, byte for byte: status, end-to-end headers and payload pass through, however the bytes
//! fall into writes. The files and how they came to be: `tests/fixtures/recordings/README.md`.

use std::collections::BTreeMap;

use tandem::testkit::engine::{RecordedRequest, Script, Step};
use tandem::testkit::fixtures::get;
use tandem::testkit::wire::split::Split;

use super::relay_rig::{Memory, Protocol, chat_h2, last_line, memory, plain};
use super::scale;

struct Recording {
    name: &'static str,
    wire: &'static [u8],
    outcome: &'static str,
}

macro_rules! recordings {
    ($($name:literal $outcome:literal,)*) => {
        &[$(Recording {
            name: $name,
            wire: include_bytes!(concat!("../../fixtures/recordings/", $name, ".http")),
            outcome: $outcome,
        },)*]
    };
}

const ALL: &[Recording] = recordings![
    "llama-cpp-chat" "ok",
    "llama-cpp-chat-stream" "ok",
    "sglang-chat" "ok",
    "sglang-chat-stream" "ok",
    "sglang-generate" "ok",
    "sglang-models" "ok",
    "sglang-not-found" "upstream_rejected",
    "vllm-bad-request" "upstream_rejected",
    "vllm-chat" "ok",
    "vllm-chat-stream" "ok",
    "vllm-error-in-stream" "upstream_error",
];

/// Fields that end at the engine's connection.
const HOP_BY_HOP: [&str; 3] = ["transfer-encoding", "connection", "keep-alive"];
/// Fields that the router adds or owns (`docs/request-rules.md`).
const OURS: [&str; 4] = ["x-request-id", "cache-control", "x-accel-buffering", "date"];

type Fields = BTreeMap<String, Vec<String>>;

/// A deliberately simple reading of a recording: status, fields, payload.
struct Expected {
    status: u16,
    fields: Fields,
    payload: Vec<u8>,
}

impl Recording {
    fn expected(&self) -> Expected {
        let end = memchr::memmem::find(self.wire, b"\r\n\r\n").unwrap();
        let (head, body) = (std::str::from_utf8(&self.wire[..end]).unwrap(), &self.wire[end + 4..]);
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap()[9..12].parse().unwrap();
        let mut fields = Fields::new();
        for line in lines {
            let (name, value) = line.split_once(':').unwrap();
            fields.entry(name.to_ascii_lowercase()).or_default().push(value.trim().to_owned());
        }
        let payload = if fields.contains_key("transfer-encoding") { dechunk(body) } else { body.to_vec() };
        Expected { status, fields, payload }
    }

    async fn assert_seen(&self, rig: &Memory<1>, protocol: Protocol) {
        let (status, mut fields, payload) = match protocol {
            Protocol::H1 => {
                let mut client = rig.h1().await;
                let answer = client.request(plain()).await.unwrap();
                assert!(answer.is_complete(), "{}", self.name);
                let mut fields = Fields::new();
                for (name, value) in &answer.head.headers.0 {
                    fields
                        .entry(name.to_ascii_lowercase())
                        .or_default()
                        .push(String::from_utf8(value.clone()).unwrap());
                }
                (answer.status(), fields, answer.body)
            }
            Protocol::H2 => {
                let (request, body) = chat_h2(false);
                let answer = rig.h2().await.request(request, body).await.unwrap();
                let mut fields = Fields::new();
                for (name, value) in &answer.headers {
                    fields.entry(name.to_string()).or_default().push(value.to_str().unwrap().to_owned());
                }
                (answer.status.as_u16(), fields, answer.body)
            }
        };
        let expected = self.expected();
        let name = self.name;
        assert_eq!(status, expected.status, "{name}");
        assert!(payload == expected.payload, "{name}: {:?}", String::from_utf8_lossy(&payload));
        // The framing is each connection's own.
        fields.remove("transfer-encoding");
        for (field, values) in &expected.fields {
            let passes = !HOP_BY_HOP.contains(&field.as_str());
            assert_eq!(fields.get(field), passes.then_some(values), "{name}: {field}");
        }
        let added = fields.keys().find(|f| !expected.fields.contains_key(*f) && !OURS.contains(&f.as_str()));
        assert_eq!(added, None, "{name}: a field of nobody");
        assert_eq!(last_line(&rig.router).0, self.outcome, "{name}");
    }
}

fn dechunk(mut wire: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    loop {
        let line = memchr::memmem::find(wire, b"\r\n").unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(&wire[..line]).unwrap(), 16).unwrap();
        wire = &wire[line + 2..];
        if size == 0 {
            assert_eq!(wire, b"\r\n");
            return payload;
        }
        payload.extend_from_slice(&wire[..size]);
        wire = &wire[size + 2..];
    }
}

/// A router in front of an engine that plays `wire` in the pieces of each split, one request each.
fn player(wire: &'static [u8], splits: &[Split]) -> Memory<1> {
    let answers = splits.iter().map(|split| vec![Step::write_split(wire, split.clone())]).collect();
    memory([Script::queue(answers)], |_| {})
}

#[tokio::test(start_paused = true)]
async fn recorded_answers_pass_byte_exact_over_both_protocols() {
    for recording in ALL {
        for protocol in super::relay_rig::BOTH {
            let rig = player(recording.wire, &[Split::Whole, Split::EveryByte]);
            recording.assert_seen(&rig, protocol).await;
            recording.assert_seen(&rig, protocol).await;
            rig.settle().await;
            assert_eq!(rig.engines[0].log.conns().len(), 1, "{}: the connection was kept", recording.name);
        }
    }
}

/// CI every 37th boundary, full every one.
#[tokio::test(start_paused = true)]
async fn recorded_answers_pass_split_at_every_boundary() {
    for recording in ALL {
        let step = scale(37, 1);
        let splits: Vec<Split> =
            (1..recording.wire.len()).step_by(step).map(|at| Split::At(vec![at])).collect();
        let rig = player(recording.wire, &splits);
        for _ in &splits {
            recording.assert_seen(&rig, Protocol::H1).await;
        }
        rig.settle().await;
    }
}

/// CI 5 seeds, full 300.
#[tokio::test(start_paused = true)]
async fn recorded_answers_pass_split_at_random() {
    for recording in ALL {
        let splits: Vec<Split> = (0..scale(5, 300)).map(|seed| Split::Random { seed, max: 90 }).collect();
        let rig = player(recording.wire, &splits);
        for n in 0..splits.len() {
            let protocol = if n % 2 == 0 { Protocol::H1 } else { Protocol::H2 };
            recording.assert_seen(&rig, protocol).await;
        }
        rig.settle().await;
    }
}

/// The usage that the engines state is what the counters say.
#[tokio::test(start_paused = true)]
async fn recorded_usage_is_read_in_every_dialect() {
    let stated = [
        ("llama-cpp-chat", 37, 16),
        ("llama-cpp-chat-stream", 37, 8),
        ("sglang-chat", 9, 1),
        ("sglang-chat-stream", 9, 3),
        ("vllm-chat", 574, 1),
        ("vllm-chat-stream", 574, 1),
    ];
    for (name, prompt, completion) in stated {
        let recording = ALL.iter().find(|r| r.name == name).unwrap();
        let rig = player(recording.wire, &[Split::Random { seed: 3, max: 40 }]);
        recording.assert_seen(&rig, Protocol::H1).await;
        let tokens = |kind| super::relay_rig::count(&rig.router, "tandem_tokens_total", &[("kind", kind)]);
        assert_eq!((tokens("prompt"), tokens("completion")), (prompt, completion), "{name}");
        rig.settle().await;
    }
}

/// The same for a route without a request body.
#[tokio::test(start_paused = true)]
async fn a_recorded_model_list_passes_byte_exact() {
    let recording = ALL.iter().find(|r| r.name == "sglang-models").unwrap();
    let rig = memory([Script::new(|_: &RecordedRequest| vec![Step::write(recording.wire)])], |_| {});
    let mut client = rig.h1().await;
    let answer = client.request(get("/v1/models")).await.unwrap();
    assert_eq!(answer.body, recording.expected().payload);
    client.close();
    rig.settle().await;
}

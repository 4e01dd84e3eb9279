//! What the observer sees, however the answer is split, held against the strict event parser of the testkit.

use super::*;
use crate::testkit::sse;
use crate::types::clock;
use proptest::prelude::*;

fn events() -> Observer {
    Observer::new(Some(b"text/event-stream; charset=utf-8"), false)
}

const USAGE_EVENT: &str =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}\n\n";

#[test]
fn an_odd_field_hides_none_of_the_others() {
    for (event, fault) in [
        (r#"{"error":{"code":400},"message":"a text","choices":"none"}"#, Some(StreamFault::Error)),
        (r#"{"choices":[{"finish_reason":"abort"}],"response":7,"message":[]}"#, Some(StreamFault::Abort)),
        (r#"{"meta_info":{"finish_reason":{"type":"abort"}},"choices":{}}"#, Some(StreamFault::Abort)),
        (r#"{"choices":[{"finish_reason":{"abort":"abort"}}],"error":null}"#, None),
    ] {
        let mut seen = events();
        seen.see(format!("data: {event}\n\n").as_bytes(), true);
        assert_eq!(seen.fault, fault, "{event}");
    }
    let mut seen = events();
    seen.see(b"data: {\"choices\":7,\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}\n\n", true);
    assert_eq!(seen.usage, Some(Usage { prompt: 9, completion: 3 }));
}

#[test]
fn usage_is_read_once_however_the_stream_is_split() {
    let text = format!("data: {{\"choices\":[{{\"delta\":{{}}}}]}}\n\n{USAGE_EVENT}data: [DONE]\n\n");
    for step in 1..text.len() {
        let mut seen = events();
        let count: u64 = text.as_bytes().chunks(step).map(|part| seen.see(part, false)).sum();
        assert_eq!(count, 3, "split every {step}");
        assert_eq!(seen.usage, Some(Usage { prompt: 9, completion: 3 }), "split every {step}");
        assert!(!seen.mid_event());
    }
}

#[test]
fn an_error_event_is_seen_and_its_text_inside_content_is_not() {
    let mut seen = events();
    seen.see(b"data: {\"choices\":[{\"delta\":{\"content\":\"\\\"error\\\": \\\"abort\\\"\"}}]}\n\n", false);
    assert_eq!(seen.fault, None);
    seen.see(b"data: {\"error\":{\"message\":\"x\",\"code\":500}}\n\ndata: [DONE]\n\n", false);
    assert_eq!(seen.fault, Some(StreamFault::Error));
}

#[test]
fn only_a_whole_media_type_is_looked_into() {
    for (kind, seen) in [
        ("text/event-stream", Kind::Events),
        ("Text/Event-Stream ; charset=utf-8", Kind::Events),
        ("text/event-streamx", Kind::Opaque),
        ("application/json;charset=utf-8", Kind::Json),
        ("application/vnd.x+json", Kind::Json),
        ("application/jsonl", Kind::Opaque),
        ("", Kind::Opaque),
    ] {
        assert_eq!(Observer::new(Some(kind.as_bytes()), false).kind, seen, "{kind}");
        assert_eq!(Observer::new(Some(kind.as_bytes()), true).kind, Kind::Opaque);
    }
}

/// As the Responses API sends them.
#[test]
fn a_failed_response_is_a_fault() {
    for (event, fault) in [
        (r#"{"type":"error","code":"server_error","message":"x","param":null,"sequence_number":3}"#, true),
        (r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"x"}}}"#, true),
        (r#"{"type":"response.created","response":{"status":"in_progress","error":null}}"#, false),
        (r#"{"type":"response.output_text.delta","delta":"\"error\"","item":{"type":"error"}}"#, false),
    ] {
        let mut seen = events();
        seen.see(format!("event: x\ndata: {event}\n\n").as_bytes(), false);
        assert_eq!(seen.fault.is_some(), fault, "{event}");
    }
}

/// Half a megabyte that would take minutes if each level were read to its end.
#[test]
fn usage_nested_in_itself_is_read_in_linear_time() {
    let deep = "{\"usage\":".repeat(50_000) + "1" + &"}".repeat(50_000);
    let started = clock::now();
    let mut seen = Observer::new(Some(b"application/json"), false);
    seen.see(deep.as_bytes(), true);
    assert!(clock::now() - started < std::time::Duration::from_secs(5));
    let mut seen = Observer::new(Some(b"application/json"), false);
    let many = "{\"usage\":{\"prompt_tokens\":1}},".repeat(100);
    seen.see(format!("[{many}{{\"usage\":{{\"prompt_tokens\":2}}}}]").as_bytes(), true);
    assert_eq!(seen.usage.map(|u| u.prompt), Some(2), "the last one counts");
}

#[test]
fn a_null_error_is_none() {
    let mut seen = events();
    seen.see(b"data: {\"error\":null,\"choices\":null}\n\n", false);
    assert_eq!(seen.fault, None);
}

#[test]
fn an_aborted_generation_is_a_fault_in_both_dialects() {
    for line in [
        &b"data: {\"choices\":[{\"finish_reason\":\"abort\"}]}\n\n"[..],
        b"data: {\"text\":\"\",\"meta_info\":{\"finish_reason\":{\"type\":\"abort\"}}}\n\n",
    ] {
        let mut seen = events();
        seen.see(line, false);
        assert_eq!(seen.fault, Some(StreamFault::Abort));
    }
}

#[test]
fn hostile_usage_is_counted_and_harmless() {
    for usage in ["\"oops\"", "{\"prompt_tokens\":\"1024\"}", "1e30", "{\"prompt_tokens\":-4}", "[]", "{}"] {
        let mut seen = events();
        seen.see(format!("data: {{\"usage\":{usage}}}\n\n").as_bytes(), false);
        assert_eq!((seen.usage, seen.unreadable), (None, 1), "{usage}");
        let mut seen = Observer::new(Some(b"application/json"), false);
        seen.see(format!("{{\"usage\":{usage}}}").as_bytes(), false);
        assert_eq!((seen.usage, seen.unreadable), (None, 1), "{usage}");
    }
}

#[test]
fn a_huge_line_is_skipped_and_the_next_one_is_seen() {
    let mut seen = events();
    seen.see(b"data: \"", false);
    for _ in 0..64 {
        seen.see(&[b'x'; 16 * 1024], false);
        assert!(seen.carry.len() <= MAX_LINE);
    }
    seen.see(b"\"\n\n", false);
    seen.see(USAGE_EVENT.as_bytes(), false);
    assert!(seen.usage.is_some());
}

#[test]
fn json_usage_is_found_across_frames() {
    let text = "{\"id\":\"x\",\"usage\": {\"prompt_tokens\":7,\"completion_tokens\":2},\"kv\":null}";
    for step in 1..text.len() {
        let mut seen = Observer::new(Some(b"application/json"), false);
        for part in text.as_bytes().chunks(step) {
            seen.see(part, false);
        }
        assert_eq!(seen.usage, Some(Usage { prompt: 7, completion: 2 }), "split every {step}");
    }
}

#[test]
fn a_line_of_64_kib_is_seen_and_a_longer_one_is_not_however_it_comes() {
    for (pad, expected) in [(0, true), (1, false)] {
        let mut line = USAGE_EVENT.trim_end().as_bytes().to_vec();
        line.resize(MAX_LINE + pad, b' ');
        line.extend_from_slice(b"\n\n");
        for step in [line.len(), 50_000, 1000] {
            let mut seen = events();
            line.chunks(step).for_each(|part| {
                seen.see(part, false);
            });
            assert_eq!(seen.usage.is_some(), expected, "{} bytes, split every {step}", line.len());
        }
    }
}

#[test]
fn in_json_a_later_word_does_not_hide_usage_or_abort() {
    let text = r#"{"a":"abort","choices":[{"finish_reason":"abort"}],"usage":{"prompt_tokens":7,"completion_tokens":2},"object":"usage"}"#;
    for step in 1..=text.len() {
        let seen = json(text.as_bytes().chunks(step));
        assert_eq!(
            (seen.usage, seen.fault),
            (Some(Usage { prompt: 7, completion: 2 }), Some(StreamFault::Abort))
        );
    }
}

fn json<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Observer {
    let mut seen = Observer::new(Some(b"application/json"), false);
    parts.for_each(|part| {
        seen.see(part, false);
    });
    seen
}

/// Pieces of random lengths.
fn split<'a>(bytes: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let (mut rest, mut parts) = (bytes, Vec::new());
    for &n in lengths {
        let (part, after) = rest.split_at(n.min(rest.len()));
        parts.push(part);
        rest = after;
    }
    parts.push(rest);
    parts
}

fn lengths() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        prop::collection::vec(0..8usize, 0..400),
        prop::collection::vec(0..200usize, 0..20),
        Just(vec![1; 4000])
    ]
}

/// Text as it comes in answers, with the needles in it.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z\u{e9}\u{1f30d}\"\\\\\n\r :,{}]{0,20}",
        prop::sample::select(vec![
            "\"usage\"",
            "\"error\":1",
            "abort",
            "data:",
            "\n\ndata: x",
            "usage",
            "error"
        ])
        .prop_map(str::to_owned),
    ]
}

fn event() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::json;
    prop_oneof![
        4 => text().prop_map(|t| json!({"choices": [{"delta": {"content": t}, "finish_reason": null}]})),
        1 => text().prop_map(|t| json!({"choices": [], "error": null, "text": t, "note": "abort"})),
        2 => (0..9u32, 0..9u32).prop_map(|(p, c)| json!({"usage": {"prompt_tokens": p, "completion_tokens": c}})),
        1 => (0..9u32, 0..9u32).prop_map(|(p, c)| json!({"response": {"usage": {"input_tokens": p, "output_tokens": c}}})),
        1 => Just(json!({"usage": null})),
        1 => text().prop_map(|t| json!({"error": {"message": t, "code": 500}})),
        1 => text().prop_map(|t| json!({"type": "error", "code": null, "message": t})),
        1 => text().prop_map(|t| json!({"type": "response.failed", "response": {"error": {"message": t}}})),
        1 => text().prop_map(|t| json!({"type": "response.completed", "response": {"error": null, "id": t}})),
        1 => Just(json!({"choices": [{"finish_reason": "abort"}]})),
        1 => Just(json!({"text": "", "meta_info": {"finish_reason": {"type": "abort"}}})),
    ]
}

/// A stream of whole events, with names, comments and each kind of line end.
fn stream() -> impl Strategy<Value = String> {
    let end = || prop::sample::select(vec!["\n", "\r\n", "\r"]);
    let block = prop_oneof![
        6 => (event(), prop::bool::ANY, prop::bool::ANY).prop_map(|(e, named, space)| {
            let name = if named { "event: message\n" } else { "" };
            format!("{name}data:{}{e}\n\n", if space { " " } else { "" })
        }),
        1 => Just(": data: comment \"usage\"\n\n".to_owned()),
        1 => Just("id: data:\ndata: [DONE]\n\n".to_owned()),
        1 => Just("dat: x\nxdata: \"error\"\n\n".to_owned()),
    ];
    prop::collection::vec((block, end()), 0..12)
        .prop_map(|blocks| blocks.into_iter().map(|(block, end)| block.replace('\n', end)).collect())
}

/// What the events of a stream say, by parsing every one of them.
fn oracle(stream: &str) -> (u64, Option<Usage>, Option<StreamFault>) {
    let events = sse::parse(stream.as_bytes());
    let (mut usage, mut fault) = (None, None);
    for event in events.iter().filter(|event| !event.is_done()) {
        let event = event.json();
        let failed = event["type"] == "error" || event["type"] == "response.failed";
        if failed || !event["error"].is_null() {
            fault = Some(StreamFault::Error);
        }
        let abort = &event["choices"][0]["finish_reason"] == "abort"
            || &event["meta_info"]["finish_reason"]["type"] == "abort";
        if abort {
            fault.get_or_insert(StreamFault::Abort);
        }
        for found in [&event["usage"], &event["response"]["usage"]] {
            let count = |a: &str, b: &str| found[a].as_u64().or(found[b].as_u64());
            if let Some(prompt) = count("prompt_tokens", "input_tokens") {
                usage = Some(Usage {
                    prompt,
                    completion: count("completion_tokens", "output_tokens").unwrap_or(0),
                });
            }
        }
    }
    (events.len() as u64, usage, fault)
}

proptest! {
    #[test]
    fn any_split_of_a_stream_is_seen_as_a_strict_parser_sees_the_whole(text in stream(), lengths in lengths()) {
        let mut seen = events();
        let count: u64 = split(text.as_bytes(), &lengths).into_iter().map(|part| seen.see(part, false)).sum();
        prop_assert_eq!((count, seen.usage, seen.fault), oracle(&text), "{}", text.escape_debug());
        prop_assert_eq!((seen.unreadable, seen.mid_event()), (0, false));
    }

    /// Also what is no event stream, or is cut anywhere.
    #[test]
    fn any_split_of_any_bytes_is_seen_as_the_whole(
        text in stream(),
        cut in 0..2000usize,
        noise in prop::collection::vec((0..2000usize, prop::sample::select(b"\n\r\0dat:\"{}".to_vec())), 0..6),
        lengths in lengths(),
    ) {
        let mut bytes = text.into_bytes();
        for (at, byte) in noise {
            let at = at.min(bytes.len());
            bytes.insert(at, byte);
        }
        bytes.truncate(cut);
        let mut whole = events();
        let count = whole.see(&bytes, true);
        let mut seen = events();
        let parts: u64 = split(&bytes, &lengths).into_iter().map(|part| seen.see(part, false)).sum();
        prop_assert_eq!(parts, count);
        prop_assert_eq!((seen.usage, seen.fault, seen.unreadable), (whole.usage, whole.fault, whole.unreadable));
        prop_assert_eq!(seen.mid_event(), whole.mid_event());
    }

    #[test]
    fn any_split_of_a_json_answer_is_seen_as_the_whole(answer in event(), pad in text(), lengths in lengths()) {
        let text = serde_json::json!({"a": pad, "b": answer, "c": pad}).to_string();
        let whole = json([text.as_bytes()].into_iter());
        let seen = json(split(text.as_bytes(), &lengths).into_iter());
        prop_assert_eq!((seen.usage, seen.fault, seen.unreadable > 0), (whole.usage, whole.fault, whole.unreadable > 0));
        prop_assert_eq!(whole.usage.is_some(), text.contains("_tokens"));
    }
}

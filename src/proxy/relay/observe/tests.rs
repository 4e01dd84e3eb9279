use super::*;

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
        assert_eq!(seen.usage, Some(Usage { prompt: 9, completion: 3 }), "split every {step}");
        assert!(step < 5 || count <= 3);
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

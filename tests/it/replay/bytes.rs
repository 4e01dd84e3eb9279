//! Bytes are sacred: odd text and odd numbers reach the engine as the client wrote them, and the engine's reach the client
//! (B127 B128 B130 B131).

use bytes::Bytes;
use serde_json::json;
use tandem::testkit::engine::openai::{content_event, event, sse_head};
use tandem::testkit::engine::{Response, Script, Step};
use tandem::testkit::fixtures::{post, post_chat};
use tandem::testkit::memory::MemoryNet;
use tandem::testkit::router::{TestRouter, config};
use tandem::testkit::wire::chunked::{LAST_CHUNK, chunk};

use super::bytes_rig::{Rig, hi};
use super::scale;

/// Sizes at which somebody cuts a preview, a prefix or a log line.
const CUTS: [usize; 12] = [12, 64, 100, 128, 200, 256, 500, 512, 1024, 2048, 8192, 65536];

/// CI: 12 sizes × 5 characters × 5 offsets in model, prompt and path. Full: 40 offsets.
#[tokio::test(start_paused = true)]
async fn b127_no_cut_falls_inside_a_character() {
    let rig = Rig::new(hi());
    let near = scale(2, 20);
    for cut in CUTS {
        for odd in ["数", "─", "\u{200c}", "👩\u{200d}👩\u{200d}👧", "e\u{301}"] {
            for offset in cut.saturating_sub(near)..=cut + near {
                let text = "a".repeat(offset) + &odd.repeat(8);
                let (model, prompt) =
                    if cut > 2048 { ("m", text.as_str()) } else { (text.as_str(), text.as_str()) };
                rig.passes(
                    json!({"model": model, "messages": [{"role": "user", "content": prompt}]}).to_string(),
                )
                .await;
            }
        }
    }
    rig.done().await;
}

/// The same in what is refused: the model name in an error, the path of a 404.
#[tokio::test(start_paused = true)]
async fn b127_errors_that_quote_the_client_are_cut_at_characters() {
    let net = MemoryNet::new();
    let mut config = config(&["e1:80".to_owned()]);
    config.services[0].models = vec!["known".to_owned()];
    let router = TestRouter::in_memory(config, &net);
    for offset in 120..=136 {
        let model = "a".repeat(offset) + "数👩\u{200d}👧─";
        let mut client = router.memory_client().await;
        let answer =
            client.request(&post_chat(json!({"model": model, "messages": []}).to_string())).await.unwrap();
        assert_eq!((answer.status(), &answer.json()["error"]["code"]), (404, &json!("model_not_found")));
        let path = format!("/v1/{}%E6%95%B0", "a".repeat(offset));
        let answer = client.request(&post(&path, &[], "{}")).await.unwrap();
        assert_eq!((answer.status(), &answer.json()["error"]["code"]), (404, &json!("unknown_route")));
    }
    // Not a URI for us: refused, whoever says so, and nothing breaks.
    let mut client = router.memory_client().await;
    let answer = client.request(&post("/v1/模型", &[], "{}")).await.unwrap();
    assert!((400..=404).contains(&answer.status()), "{}", answer.status());
    client.close();
    let lines = router.access_lines();
    assert!(lines.iter().filter_map(|l| l["model"].as_str()).all(|m| m.len() <= 128 && m.starts_with("aaa")));
    router.assert_invariants(&[]).await;
}

/// A model name is data: it is in no header, so it can break none, and no engine is blamed for it.
#[tokio::test(start_paused = true)]
async fn b128_a_model_name_never_becomes_a_header() {
    let rig = Rig::new(hi());
    for model in [
        "模型-β [x]".to_owned(),
        "a\r\nx-evil: 1".to_owned(),
        "\u{0}\u{7f}\u{85}\u{2028}".to_owned(),
        "x".repeat(9000),
    ] {
        let answer = rig.passes(json!({"model": model, "messages": []}).to_string()).await;
        assert_eq!(answer.header("x-evil"), None);
        let head = String::from_utf8(answer.head.raw.clone()).unwrap();
        assert!(head.is_ascii() && !head.contains("evil") && head.len() < 1000, "{head}");
    }
    for request in rig.engine.log.requests() {
        assert!(request.head.is_ascii());
        assert_eq!(request.headers.get("x-evil"), None);
    }
    assert!(!rig.router.endpoints()[0].ejection.is_ejected());
    // One line each, whatever the name holds.
    let text = rig.router.access_text();
    assert_eq!(text.lines().count(), 4);
    assert!(!text.contains('\u{2028}') && !text.contains('\u{85}') && !text.contains('\u{7f}'));
    rig.done().await;
}

#[tokio::test(start_paused = true)]
async fn b130_surrogates_nulls_and_normal_forms_are_not_touched() {
    let rig = Rig::new(hi());
    for content in [
        r"\ud83d",
        r"\udc00a",
        r"\ud83d\ud83d\ude00",
        r"\u0000",
        r"\uD83D\uDE00 \/ \b\f",
        "é e\u{301} \u{212b} \u{f900} \u{fb01}",
        "\u{feff}\u{200c}\u{202e}\u{10ffff}",
    ] {
        rig.passes(format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"{content}"}}],"x":"{content}"}}"#
        ))
        .await;
    }
    // Where it is a name that the router must understand, it is understood or refused, never changed.
    let lone = rig.send(r#"{"model":"m\ud83d","messages":[]}"#).await;
    assert!(lone.status() == 400 || lone.status() == 200);
    let sent = rig.engine.log.requests();
    assert!(sent.iter().all(|r| !String::from_utf8_lossy(&r.body).contains('\u{fffd}')));
    rig.done().await;
}

#[tokio::test(start_paused = true)]
async fn b130_invalid_utf8_is_400_and_reaches_no_engine() {
    let rig = Rig::new(hi());
    for bad in [&b"\xff"[..], b"\xc3", b"\xed\xa0\xbd", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xf5\x80\x80\x80"] {
        let body = [br#"{"model":"m","messages":[{"content":""#, bad, br#""}]}"#].concat();
        let answer = rig.send(&body).await;
        assert_eq!(
            (answer.status(), &answer.json()["error"]["code"]),
            (400, &json!("invalid_json")),
            "{bad:?}"
        );
    }
    assert_eq!(rig.engine.log.request_count(), 0);
    rig.done().await;
}

/// Byte tokens of an engine's logprobs, in a document and in a stream, are the engine's bytes.
#[tokio::test(start_paused = true)]
async fn b130_the_engines_own_odd_text_passes_untouched() {
    let body = r#"{ "choices":[{"logprobs":{"content":[{"token":"\ud83d","bytes":[240,159]},{"token":"\u00e9"}]}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2} }"#;
    let rig = Rig::new(Script::always(Response::json(200, body)));
    assert_eq!(rig.passes(r#"{"model":"m"}"#).await.body, body.as_bytes());
    let events =
        [event(body.replace('\n', " ").as_str()), event("{\"a\":\"\u{2028}\"}"), content_event("\u{0}é")];
    let mut steps = vec![Step::Write(sse_head())];
    steps.extend(events.iter().map(|e| Step::Write(chunk(e.as_bytes()))));
    steps.push(Step::write(LAST_CHUNK));
    rig.engine.set_script(Script::always(steps));
    assert_eq!(rig.passes(r#"{"model":"m","stream":true}"#).await.text(), events.concat());
    // Not even text: an answer that says it is JSON and is not.
    let garbage = Bytes::from_static(b"{\"a\":\"\xff\xfe\x00\"}");
    rig.engine.set_script(Script::always(Response::json(200, garbage.clone())));
    assert_eq!(rig.passes(r#"{"model":"m"}"#).await.body, garbage);
    rig.done().await;
}

const NUMBERS: [&str; 20] = [
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "-9223372036854775809",
    "1e400",
    "-1e400",
    "1E+2",
    "1.0",
    "1.00e0",
    "-0",
    "-0.0",
    "0.1e-400",
    "123456789012345678901234567890123456789012345678901234567890",
    "0.123456789012345678901234567890123456789012345678901234567890",
    "5e-324",
    "1e0000000000000000000000000000000000000001",
    "3.141592653589793238462643383279",
];

#[tokio::test(start_paused = true)]
async fn b131_every_digit_arrives() {
    let rig = Rig::new(hi());
    for n in NUMBERS {
        rig.passes(format!(
            r#"{{"model":"m","seed":{n},"metadata":{{"x":{n}}},"messages":[],"tools":[{{"type":"function","function":{{"name":"f","parameters":{{"minimum":{n},"enum":[{n},{n}]}}}}}}],"max_tokens":{n},"n":{n},"priority":{n}}}"#
        ))
        .await;
    }
    rig.done().await;
}

#[tokio::test(start_paused = true)]
async fn b131_the_engines_digits_arrive_too() {
    let list = NUMBERS.join(",");
    let body = format!(r#"{{"choices":[],"created":{},"x":[{list}]}}"#, NUMBERS[15]);
    let rig = Rig::new(Script::always(Response::json(200, body.clone())));
    assert_eq!(rig.passes(r#"{"model":"m"}"#).await.text(), body);
    rig.done().await;
}

//! The relay of event streams: bytes pass as they came, and a stream that failed never looks whole.

use bytes::Bytes;
use serde_json::json;
use tandem::testkit::engine::openai::{ChatStream, content_event, event, sse_head};
use tandem::testkit::engine::{IntoSteps, Response, Script, Step};
use tandem::testkit::sse::{chat_text, comments};
use tandem::testkit::wire::chunked::{LAST_CHUNK, chunk};
use tandem::testkit::wire::split::Split;

use super::relay_rig::{BOTH, Seen, last_line, legs, memory, ms, plain, secs, streamed, tcp};
use super::{relay_rig, scale};

/// A stream whose chunks are cut where `chunks` says, whatever the events in it.
fn rechunked(payload: &str, chunks: &Split) -> Bytes {
    let pieces = chunks.pieces(payload.len());
    let mut wire: Vec<Bytes> = pieces.into_iter().map(|piece| chunk(&payload.as_bytes()[piece])).collect();
    wire.push(Bytes::from_static(LAST_CHUNK));
    wire.concat().into()
}

fn answer_with(payload: &str, chunks: &Split, writes: Split) -> Vec<Step> {
    vec![Step::Write(sse_head()), Step::write_split(rechunked(payload, chunks), writes)]
}

const TEXT: &str = "秋水长天 🌍 e\u{301} \u{200c}";

fn unicode_payload() -> String {
    let arguments = json!({"city": TEXT}).to_string();
    let call = json!({"choices": [{"index": 0, "finish_reason": null, "delta": {"tool_calls":
        [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}]}}]});
    let mut payload: String = TEXT.chars().map(|c| content_event(&c.to_string())).collect();
    payload += &content_event(TEXT);
    payload += &event(&call.to_string());
    payload + &event("[DONE]")
}

/// CI 60 seeds, full 1000, besides one byte per write and one byte per chunk.
#[tokio::test(start_paused = true)]
async fn b14_a_character_cut_by_any_boundary_arrives_whole() {
    let payload = unicode_payload();
    let mut cuts =
        vec![(Split::Every(7), Split::EveryByte), (Split::EveryByte, Split::Random { seed: 1, max: 9 })];
    for seed in 0..scale(60, 1000) {
        cuts.push((Split::Random { seed, max: 40 }, Split::Random { seed: !seed, max: 60 }));
    }
    let answers = cuts.iter().map(|(chunks, writes)| answer_with(&payload, chunks, writes.clone())).collect();
    let rig = memory([Script::queue(answers)], |_| {});
    let mut client = rig.h1().await;
    for cut in &cuts {
        let answer = client.request(streamed()).await.unwrap();
        assert_eq!(answer.text(), payload, "{cut:?}");
        let events = answer.events();
        assert_eq!(chat_text(&events), TEXT.repeat(2));
        let call = events[events.len() - 2].json();
        let arguments =
            call["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
        assert_eq!(arguments, json!({"city": TEXT}).to_string());
    }
    client.close();
    rig.settle().await;
}

#[tokio::test(start_paused = true)]
async fn b15_comments_pass_as_comments_at_the_engines_pace() {
    let comment = ": PROCESSING\n\n";
    let mut steps = vec![Step::Write(sse_head())];
    let mut sent = String::new();
    let mut write = |text: &str, steps: &mut Vec<Step>| {
        steps.push(Step::Sleep(ms(200)));
        steps.push(Step::Write(chunk(text.as_bytes())));
        sent += text;
    };
    for _ in 0..10 {
        write(comment, &mut steps);
    }
    for n in 0..3 {
        write(&content_event(&format!("t{n}")), &mut steps);
        write(comment, &mut steps);
    }
    write(&event("[DONE]"), &mut steps);
    steps.push(Step::write(LAST_CHUNK));
    let rig = memory([Script::always(steps)], |_| {});
    for protocol in BOTH {
        let seen = rig.stream(protocol).await;
        assert_eq!(String::from_utf8_lossy(&seen.body), sent, "{protocol:?}");
        assert_eq!(comments(&seen.body).len(), 13);
        assert!(seen.events().iter().all(|e| !e.data.starts_with(':')));
    }
    let mut client = rig.h1().await;
    let started = tandem::types::clock::now();
    client.send(streamed()).await.unwrap();
    client.read_until(b": PROCESSING").await.unwrap();
    assert_eq!(
        (tandem::types::clock::now() - started).as_millis(),
        200,
        "the first comment is not held back"
    );
    client.read_until(b"0\r\n\r\n").await.unwrap();
    client.close();
    rig.settle().await;
}

#[tokio::test(start_paused = true)]
async fn b17_odd_heartbeats_pass_unchanged_and_none_is_ever_made() {
    let odd = ["data:\n\n", "retry: 3000\n\n", "event: ping\n\n", ":\n\n", "id: 7\n\n", "data\n\n"];
    let mut sent = odd.concat() + &content_event("x");
    sent += &odd.concat();
    sent += &event("[DONE]");
    let silent = vec![Step::Write(sse_head()), Step::Sleep(secs(100)), Step::Write(chunk(sent.as_bytes()))];
    let script = Script::always([silent, vec![Step::write(LAST_CHUNK)]].concat());
    let rig = memory([script], |_| {});
    for protocol in BOTH {
        let seen = rig.stream(protocol).await;
        // A hundred silent seconds: had the router filled them, its bytes would be here.
        assert_eq!(String::from_utf8_lossy(&seen.body), sent, "{protocol:?}");
        assert!(seen.complete);
        assert_eq!(last_line(&rig.router).0, "ok");
    }
    assert_eq!(relay_rig::count(&rig.router, "tandem_usage_unreadable_total", &[]), 0);
    rig.settle().await;
}

#[tokio::test(start_paused = true)]
async fn b18_usage_is_counted_once_wherever_the_cut_is() {
    let events = ChatStream::new(3).usage().events();
    let (done, before) = events.split_last().unwrap();
    let (usage, before) = before.split_last().unwrap();
    let start = || vec![Step::Write(sse_head()), Step::Write(chunk(before.concat().as_bytes()))];
    let write = |text: &str| Step::Write(chunk(text.as_bytes()));
    let gap = Step::Sleep(ms(50));
    let whole = [usage.as_str(), done].concat();
    let mut tails = vec![
        vec![write(usage), gap.clone(), write(done)],
        vec![write(&whole)],
        vec![write(&(usage.clone() + "data: [DO")), gap.clone(), write("NE]\n\n")],
    ];
    for at in (1..usage.len()).step_by(scale(7, 1)) {
        tails.push(vec![write(&usage[..at]), gap.clone(), write(&usage[at..]), write(done)]);
    }
    let answers: Vec<Vec<Step>> =
        tails.iter().map(|tail| [start(), tail.clone(), vec![Step::write(LAST_CHUNK)]].concat()).collect();
    let n = answers.len() as u64;
    let rig = memory([Script::queue(answers)], |_| {});
    let mut client = rig.h1().await;
    for _ in 0..n {
        let answer = client.request(streamed()).await.unwrap();
        assert_eq!(answer.text(), events.concat());
    }
    client.close();
    rig.settle().await;
    for (kind, each) in [("prompt", 3), ("completion", 5)] {
        assert_eq!(
            relay_rig::count(&rig.router, "tandem_tokens_total", &[("kind", kind)]),
            each * n,
            "{kind}"
        );
    }
}

/// A reset is the kernel's business, so this runs on TCP.
#[tokio::test]
async fn b20_a_reset_inside_a_stream_is_never_a_tidy_end() {
    for events in [0, 40] {
        let cut = ChatStream::new(events).then(vec![Step::Sleep(ms(5)), Step::Reset]);
        let (payload, script) = (cut.payload(), Script::always(cut.into_steps()));
        let ([engine], router) = tcp([script], |_| {}).await;
        let mut h1 = router.client().await;
        let mut h2 = router.h2_client().await;
        for seen in [Seen::h1(&h1.request(streamed()).await.unwrap()), Seen::h2(&mut h2).await] {
            seen.assert_failed("upstream_lost");
            assert!(seen.body.starts_with(payload.as_bytes()), "what the engine sent came through");
            assert_eq!(seen.events().len(), events + 2);
        }
        h1.close();
        h2.abort();
        router.assert_invariants(&[&engine]).await;
        for line in router.access_lines() {
            assert_eq!(
                (&line["outcome"], &line["error"]),
                (&"upstream_error".into(), &"upstream_lost".into())
            );
            assert_eq!(line["status"], 200);
        }
        assert_eq!(legs(&router, "error"), 2);
    }
}

/// Every way in which a stream can fail has the same shape on both protocols.
#[tokio::test(start_paused = true)]
async fn b22_every_failed_stream_ends_with_one_error_event_and_an_aborted_transfer() {
    let close_framed = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let with_length = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 5000\r\n\r\n";
    let two = ChatStream::new(2).events()[..3].concat();
    let chunked = |tail: Vec<Step>| ChatStream::new(2).then(tail).into_steps();
    let raw = |head: &str, tail: Step| vec![Step::write(head.to_owned() + &two), Step::Sleep(ms(1)), tail];
    let (lost, slow) = (("upstream_lost", "error"), ("upstream_timeout", "timeout"));
    let cases = [
        (chunked(vec![Step::Sleep(ms(1)), Step::Close]), lost, "upstream_error"),
        (chunked(vec![Step::Sleep(ms(1)), Step::Reset]), lost, "upstream_error"),
        (chunked(vec![Step::write("40\r\ndata: {\"par"), Step::Close]), lost, "upstream_error"),
        (chunked(vec![Step::Stall]), slow, "upstream_timeout"),
        (
            chunked(vec![Step::write("zz\r\n"), Step::Stall]),
            ("upstream_malformed", "error"),
            "upstream_error",
        ),
        (raw(with_length, Step::Close), lost, "upstream_error"),
        (raw(with_length, Step::Stall), slow, "upstream_timeout"),
        (raw(close_framed, Step::Reset), lost, "upstream_error"),
        (raw(close_framed, Step::Stall), slow, "upstream_timeout"),
    ];
    for (steps, (code, leg), outcome) in cases {
        let rig = memory([Script::always(steps)], |config| config.timeouts.idle = Some(secs(5)));
        for protocol in BOTH {
            let seen = rig.stream(protocol).await;
            assert!(seen.body.starts_with(two.as_bytes()), "{code} {protocol:?} {seen:?}");
            seen.assert_failed(code);
            assert_eq!(last_line(&rig.router), (outcome.to_owned(), code.to_owned()), "{protocol:?}");
        }
        assert_eq!(legs(&rig.router, leg), 2);
        rig.settle().await;
        assert_eq!(rig.router.endpoints()[0].pool.len(), 0, "a broken connection is not kept");
    }
}

/// There is no event to send in a JSON answer: the transfer is aborted and nothing is added to it.
#[tokio::test(start_paused = true)]
async fn b22_a_failed_json_answer_is_cut_without_a_word() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"id\":";
    let chunked = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n6\r\n{\"id\":\r\n";
    for start in [head, chunked] {
        let rig = memory([Script::always(vec![Step::write(start), Step::Sleep(ms(1)), Step::Close])], |_| {});
        let mut client = rig.h1().await;
        let seen = Seen::h1(&client.request(plain()).await.unwrap());
        assert_eq!(String::from_utf8_lossy(&seen.body), "{\"id\":");
        assert!(seen.aborted);
        let seen = rig.stream(relay_rig::Protocol::H2).await;
        assert_eq!(String::from_utf8_lossy(&seen.body), "{\"id\":");
        assert!(seen.aborted && !seen.complete);
        client.close();
        rig.settle().await;
        assert_eq!(legs(&rig.router, "error"), 2);
        assert_eq!(last_line(&rig.router).0, "upstream_error");
    }
}

/// An engine's own error event, with or without `[DONE]` behind it, passes untouched; only the books say what it was.
#[tokio::test(start_paused = true)]
async fn an_engines_error_event_passes_untouched_and_is_no_success() {
    let error = event(&json!({"error": {"message": "kv pull failed", "type": "x", "code": 500}}).to_string());
    let abort = event(&json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "abort"}]}).to_string());
    for tail in [error.clone(), error + &event("[DONE]"), abort + &event("[DONE]")] {
        let payload = ChatStream::new(2).events()[..3].concat() + &tail;
        let rig = memory([Script::always(answer_with(&payload, &Split::Whole, Split::Every(11)))], |_| {});
        for protocol in BOTH {
            let seen = rig.stream(protocol).await;
            assert_eq!(String::from_utf8_lossy(&seen.body), payload);
            assert!(seen.complete, "{protocol:?}");
            let line = ("upstream_error".to_owned(), "upstream_in_stream_error".to_owned());
            assert_eq!(last_line(&rig.router), line);
        }
        assert_eq!((legs(&rig.router, "error"), legs(&rig.router, "ok")), (2, 0));
        rig.settle().await;
    }
}

/// CI up to 1 MiB, full also 8 MiB.
#[tokio::test(start_paused = true)]
async fn b23_a_line_of_any_length_streams_through() {
    for size in [131_073, 1 << 20, 8 << 20].into_iter().take(scale(2, 3)) {
        let line = event(&json!({"choices": [], "image": "x".repeat(size)}).to_string());
        let (first, second) = line.split_at(line.len() / 2);
        let tail = ChatStream::new(2).usage();
        let rest = tail.payload();
        let steps = vec![
            Step::Write(sse_head()),
            Step::Write(chunk(first.as_bytes())),
            Step::Sleep(secs(60)),
            Step::Write(chunk(second.as_bytes())),
            Step::Write(chunk(rest.as_bytes())),
            Step::write(LAST_CHUNK),
        ];
        let rig = memory([Script::always(steps)], |_| {});
        let mut client = rig.h1().await;
        let answer = client.request(streamed()).await.unwrap();
        assert!(answer.body == [line.as_bytes(), rest.as_bytes()].concat(), "{size}");
        // The first half was not kept until the line was whole.
        let end = answer.head.raw.len() as u64 + first.len() as u64;
        let (at, _) = client.arrivals().iter().find(|(_, total)| *total >= end).copied().unwrap();
        assert!(answer.ended_at - at >= secs(60), "{size}");
        client.close();
        assert_eq!(last_line(&rig.router).0, "ok");
        assert_eq!(relay_rig::count(&rig.router, "tandem_tokens_total", &[("kind", "completion")]), 5);
        rig.settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn b25_an_error_body_of_any_kind_reaches_the_client_whole_and_truthful() {
    let html = "<html><body>Internal \u{2620}</body></html>";
    let wrapped = [
        (Response::text(503, "no healthy upstream").header("retry-after", "7"), "no healthy upstream"),
        (Response::text(500, html).header("content-type", "text/html"), html),
        (Response::text(404, ""), "404"),
        (Response::new(500, tandem::testkit::engine::Body::CloseDelimited("plain".into())), "plain"),
    ];
    for (answer, text) in wrapped {
        let (status, retry) = (answer.status, answer.headers.iter().any(|(name, _)| name == "retry-after"));
        let rig = memory([Script::always(answer)], |_| {});
        let mut client = rig.h1().await;
        let seen = client.request(plain()).await.unwrap();
        assert_eq!(seen.status(), status);
        assert_eq!(seen.header("retry-after"), retry.then_some("7"));
        assert_eq!(seen.header("content-type"), Some("application/json"));
        assert_eq!(seen.head.headers.all("content-type").len(), 1);
        assert_eq!(seen.json()["error"]["code"], "upstream_error");
        assert!(seen.json()["error"]["message"].as_str().unwrap().contains(text), "{}", seen.text());
        client.close();
        assert!(last_line(&rig.router).0.starts_with("upstream_"));
        rig.settle().await;
    }
    let verbatim = [
        Response::json(400, "[{\"msg\": \"field required\",\t\"loc\":[ ]}]"),
        Response::json(429, "{\"error\":{\"message\":\"slow down\"}}").header("retry-after", "3"),
        Response::json(422, "{\"detail\":[]}").header("content-type", "application/problem+json"),
        Response::json(500, "{}").header("content-encoding", "identity"),
    ];
    for answer in verbatim {
        let sent = answer.wire_body();
        let status = answer.status;
        let rig = memory([Script::always(answer)], |_| {});
        let mut client = rig.h1().await;
        let seen = client.request(plain()).await.unwrap();
        assert_eq!((seen.status(), seen.body.as_slice()), (status, sent.as_ref()));
        assert_eq!(seen.header("retry-after"), (status == 429).then_some("3"));
        client.close();
        rig.settle().await;
    }
}

/// An error body beyond what is read whole is streamed, whole.
#[tokio::test(start_paused = true)]
async fn b25_a_huge_error_body_is_streamed() {
    let body = "y".repeat(200_000);
    for answer in [
        Response::text(500, body.clone()),
        Response::new(400, tandem::testkit::engine::Body::Chunked(vec![body.clone().into(); 2])),
    ] {
        let length = if answer.status == 500 { 200_000 } else { 400_000 };
        let rig = memory([Script::always(answer)], |_| {});
        let mut client = rig.h1().await;
        let seen = client.request(plain()).await.unwrap();
        assert_eq!((seen.body.len(), seen.is_complete()), (length, true));
        client.close();
        rig.settle().await;
    }
}

/// What the real client makes of it is in `openai_sdk`; here that the same failures surface through the router.
#[tokio::test]
async fn b22_the_openai_client_raises_on_a_failed_stream_and_finishes_one_with_comments() {
    let comments = vec![
        Step::Write(sse_head()),
        Step::write(chunk(b": PROCESSING\n\n")),
        Step::Write(chunk(ChatStream::new(3).usage().payload().as_bytes())),
        Step::write(LAST_CHUNK),
    ];
    let script = Script::new(move |request| match request.json()["model"].as_str().unwrap_or_default() {
        "cut" => ChatStream::new(2).then(vec![Step::Sleep(ms(20)), Step::Reset]).into_steps(),
        "stalled" => ChatStream::new(2).then(Step::Stall).into_steps(),
        _ => comments.clone(),
    });
    let ([engine], router) = tcp([script], |config| config.timeouts.idle = Some(ms(300))).await;
    let seen = tandem::testkit::openai::run(
        &format!("{}/v1", router.url()),
        &["stream:cut", "stream:stalled", "stream:comments"],
    )
    .await;
    for scenario in ["stream:cut", "stream:stalled"] {
        assert_eq!(seen[scenario]["text"], "t0 t1 ");
        assert_eq!(seen[scenario]["error"]["class"], "APIError", "{seen}");
    }
    assert_eq!(seen["stream:comments"]["text"], "t0 t1 t2 ");
    assert_eq!(seen["stream:comments"]["error"], serde_json::Value::Null);
    router.assert_invariants(&[&engine]).await;
}

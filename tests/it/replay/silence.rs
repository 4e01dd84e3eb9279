//! Engines that fall silent: cut at the idle limit, alone.

use tandem::testkit::client::H2Client;
use tandem::testkit::engine::openai::{ChatStream, content_event, sse_head};
use tandem::testkit::engine::{IntoSteps, Script, Step};
use tandem::testkit::fixtures::{chat_body, post_chat};
use tandem::testkit::router::FRONT;
use tandem::testkit::wire::chunked::{LAST_CHUNK, chunk};
use tandem::types::clock::now;

use super::relay_rig::{BOTH, chat_h2, last_line, legs, memory, ms, secs, streamed};
use super::scale;
use super::timeouts::{answers, assert_took, with};

#[tokio::test(start_paused = true)]
async fn b167_silence_inside_a_stream_ends_it_at_the_idle_limit() {
    let stalls = ChatStream::new(20).then(vec![Step::Sleep(secs(30)), Step::Close]).into_steps();
    let rig = with(Script::always(stalls), |config| config.timeouts.idle = Some(secs(5)));
    for protocol in BOTH {
        let started = now();
        let seen = rig.stream(protocol).await;
        assert_took(started, secs(5));
        seen.assert_failed("upstream_timeout");
        assert_eq!(seen.events().len(), 22, "role, twenty events, the error");
    }
    assert_eq!(legs(&rig.router, "timeout"), 2);
    rig.settle().await;
}

/// The limit is on silence: bytes count, whatever they are, and each silence is measured from the last of them.
#[tokio::test(start_paused = true)]
async fn b167_any_byte_of_the_engine_starts_the_idle_time_anew() {
    let mut steps = vec![Step::Write(sse_head())];
    for byte in chunk(content_event("slow").as_bytes()) {
        steps.extend([Step::Sleep(secs(4)), Step::write(vec![byte])]);
    }
    let tail = vec![Step::Write(chunk(b"data: [DONE]\n\n")), Step::write(LAST_CHUNK)];
    let rig = with(Script::always([steps, tail].concat()), |config| config.timeouts.idle = Some(secs(5)));
    let mut client = rig.h1().await;
    assert!(client.request(streamed()).await.unwrap().is_complete());
    client.close();
    rig.settle().await;
}

/// While the client takes nothing the engine is not asked: its silence counts only once it is. The first event fills
/// the client's window to the byte and a second waits behind it, so that the relay has nothing when the client returns.
#[tokio::test(start_paused = true)]
async fn b167_a_slow_client_does_not_use_up_the_engines_idle_time() {
    let first = content_event(&"x".repeat(20_000));
    for (returns_after, complete) in [(secs(2), true), (secs(6), false)] {
        let tail = vec![Step::Write(chunk(b"data: [DONE]\n\n")), Step::write(LAST_CHUNK)];
        let second = [Step::Sleep(ms(1)), Step::Write(chunk(content_event("y").as_bytes()))];
        let start =
            [vec![Step::Write(sse_head()), Step::Write(chunk(first.as_bytes()))], second.to_vec()].concat();
        let steps = [start, vec![Step::Sleep(secs(50) + returns_after)], tail].concat();
        let rig = with(Script::always(steps), |config| {
            config.timeouts.idle = Some(secs(5));
            config.timeouts.write_stall = Some(secs(60));
        });
        let mut settings = h2::client::Builder::new();
        settings.initial_window_size(u32::try_from(first.len()).unwrap());
        let mut client = H2Client::new(rig.net.dial(FRONT).await.unwrap(), &settings).await;
        let (request, body) = chat_h2(true);
        let mut stream = client.start(request, Some(body)).await.unwrap();
        stream.head().await.unwrap();
        tokio::time::sleep(secs(50)).await;
        let (mut seen, mut ended) = (Vec::new(), true);
        while let Some(data) = stream.data().await {
            let Ok(data) = data else {
                ended = false;
                break;
            };
            seen.extend_from_slice(&data);
        }
        assert!(seen.starts_with(first.as_bytes()));
        assert_eq!(ended, complete, "{:?}", last_line(&rig.router));
        drop(stream);
        client.abort();
        rig.settle().await;
        assert_eq!(last_line(&rig.router).0, if complete { "ok" } else { "upstream_timeout" });
    }
}

/// CI 60 + 30 requests, full as in the row: 200 + 100.
#[tokio::test(start_paused = true)]
async fn b168_an_engine_that_never_answers_blocks_only_its_own_requests() {
    let (stuck, quick) = scale((60, 30), (200, 100));
    let mut config = tandem::testkit::router::config(&["e0:80".to_owned()]);
    config.services[0].models = vec!["dead".to_owned()];
    let mut other = config.services[0].clone();
    other.name = "other".to_owned();
    other.models = vec!["alive".to_owned()];
    other.endpoints = vec![tandem::config::StaticEndpoint::parse("http://e1:80").unwrap()];
    let first = config.services[0].clone();
    let rig = memory([Script::always(vec![Step::Stall]), answers("here")], |config| {
        config.services = vec![first, other];
        config.timeouts.first_byte = Some(secs(30));
    });
    let ask = |model: &str| post_chat(chat_body(model, false));
    let started = now();
    let mut waiting = Vec::new();
    for _ in 0..stuck {
        let mut client = rig.h1().await;
        client.send(ask("dead")).await.unwrap();
        waiting.push(client);
    }
    rig.engines[0].log.wait_for(stuck, secs(5)).await;
    let mut client = rig.h1().await;
    let before = now();
    for _ in 0..quick {
        assert_eq!(client.request(ask("alive")).await.unwrap().status(), 200);
    }
    assert!(now() - before < ms(10), "unaffected");
    for client in &mut waiting {
        let answer = client.read_response().await.unwrap();
        assert_eq!((answer.status(), answer.header("x-should-retry")), (504, Some("false")));
    }
    assert_took(started, secs(30));
    assert_eq!(legs(&rig.router, "timeout"), stuck as u64);
    client.close();
    drop(waiting);
    rig.settle().await;
}

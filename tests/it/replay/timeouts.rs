//! Every limit on its own: it ends what it is for, when it says, and nothing else.

use std::time::Duration;

use tandem::config::RouterConfig;
use tandem::testkit::engine::openai::{ChatStream, chat_json, sse_head};
use tandem::testkit::engine::{IntoSteps, Script, Step};
use tandem::testkit::eventually::eventually_eq;
use tandem::testkit::fixtures::{big_chat_body, get, post_chat, request_head};
use tandem::testkit::memory::DialFault;
use tandem::testkit::sse::Event;
use tandem::testkit::wire::PeerEnd;
use tandem::testkit::wire::chunked::{LAST_CHUNK, chunk};
use tandem::types::clock::{Instant, now};

use super::relay_rig::{
    BOTH, Memory, Seen, chat_h2, count, last_line, legs, memory, ms, plain, secs, streamed,
};

/// `took` is the limit, give or take the granularity of the timers.
#[track_caller]
pub(super) fn assert_took(since: Instant, limit: Duration) {
    let took = now() - since;
    assert!(took >= limit && took < limit + ms(60), "{took:?} instead of {limit:?}");
}

pub(super) fn with(script: Script, change: impl FnOnce(&mut RouterConfig)) -> Memory<1> {
    memory([script], change)
}

pub(super) fn answers(text: &str) -> Script {
    Script::always(chat_json(text))
}

/// CI and full are the row's eleven minutes: the clock is virtual.
#[tokio::test(start_paused = true)]
async fn b165_a_stream_that_moves_is_never_cut() {
    let rig = with(Script::always(ChatStream::new(660).gap(secs(1)).into_steps()), |_| {});
    let started = now();
    for protocol in BOTH {
        let seen = rig.stream(protocol).await;
        assert!(seen.complete && seen.events().last().is_some_and(Event::is_done));
        assert_eq!(last_line(&rig.router).0, "ok");
    }
    assert!(now() - started >= secs(2 * 660));
    rig.settle().await;
}

#[tokio::test(start_paused = true)]
async fn b165_the_optional_total_limit_ends_a_stream_and_blames_nobody() {
    let script = Script::always(ChatStream::new(100).gap(secs(1)).into_steps());
    let rig = with(script, |config| config.timeouts.total = Some(secs(10)));
    for protocol in BOTH {
        let started = now();
        let seen = rig.stream(protocol).await;
        assert_took(started, secs(10));
        seen.assert_failed("upstream_timeout");
        assert_eq!(last_line(&rig.router).0, "upstream_timeout");
    }
    assert_eq!((legs(&rig.router, "cancelled"), legs(&rig.router, "timeout")), (2, 0));
    assert_eq!(count(&rig.router, "tandem_endpoint_ejections_total", &[]), 0);
    rig.settle().await;
}

/// The total limit holds wherever the time goes: the client's upload, the dial, the wait, an error body that trickles.
#[tokio::test(start_paused = true)]
async fn the_total_limit_covers_every_stage() {
    let total = secs(10);
    let limit = |config: &mut RouterConfig| {
        config.timeouts.total = Some(total);
        config.timeouts.connect = None;
        config.timeouts.first_byte = None;
        config.timeouts.idle = Some(secs(3));
        config.timeouts.body_progress = Some(secs(3));
    };
    let mut trickle = vec![Step::write("HTTP/1.1 500 x\r\ncontent-length: 1000\r\n\r\n")];
    trickle.extend((0..100).flat_map(|_| [Step::Sleep(secs(1)), Step::write("x")]));
    for script in [Script::always(vec![Step::Stall]), Script::always(trickle)] {
        let rig = with(script, limit);
        let mut client = rig.h1().await;
        let started = now();
        let answer = client.request(plain()).await.unwrap();
        assert_took(started, total);
        assert_eq!((answer.status(), answer.header("x-should-retry")), (504, Some("false")));
        client.close();
        rig.settle().await;
    }

    let rig = with(answers("x"), limit);
    rig.net.set_fault("e0", DialFault::BlackHole);
    let mut client = rig.h1().await;
    let started = now();
    let answer = client.request(plain()).await.unwrap();
    assert_took(started, total);
    assert_eq!((answer.status(), answer.header("x-should-retry")), (504, None), "nothing was sent");
    client.close();
    rig.settle().await;

    // The upload makes progress all the time and is never over.
    let rig = with(answers("x"), limit);
    let mut client = rig.h1().await;
    let started = now();
    client.send(&post_chat(big_chat_body("m", false, 4096))[..500]).await.unwrap();
    for _ in 0..9 {
        tokio::time::sleep(secs(1)).await;
        client.send("xxxx").await.unwrap();
    }
    let answer = client.read_response().await.unwrap();
    assert_took(started, total);
    assert_eq!(answer.status(), 408);
    client.close();
    rig.settle().await;
}

#[tokio::test(start_paused = true)]
async fn header_read_ends_a_silent_and_a_slow_client() {
    let slow_head = "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nX-Slow: ";
    for first in ["", "P", "PRI * HT", slow_head] {
        let rig = with(answers("x"), |config| config.timeouts.header_read = Some(secs(10)));
        let mut client = rig.h1().await;
        let started = now();
        client.send(first).await.unwrap();
        for _ in 0..9 {
            tokio::time::sleep(secs(1)).await;
            // Bytes of a head do not buy time.
            if first == slow_head {
                client.send("x").await.unwrap();
            }
        }
        let (_, end, _) = client.read_to_end().await.unwrap();
        assert_took(started, secs(10));
        assert_eq!(end, PeerEnd::Fin, "{first:?}");
        client.close();
        rig.settle().await;
        assert_eq!(rig.engines[0].log.request_count(), 0);
    }
}

/// A second request's head has its own time, from its first byte; the idle time before it is another limit.
#[tokio::test(start_paused = true)]
async fn header_read_holds_for_every_head_and_downstream_idle_between_them() {
    let rig = with(answers("x"), |_| {});
    let mut client = rig.h1().await;
    client.request(plain()).await.unwrap();
    tokio::time::sleep(secs(70)).await;
    let started = now();
    client.send("POST /v1/chat").await.unwrap();
    client.read_to_end().await.unwrap();
    assert_took(started, secs(10));
    client.close();

    let mut client = rig.h1().await;
    client.request(plain()).await.unwrap();
    let started = now();
    let (bytes, end, _) = client.read_to_end().await.unwrap();
    assert_took(started, secs(75));
    assert_eq!((bytes.len(), end), (0, PeerEnd::Fin));
    client.close();

    let mut client = rig.h2().await;
    let (request, body) = chat_h2(false);
    assert_eq!(client.request(request, body).await.unwrap().status, 200);
    let started = now();
    let open = || count(&rig.router, "tandem_downstream_connections", &[]);
    tokio::time::sleep(ms(74_900)).await;
    assert_eq!(open(), 1);
    eventually_eq(secs(1), "connections", 0, open).await;
    assert_took(started, secs(75));
    // "No new streams": one that is on its way is served all the same. This client closes on it by itself.
    let goodbye = client.frames.goaways();
    assert_eq!((goodbye[0].last_stream, goodbye[0].code), (0x7fff_ffff, 0));
    client.closed().await.unwrap();
    rig.settle().await;
}

/// The rest of a refused request has a limit of its own, which is short for what anybody can have.
#[tokio::test(start_paused = true)]
async fn what_is_thrown_away_of_a_refused_request_is_no_slow_head() {
    for (path, header_read, limit) in [("/v1/chat/completions", 10, 30), ("/none", 60, 10)] {
        let rig = with(answers("x"), |config| {
            config.limits.body = 1024;
            config.timeouts.header_read = Some(secs(header_read));
        });
        let mut client = rig.h1().await;
        client.send(request_head("POST", path, &["Content-Length: 100000"])).await.unwrap();
        let started = now();
        while client.ended().await.is_none() {
            let _ = client.send(&[b' '; 10]).await;
            tokio::time::sleep(ms(500)).await;
        }
        let took = now() - started;
        assert!(took >= secs(limit) && took <= secs(limit + 1), "{path}: {took:?}");
        client.close();
        rig.settle().await;
    }
    // Where it comes to its end the connection stays, idle from then on.
    let rig = with(answers("x"), |config| config.timeouts.header_read = Some(secs(5)));
    let mut client = rig.h1().await;
    client.send(request_head("POST", "/none", &["Content-Length: 20"])).await.unwrap();
    assert_eq!(client.read_response().await.unwrap().status(), 404);
    for _ in 0..2 {
        tokio::time::sleep(secs(4)).await;
        client.send(&[b' '; 10]).await.unwrap();
    }
    tokio::time::sleep(secs(60)).await;
    assert_eq!(client.request(get("/health")).await.unwrap().status(), 200);
    client.close();
    rig.settle().await;
}

/// A client that says nothing to the goodbye is not waited for.
#[tokio::test(start_paused = true)]
async fn an_idle_h2_connection_ends_whatever_its_client_says() {
    let rig = with(answers("x"), |_| {});
    let mut client = rig.h1().await;
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let started = now();
    let (bytes, _, _) = client.read_to_end().await.unwrap();
    assert_took(started, secs(77));
    assert!(bytes.windows(9).any(|w| w == b"\0\0\x08\x07\0\0\0\0\0"), "a GOAWAY frame");
    rig.settle().await;
}

#[tokio::test(start_paused = true)]
async fn body_progress_ends_an_upload_that_stops_and_no_other() {
    let rig = with(answers("x"), |config| config.timeouts.body_progress = Some(secs(30)));
    let whole = post_chat(big_chat_body("m", false, 2000));
    let mut client = rig.h1().await;
    client.send(&whole[..1000]).await.unwrap();
    let started = now();
    let answer = client.read_response().await.unwrap();
    assert_took(started, secs(30));
    assert_eq!((answer.status(), answer.header("connection")), (408, Some("close")));
    assert_eq!(answer.json()["error"]["code"], "request_timeout");
    client.close();
    assert_eq!(last_line(&rig.router).0, "rejected");

    // Slow, but moving: twenty pieces, 25 s apart.
    let mut client = rig.h1().await;
    for piece in whole.chunks(whole.len() / 20) {
        client.send(piece).await.unwrap();
        tokio::time::sleep(secs(25)).await;
    }
    assert_eq!(client.read_response().await.unwrap().status(), 200);
    client.close();

    let mut client = rig.h2().await;
    let (request, body) = chat_h2(false);
    let mut stream = client.start(request, None).await.unwrap();
    stream.send(body.slice(..10), false).unwrap();
    let started = now();
    let answer = stream.finish().await.unwrap();
    assert_took(started, secs(30));
    assert_eq!(answer.status, 408);
    client.abort();
    rig.settle().await;
    assert_eq!(rig.engines[0].log.request_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn connect_and_first_byte_are_told_apart() {
    let rig = with(answers("x"), |config| {
        config.timeouts.connect = Some(secs(2));
        config.timeouts.first_byte = Some(secs(20));
    });
    rig.net.set_fault("e0", DialFault::BlackHole);
    let mut client = rig.h1().await;
    let started = now();
    let answer = client.request(plain()).await.unwrap();
    assert_took(started, secs(2));
    assert_eq!(
        (answer.status(), answer.json()["error"]["code"].as_str()),
        (504, Some("upstream_connect_timeout"))
    );
    rig.net.set_fault("e0", DialFault::Delay(ms(1900)));
    assert_eq!(client.request(plain()).await.unwrap().status(), 200);
    rig.net.set_fault("e0", DialFault::None);

    // Neither an interim answer nor half a head is an answer.
    let half =
        [vec![], vec![Step::write("HTTP/1.1 200 OK\r\nx: y")], vec![Step::write("HTTP/1.1 103 x\r\n\r\n")]];
    for start in half {
        let mut steps = start.clone();
        for _ in 0..40 {
            steps.push(Step::Sleep(secs(1)));
            steps.extend(start.first().filter(|_| start.len() == 1).map(|_| Step::write("")));
        }
        rig.engines[0].set_script(Script::always(steps));
        let started = now();
        let answer = client.request(plain()).await.unwrap();
        assert_took(started, secs(20));
        assert_eq!(
            (answer.status(), answer.json()["error"]["code"].as_str()),
            (504, Some("upstream_timeout"))
        );
        assert_eq!(answer.header("x-should-retry"), Some("false"));
    }
    client.close();
    rig.settle().await;
    assert_eq!((legs(&rig.router, "connect_failed"), legs(&rig.router, "timeout")), (1, 3));
}

/// From the request written: a slow upload is not the engine thinking.
#[tokio::test(start_paused = true)]
async fn first_byte_counts_from_the_request_written() {
    let script = Script::new(|_| vec![Step::Sleep(secs(18)), Step::Respond(chat_json("late"))]);
    let rig = with(script, |config| config.timeouts.first_byte = Some(secs(20)));
    let mut client = rig.h1().await;
    let whole = post_chat(big_chat_body("m", false, 2000));
    client.send(&whole[..1000]).await.unwrap();
    tokio::time::sleep(secs(25)).await;
    client.send(&whole[1000..]).await.unwrap();
    assert_eq!(client.read_response().await.unwrap().status(), 200);
    client.close();
    rig.settle().await;
}

/// An engine that takes no request bytes; the client's side of this limit is in `disconnect` (B31).
#[tokio::test(start_paused = true)]
async fn write_stall_ends_an_upload_to_an_engine_that_takes_nothing() {
    let stuck = vec![
        Step::ReadNoBody { keep_reading: false },
        Step::StopReading,
        Step::Sleep(secs(200)),
        Step::Close,
    ];
    let rig = with(Script::always(stuck), |config| config.timeouts.write_stall = Some(secs(30)));
    let mut client = rig.h1().await;
    let started = now();
    let answer = client.request(post_chat(big_chat_body("m", false, 1 << 20))).await.unwrap();
    assert_took(started, secs(30));
    assert_eq!((answer.status(), answer.json()["error"]["code"].as_str()), (504, Some("upstream_timeout")));
    assert_eq!(answer.header("x-should-retry"), None, "it has not got a whole request");
    client.close();
    assert_eq!(legs(&rig.router, "timeout"), 1);
    tokio::time::sleep(secs(200)).await;
    rig.settle().await;
}

/// Zero in the file is `None` here: no limit, not even the defaults, all of which this outlasts.
#[tokio::test(start_paused = true)]
async fn without_limits_nothing_is_ever_cut() {
    let slow = vec![
        Step::Sleep(secs(650)),
        Step::Write(sse_head()),
        Step::Sleep(secs(130)),
        Step::Write(chunk(b"data: [DONE]\n\n")),
        Step::write(LAST_CHUNK),
    ];
    let rig = with(Script::always(slow), |config| {
        let t = &mut config.timeouts;
        (t.header_read, t.body_progress, t.connect, t.first_byte) = (None, None, None, None);
        (t.idle, t.write_stall, t.total, t.downstream_idle) = (None, None, None, None);
    });
    rig.net.set_fault("e0", DialFault::Delay(secs(5)));
    let mut client = rig.h1().await;
    assert!(client.request(streamed()).await.unwrap().is_complete());
    assert!(Seen::h2(&mut rig.h2().await).await.complete);
    tokio::time::sleep(secs(90)).await;
    assert_eq!(client.request(get("/health")).await.unwrap().status(), 200);
    client.close();
    rig.settle().await;
}

//! "When D's head goes out".

use tandem::testkit::engine::Step;
use tandem::testkit::engine::openai::{ChatStream, chat_json, content_event, sse_head};
use tandem::testkit::fixtures::post;
use tandem::testkit::wire::chunked::chunk;
use tandem::types::clock::now;

use super::rig::*;

const ROLE: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";

/// When the client has the head, milliseconds after it asked, for a decode that sends `first` at 100 ms and a token at 1 s.
async fn head_at(rig: &Rig, first: &str, encoding: &str) -> u128 {
    let head =
        String::from_utf8(sse_head().to_vec()).unwrap().replace("\r\n\r\n", &format!("\r\n{encoding}\r\n"));
    let steps = vec![
        Step::Sleep(ms(100)),
        Step::write(head),
        chunk_step(first),
        Step::Sleep(ms(900)),
        chunk_step(&content_event("a")),
        Step::Sleep(ms(100)),
        chunk_step("data: [DONE]\n\n"),
        Step::write("0\r\n\r\n"),
    ];
    rig.d[0].set_script(chat(steps));
    let mut client = rig.client().await;
    let started = now();
    client.send(post(CHAT, &[], body(true))).await.unwrap();
    let head = client.read_head().await.unwrap();
    let at = between(started, head.at);
    let rest = client.read_rest(head).await.unwrap();
    assert!(rest.is_complete() && rest.body.starts_with(first.as_bytes()));
    at
}

#[tokio::test(start_paused = true)]
async fn a_role_alone_is_held_and_a_comment_a_flood_or_an_encoding_is_not() {
    for kind in KINDS {
        let rig = rig(kind, vec![chat(prefilled(kind))], vec![good_d()]);
        let held = head_at(&rig, ROLE, "").await;
        assert!((1000..1100).contains(&held), "{held}");
        assert!(head_at(&rig, ": ping\n\n", "").await < 200);
        assert!(head_at(&rig, &ROLE.repeat(150), "").await < 200, "8 KiB at most");
        assert!(
            head_at(&rig, ROLE, "content-encoding: gzip\r\n").await < 200,
            "what cannot be read is not held"
        );
        rig.done().await;
    }
}

#[tokio::test(start_paused = true)]
async fn sglangs_prefill_answer_is_never_awaited() {
    for proto in [H1, H2] {
        let rig = rig(
            SGLANG,
            vec![chat(after(secs(2), chat_json("p")))],
            vec![chat(after(ms(100), ChatStream::new(3)))],
        );
        let reply = rig.ask(proto, true).await;
        assert!(reply.complete && reply.took < ms(200), "{:?}", reply.took);
        assert_eq!(rig.handoffs(), 1, "until the later of the two");
        tokio::time::sleep(secs(2)).await;
        assert_eq!((rig.handoffs(), rig.legs("prefill", "ok")), (0, 1.0));
        rig.done().await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_release_a_failure_is_one_error_event_and_a_cut() {
    for (kind, proto, _) in WAYS {
        let d = chat(after(ms(40), ChatStream::new(2).then(Step::Reset)));
        let rig = rig(kind, vec![good_p(kind)], vec![d; 2]);
        let reply = rig.ask(proto, true).await;
        let text = reply.text();
        assert!(reply.status == 200 && !reply.complete && !text.contains("[DONE]"));
        assert_eq!(text.matches("\"error\"").count(), 1, "{text}");
        assert_eq!(rig.counts(), (vec![1], vec![1, 0]), "never repeated");
        assert_eq!((rig.legs("decode", "error"), rig.legs("prefill", "ok")), (1.0, 1.0));
        rig.done().await;
    }
}

fn chunk_step(text: &str) -> Step {
    Step::Write(chunk(text.as_bytes()))
}

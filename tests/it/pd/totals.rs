//! Many at once.

use std::sync::Arc;

use tandem::testkit::engine::openai::error;
use tandem::testkit::engine::{IntoSteps, Response, Script, Step};
use tandem::testkit::fixtures::{chat_body_with, post};
use tandem::testkit::task::spawn;

use super::rig::*;

#[tokio::test(start_paused = true)]
async fn b41_one_bad_request_among_many_leaves_the_others_alone() {
    for kind in KINDS {
        let p = Script::new(move |request| match request.path() {
            CHAT if request.json()["messages"][0]["content"] == "bad" => {
                after(ms(20), error(400, "too long"))
            }
            CHAT => after(ms(20), prefilled(kind)),
            _ => Response::text(200, "").into_steps(),
        });
        let rig = Arc::new(rig(kind, vec![p], vec![good_d()]));
        let n = crate::replay::scale(60, 40_960);
        let ask = |i: usize| {
            let rig = Arc::clone(&rig);
            let body = chat_body_with("m", true, if i == n / 2 { "bad" } else { "good" });
            spawn(async move { rig.send(H1, CHAT, &[], &body).await.status })
        };
        let asked: Vec<_> = (0..n).map(ask).collect();
        for (i, status) in asked.into_iter().enumerate() {
            assert_eq!(status.await.unwrap(), if i == n / 2 { 400 } else { 200 });
        }
        Arc::into_inner(rig).unwrap().done().await;
    }
}

#[tokio::test(start_paused = true)]
async fn b58_prefill_answers_are_read_to_their_end_and_connections_are_used_again() {
    for kind in KINDS {
        // 1 MB (CI: 100 KB) in ten slow chunks.
        let size: usize = crate::replay::scale(10_000, 100_000);
        let filler = "x".repeat(size - 200);
        let mut chunks = vec![format!("{{\"kv_transfer_params\":{{\"a\":1}},\"x\":\"{filler}"); 1];
        chunks.extend((0..8).map(|_| "y".repeat(size)));
        chunks.push("\"}".to_owned());
        let total: usize = chunks.iter().map(String::len).sum();
        let mut steps = vec![Step::write(format!("HTTP/1.1 200 OK\r\ncontent-length: {total}\r\n\r\n"))];
        for part in chunks {
            steps.extend([Step::Sleep(ms(10)), Step::write(part)]);
        }
        let rig = Arc::new(rig(kind, vec![chat(steps)], vec![good_d()]));
        let clients = crate::replay::scale(10, 200);
        let asked: Vec<_> = (0..clients)
            .map(|_| {
                let rig = Arc::clone(&rig);
                spawn(async move {
                    let mut client = rig.client().await;
                    for _ in 0..15 {
                        let seen = client.request(post(CHAT, &[], body(true))).await.unwrap();
                        assert!(seen.is_complete());
                        tokio::time::sleep(ms(200)).await;
                    }
                })
            })
            .collect();
        for client in asked {
            client.await.unwrap();
        }
        let (requests, conns) = (rig.p[0].log.request_count(), rig.p[0].log.conns().len());
        assert_eq!(requests, clients * 15);
        assert!(conns * 10 < requests, "{conns} connections for {requests}");
        Arc::into_inner(rig).unwrap().done().await;
    }
}

//! One engine behind an in-memory router, and the check that a body arrives there byte for byte.

use tandem::testkit::client::RawResponse;
use tandem::testkit::engine::openai::chat_json;
use tandem::testkit::engine::{Engine, EngineHandle, Script};
use tandem::testkit::fixtures::post_chat;
use tandem::testkit::memory::MemoryNet;
use tandem::testkit::router::{TestRouter, config};

pub(super) struct Rig {
    pub(super) engine: EngineHandle,
    pub(super) router: TestRouter,
}

impl Rig {
    pub(super) fn new(script: Script) -> Self {
        let net = MemoryNet::new();
        let engine = Engine::in_memory(&net, "e1", script);
        let router = TestRouter::in_memory(config(&["e1:80".to_owned()]), &net);
        Self { engine, router }
    }

    pub(super) async fn send(&self, body: impl AsRef<[u8]>) -> RawResponse {
        let mut client = self.router.memory_client().await;
        client.request(&post_chat(body)).await.unwrap()
    }

    /// Sends a body that must pass, and checks that the engine got these very bytes.
    pub(super) async fn passes(&self, body: impl AsRef<[u8]>) -> RawResponse {
        let body = body.as_ref();
        let before = self.engine.log.request_count();
        let answer = self.send(body).await;
        assert_eq!(answer.status(), 200, "{}: {}", String::from_utf8_lossy(body), answer.text());
        let requests = self.engine.log.requests();
        assert_eq!(requests.len(), before + 1);
        assert!(
            requests[before].body == body,
            "changed: {}",
            String::from_utf8_lossy(&requests[before].body)
        );
        answer
    }

    pub(super) async fn done(self) {
        self.router.assert_invariants(&[&self.engine]).await;
    }
}

pub(super) fn hi() -> Script {
    Script::always(chat_json("hi"))
}

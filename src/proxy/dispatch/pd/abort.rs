//! Ending an SGLang leg: `POST /abort_request` beside closing its socket, because the engine looks for closed sockets only
//! every few seconds (pd.md, "Ending an SGLang pair early").

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use tokio::time::{sleep, timeout};

use super::bodies::Rids;
use crate::proxy::context::Worker;
use crate::proxy::dispatch::answer::next;
use crate::proxy::dispatch::attempt::connect;
use crate::registry::Endpoint;
use crate::types::clock;
use crate::upstream::{self, Decoder, Limits, Outbound};

/// An abort sent within about 50 ms of a request's start is lost; one that did not end the leg is sent once more.
pub(super) const AGAIN: Duration = Duration::from_millis(200);
/// Longest time for one abort.
const LIMIT: Duration = Duration::from_secs(2);

/// What is needed to end a leg on its engine.
#[derive(Debug, Clone)]
pub struct Abort {
    worker: Arc<Worker>,
    /// One for each prompt of the request: the engine looks an abort's id up exactly (unless it has several tokenizer
    /// workers), so an attempt's common prefix would end nothing.
    rids: Arc<Rids>,
}

impl Abort {
    pub(super) fn new(worker: &Arc<Worker>, rids: Rids) -> Self {
        Self { worker: Arc::clone(worker), rids: Arc::new(rids) }
    }

    /// Sends it now and, for a leg that may just have begun, once more; does not wait.
    pub fn fire(&self, endpoint: &Arc<Endpoint>) {
        let (this, endpoint) = (self.clone(), Arc::clone(endpoint));
        self.worker.tracker.spawn_light(async move {
            this.send(&endpoint).await;
            sleep(AGAIN).await;
            this.send(&endpoint).await;
        });
    }

    /// One abort. What the engine says to it, or whether it can be reached at all, changes nothing.
    pub(super) async fn send(&self, endpoint: &Arc<Endpoint>) {
        let all = async {
            for rid in self.rids.iter() {
                self.exchange(endpoint, &rid).await?;
            }
            Some(())
        };
        let _ = timeout(LIMIT, all).await;
    }

    async fn exchange(&self, endpoint: &Arc<Endpoint>, rid: &str) -> Option<()> {
        let timeouts = &self.worker.shared.timeouts;
        let (mut conn, idle) = connect(&self.worker, endpoint, timeouts.connect, None, false).await.ok()?;
        let body = format!("{{\"rid\":\"{rid}\"}}");
        let head = format!(
            "POST /abort_request HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            endpoint.authority,
            body.len()
        );
        let out = Outbound { method: Method::POST, segments: vec![Bytes::from(head), Bytes::from(body)] };
        let limits = Limits {
            first_byte: Some(LIMIT),
            write_stall: Some(LIMIT),
            deadline: Some(clock::now() + LIMIT),
        };
        let answer = upstream::exchange(&mut conn, &out, limits, idle).await.ok()?;
        let mut decoder = Decoder::new(answer.head.framing);
        while next(None, &mut conn, &mut decoder, Some(LIMIT), None).await.ok()?.is_some() {}
        if answer.is_reusable() {
            endpoint.pool.put(conn);
        }
        Some(())
    }
}

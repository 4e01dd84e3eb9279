//! Whole requests through the pipeline, between a client's request as hyper gives it and engines that are a buffer each:
//! everything of ours but the sockets and the client's side of HTTP.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Request;
use http_body::Body as _;
use http_body_util::Full;
use tandem::app::{Router, build};
use tandem::config::{EngineKind, LogSink, RouterConfig, VllmConnector};
use tandem::proxy::context::Worker;
use tandem::proxy::listener::{Downstream, Protocol};
use tandem::proxy::pipeline::handle;
use tandem::testkit::router::{config, pairs_config};
use tandem::types::clock;
use tandem::upstream::{Dial, DialFuture, Io};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::bench::Bench;
use crate::inputs::{self, DONE, STREAM_HEAD, chunk, event};

/// What each engine answers, piece by piece; a read gets one.
#[derive(Debug)]
pub(crate) struct Engines {
    prefill: Vec<Bytes>,
    other: Vec<Bytes>,
}

impl Dial for Engines {
    fn dial(&self, host: &str, _: u16) -> DialFuture {
        let answer = if host == "prefill" { &self.prefill } else { &self.other };
        let line = Line { answer: answer.clone(), left: VecDeque::with_capacity(answer.len()) };
        Box::pin(async { Ok(Io::Boxed(Box::new(line))) })
    }
}

/// A connection: each write is a whole request.
struct Line {
    answer: Vec<Bytes>,
    left: VecDeque<Bytes>,
}

impl AsyncRead for Line {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(piece) = self.get_mut().left.pop_front() else { return Poll::Pending };
        buf.put_slice(&piece);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Line {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.left.extend(this.answer.iter().cloned());
        Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A router whose engines answer so. It stays as it is, so it can be left at any time.
fn worker(mut config: RouterConfig, engines: Engines) -> (Arc<Worker>, Arc<Downstream>) {
    config.access_log.sink = LogSink::Off;
    let Router { shared, workers, .. } = build(config, Arc::new(engines)).unwrap();
    let down = Downstream::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), Arc::clone(&shared.phases));
    (Arc::clone(&workers[0].0), down)
}

/// One request, to the end of its answer and of what it leaves to other tasks.
async fn ask(worker: &Arc<Worker>, down: &Arc<Downstream>, request: Request<Full<Bytes>>, length: usize) {
    clock::refresh();
    let response = handle(Arc::clone(worker), Arc::clone(down), Protocol::H1, request).await;
    assert_eq!(response.status(), 200);
    let mut body = pin!(response.into_body());
    let mut got = 0;
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        got += frame.unwrap().into_data().map_or(0, |data| data.len());
    }
    assert_eq!(got, length);
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
}

fn body_of(answer: &Bytes) -> &[u8] {
    let end = memchr::memmem::find(answer, b"\r\n\r\n").unwrap();
    &answer[end + 4..]
}

/// A request and those who answer it.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) config: RouterConfig,
    pub(crate) engines: Engines,
    pub(crate) body: Bytes,
    /// Of the client's answer, without its head.
    length: usize,
}

pub(crate) fn cases() -> Vec<Case> {
    let answer = inputs::answer();
    let length = body_of(&answer).len();
    let handed = inputs::with_head(std::str::from_utf8(&inputs::prefilled(16)).unwrap());
    let one = || Engines { prefill: vec![], other: vec![answer.clone()] };
    let two = |prefill: &Bytes| Engines { prefill: vec![prefill.clone()], other: vec![answer.clone()] };
    let plain = [
        ("chat/one leg", whole_engine(), one(), 200),
        ("chat/one leg, 108 KB", whole_engine(), one(), 108 << 10),
        ("chat/SGLang pair", pair(EngineKind::Sglang), two(&answer), 200),
        ("chat/vLLM pair", pair(EngineKind::Vllm(VllmConnector::Nixl)), two(&handed), 200),
    ];
    let plain = plain.into_iter().map(|(name, config, engines, size)| {
        let body = inputs::chat(size, false);
        Case { name: name.to_owned(), config, engines, body, length }
    });
    plain.chain([stream(200)]).collect()
}

/// A stream of so many events, a read each.
pub(crate) fn stream(count: usize) -> Case {
    let events: Vec<String> = (0..count).map(event).chain([DONE.to_owned()]).collect();
    let head = Bytes::from_static(STREAM_HEAD.as_bytes());
    let chunks = events.iter().map(|event| Bytes::from(chunk(event)));
    let pieces = [head].into_iter().chain(chunks).chain([Bytes::from("0\r\n\r\n")]).collect();
    Case {
        name: format!("chat/stream of {count} events, one leg"),
        config: whole_engine(),
        engines: Engines { prefill: vec![], other: pieces },
        body: inputs::chat(200, true),
        length: events.iter().map(String::len).sum(),
    }
}

fn whole_engine() -> RouterConfig {
    config(&["engine:80".to_owned()])
}

fn pair(engine: EngineKind) -> RouterConfig {
    pairs_config(engine, &["prefill:80".to_owned()], &["decode:80".to_owned()])
}

pub(crate) fn chat(bench: &mut Bench, case: Case) {
    let Case { name, config, engines, body, length } = case;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    // Nothing that is made here needs to be told that the end is near.
    let (worker, down) = {
        let _inside = runtime.enter();
        worker(config, engines)
    };
    let request = || Request::from_parts(inputs::parts(body.len()), Full::new(body.clone()));
    bench.with(&name, 4, request, |request| runtime.block_on(ask(&worker, &down, request, length)));
}

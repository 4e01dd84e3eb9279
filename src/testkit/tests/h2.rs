//! The h2 client against a server from the h2 crate.

use std::time::Duration;

use bytes::Bytes;
use h2::{Reason, server};
use http::{Request, Response};

use crate::testkit::client::{BodyEnd, FrameKind, H2Client};
use crate::testkit::memory::MemoryStream;
use crate::testkit::task::spawn;

/// Serves one connection: `/echo` answers with the body, `/cut` resets after one DATA, `/wait` reports the
/// reason for which the client reset the stream, `/bye` answers and sends GOAWAY.
async fn serve(io: MemoryStream, report: tokio::sync::mpsc::Sender<Reason>) {
    let mut connection = server::handshake(io).await.unwrap();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let (path, report) = (request.uri().path().to_owned(), report.clone());
        if path == "/bye" {
            connection.graceful_shutdown();
        }
        spawn(async move {
            let mut sink = respond.send_response(Response::new(()), false).unwrap();
            match path.as_str() {
                "/cut" => {
                    sink.send_data("part".into(), false).unwrap();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    sink.send_reset(Reason::INTERNAL_ERROR);
                }
                "/wait" => {
                    let reason = std::future::poll_fn(|cx| sink.poll_reset(cx)).await.unwrap();
                    report.send(reason).await.unwrap();
                }
                _ => {
                    let mut body = request.into_body();
                    while let Some(data) = body.data().await {
                        sink.send_data(data.unwrap(), false).unwrap();
                    }
                    sink.send_data(Bytes::new(), true).unwrap();
                }
            }
        });
    }
}

async fn connected() -> (H2Client, tokio::sync::mpsc::Receiver<Reason>) {
    let (near, far) = MemoryStream::pair(64 * 1024);
    let (report, reasons) = tokio::sync::mpsc::channel(1);
    spawn(serve(far, report));
    (H2Client::new(near, &h2::client::Builder::new()).await, reasons)
}

fn get(path: &str) -> Request<()> {
    Request::get(format!("http://test{path}")).body(()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_body_goes_out_and_comes_back() {
    let (mut client, _reasons) = connected().await;
    let answer = client.request(get("/echo"), Bytes::from_static(b"hello")).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.body.as_slice()), (200, b"hello".as_slice()));
    assert_eq!(answer.end, BodyEnd::Complete);
    let data: usize =
        client.frames.all().iter().filter(|frame| frame.kind == FrameKind::Data).map(|frame| frame.len).sum();
    assert_eq!(data, 5);
}

#[tokio::test(start_paused = true)]
async fn a_reset_stream_shows_its_reason_and_what_came_before() {
    let (mut client, _reasons) = connected().await;
    let answer = client.request(get("/cut"), Bytes::new()).await.unwrap();
    assert_eq!(
        (answer.body.as_slice(), answer.end),
        (b"part".as_slice(), BodyEnd::Reset(Reason::INTERNAL_ERROR))
    );
    assert_eq!(client.frames.reset_of(answer.stream), Some(u32::from(Reason::INTERNAL_ERROR)));
}

#[tokio::test(start_paused = true)]
async fn the_server_learns_why_the_client_reset() {
    let (mut client, mut reasons) = connected().await;
    let mut stream = client.start(get("/wait"), Some(Bytes::new())).await.unwrap();
    stream.head().await.unwrap();
    stream.reset(Reason::CANCEL);
    assert_eq!(reasons.recv().await, Some(Reason::CANCEL));
}

#[tokio::test(start_paused = true)]
async fn a_goaway_is_seen_with_its_last_stream() {
    let (mut client, _reasons) = connected().await;
    let answer = client.request(get("/bye"), Bytes::new()).await.unwrap();
    assert_eq!(answer.end, BodyEnd::Complete);
    let frames = client.frames.clone();
    client.closed().await.unwrap();
    let last = *frames.goaways().last().unwrap();
    assert_eq!((last.last_stream, last.code), (answer.stream, 0));
}

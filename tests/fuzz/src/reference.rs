//! hyper's client as the second opinion on a response.

use std::cell::LazyCell;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::runtime::Runtime;

/// A response that was received to its clean end.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

/// Splits fuzz input: the first byte says how many of the next bytes are piece lengths, the rest is the response.
pub fn cuts(input: &[u8]) -> (&[u8], &[u8]) {
    let Some((&count, rest)) = input.split_first() else { return (&[], &[]) };
    rest.split_at(usize::from(count).min(rest.len()))
}

thread_local! {
    static RUNTIME: LazyCell<Runtime> = const { LazyCell::new(|| {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
    }) };
}

/// Sends a request (HEAD if `head`, else GET) and answers it with `response` in pieces of the lengths in `cuts` (then
/// the rest), then the end of the stream. `None`: hyper refused it, or found it cut short.
pub fn by_hyper(response: &[u8], cuts: &[u8], head: bool) -> Option<Answer> {
    RUNTIME.with(|runtime| runtime.block_on(exchange(response, cuts, head)))
}

async fn exchange(response: &[u8], cuts: &[u8], head: bool) -> Option<Answer> {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(near)).await.ok()?;
    let method = if head { "HEAD" } else { "GET" };
    let request = http::Request::builder()
        .method(method)
        .uri("/")
        .header("host", "a")
        .body(Empty::<Bytes>::new())
        .ok()?;
    let answer = async {
        let response = sender.send_request(request).await.ok()?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.ok()?.to_bytes().to_vec();
        Some(Answer { status, body })
    };
    let play = async {
        // The request first: bytes before it are unsolicited, which is another property.
        let mut buffer = [0; 256];
        let _ = tokio::io::AsyncReadExt::read(&mut far, &mut buffer).await;
        let mut rest = response;
        for &length in cuts {
            let (piece, after) = rest.split_at(usize::from(length).min(rest.len()));
            let _ = far.write_all(piece).await;
            tokio::task::yield_now().await;
            rest = after;
        }
        let _ = far.write_all(rest).await;
        let _ = far.shutdown().await;
        // Kept open for what the client may still write.
        far
    };
    let (answer, _, _far) = tokio::join!(answer, connection, play);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_the_same_however_it_is_cut() {
        let response = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
        let whole = by_hyper(response, &[], false);
        assert_eq!(whole, Some(Answer { status: 200, body: b"hello".to_vec() }));
        assert_eq!(by_hyper(response, &[1; 80], false), whole);
    }

    #[test]
    fn what_is_cut_short_or_malformed_is_refused() {
        for bad in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhi",
            "SIP/2.0 200 OK\r\n\r\n",
        ] {
            assert_eq!(by_hyper(bad.as_bytes(), &[3, 4], false), None, "{bad}");
        }
        let head = by_hyper(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", &[], true);
        assert_eq!(head, Some(Answer { status: 200, body: vec![] }));
    }
}

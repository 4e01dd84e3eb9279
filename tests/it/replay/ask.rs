//! One request over either protocol, and what every refusal must look like.

use bytes::Bytes;
use http::Request;
use serde_json::Value;
use tandem::testkit::client::{BodyEnd, RawResponse};
use tandem::testkit::fixtures::request_head;
use tandem::testkit::router::TestRouter;

pub(super) const CHAT: &str = "/v1/chat/completions";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    H1,
    H2,
}

pub(super) const BOTH: [Protocol; 2] = [Protocol::H1, Protocol::H2];

/// A whole answer, whatever it came over.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Seen {
    pub(super) fn h1(answer: &RawResponse) -> Self {
        assert!(answer.is_complete(), "{answer:?}");
        let text = |v: &[u8]| String::from_utf8_lossy(v).into_owned();
        let headers = answer.head.headers.0.iter().map(|(n, v)| (n.to_ascii_lowercase(), text(v)));
        Self { status: answer.status(), headers: headers.collect(), body: answer.body.clone() }
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub(super) fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e} in {text:?}"))
    }

    /// It is an error of the router: status, code, and the shape that every one of them has.
    #[track_caller]
    pub(super) fn assert_error(&self, status: u16, code: &str) {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status, status, "{text}");
        assert_eq!(self.header("content-type"), Some("application/json"));
        assert_eq!(self.header("content-length"), Some(self.body.len().to_string().as_str()));
        let json = self.json();
        assert_eq!(json.as_object().map(serde_json::Map::len), Some(1), "only `error`: {text}");
        let error = &json["error"];
        assert_eq!(error["code"], code, "{text}");
        assert!(error["message"].as_str().is_some_and(|m| m.len() > 5), "{text}");
        assert!(error["type"].as_str().is_some_and(|t| !t.is_empty()), "{text}");
        assert!(error["param"].is_null() || error["param"].is_string(), "{text}");
        let id = self.header("x-request-id").unwrap_or_default();
        assert!(!id.is_empty() && error["request_id"] == id, "request id {id:?} in {text}");
    }
}

/// Sends one request on a connection of its own and reads the answer. `headers`: whole lines; a body gets
/// `Content-Length` and, unless one is among `headers`, the JSON content type.
pub(super) async fn ask(
    router: &TestRouter,
    protocol: Protocol,
    method: &str,
    path: &str,
    headers: &[&str],
    body: impl AsRef<[u8]>,
) -> Seen {
    let body = body.as_ref();
    let length = format!("Content-Length: {}", body.len());
    let mut lines = headers.to_vec();
    if !body.is_empty() {
        lines.push(&length);
        if !headers.iter().any(|h| h.to_ascii_lowercase().starts_with("content-type")) {
            lines.push("Content-Type: application/json");
        }
    }
    match protocol {
        Protocol::H1 => {
            let mut client = router.client().await;
            client.send([request_head(method, path, &lines).as_ref(), body].concat()).await.unwrap();
            let answer = if method == "HEAD" {
                client.read_head_response().await
            } else {
                client.read_response().await
            };
            Seen::h1(&answer.unwrap())
        }
        Protocol::H2 => over_h2(router, method, path, &lines, Bytes::copy_from_slice(body)).await,
    }
}

async fn over_h2(router: &TestRouter, method: &str, path: &str, lines: &[&str], body: Bytes) -> Seen {
    let mut client = router.h2_client().await;
    let answer = client.request(h2_request(method, path, lines), body).await.unwrap();
    assert_eq!(answer.end, BodyEnd::Complete, "{answer:?}");
    let header = |(n, v): (&http::HeaderName, &http::HeaderValue)| {
        (n.to_string(), String::from_utf8_lossy(v.as_bytes()).into_owned())
    };
    Seen {
        status: answer.status.as_u16(),
        headers: answer.headers.iter().map(header).collect(),
        body: answer.body,
    }
}

/// The head of an HTTP/2 request with these header lines.
pub(super) fn h2_request(method: &str, path: &str, lines: &[&str]) -> Request<()> {
    let mut request = Request::builder().method(method).uri(format!("http://test{path}"));
    for line in lines {
        let (name, value) = line.split_once(':').unwrap();
        request = request.header(name.trim(), value.trim());
    }
    request.body(()).unwrap()
}

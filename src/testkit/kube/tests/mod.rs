//! The fake against what was measured on a real server, raw and through the real client library.

mod client;
mod faults;
mod list;
mod serve;
mod watch;
mod writes;

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::*;

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A whole answer.
#[derive(Debug)]
struct Got {
    code: u16,
    retry_after: Option<String>,
    body: Value,
}

impl Got {
    fn names(&self) -> Vec<&str> {
        self.body["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|pod| pod["metadata"]["name"].as_str().unwrap())
            .collect()
    }

    fn version(&self) -> &str {
        self.body["metadata"]["resourceVersion"].as_str().unwrap()
    }
}

async fn send(entry: &Entry, method: &str, target: &str, kind: &str, body: &Value) -> Got {
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let request =
        Request::builder().method(method).uri(target).header("content-type", kind).body(body).unwrap();
    let response = entry.answer(request).await.unwrap();
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    Got {
        code: head.status.as_u16(),
        retry_after: head.headers.get("retry-after").map(|v| v.to_str().unwrap().to_owned()),
        body: serde_json::from_str(&text).unwrap_or(Value::String(text)),
    }
}

async fn get(fake: &FakeKube, target: &str) -> Got {
    send(&fake.entry(), "GET", target, "", &Value::Null).await
}

async fn list(fake: &FakeKube, query: &str) -> Got {
    get(fake, &format!("{PODS}?{query}")).await
}

/// The lines of an open watch.
#[derive(Debug)]
struct Lines {
    body: Reply,
    buffer: Vec<u8>,
}

/// What a watch says next.
#[derive(Debug, PartialEq)]
enum Said {
    Line(Value),
    End,
    Broken,
    /// Nothing, for as long as the test waited.
    Nothing,
}

impl Lines {
    async fn open(entry: &Entry, query: &str) -> Self {
        let request = Request::get(format!("{PODS}?watch=1&{query}")).body(Bytes::new()).unwrap();
        let response = entry.answer(request).await.unwrap();
        assert_eq!(response.status(), 200);
        Self { body: response.into_body(), buffer: Vec::new() }
    }

    /// The next line within this time.
    async fn within(&mut self, limit: Duration) -> Said {
        tokio::time::timeout(limit, self.read()).await.unwrap_or(Said::Nothing)
    }

    async fn next(&mut self) -> Said {
        self.within(Duration::from_millis(1)).await
    }

    /// The next event as `TYPE name@version`.
    async fn event(&mut self) -> String {
        match self.next().await {
            Said::Line(line) => short(&line),
            other => format!("{other:?}"),
        }
    }

    async fn events(&mut self, count: usize) -> Vec<String> {
        let mut events = Vec::new();
        for _ in 0..count {
            events.push(self.event().await);
        }
        events
    }

    async fn read(&mut self) -> Said {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let raw = || json!(String::from_utf8_lossy(&line[..end]));
                return Said::Line(serde_json::from_slice(&line).unwrap_or_else(|_| raw()));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.buffer.extend_from_slice(&frame.into_data().unwrap()),
                Some(Err(_)) => return Said::Broken,
                None => return Said::End,
            }
        }
    }
}

/// `TYPE name@version`, or the code of an error.
fn short(line: &Value) -> String {
    let (kind, object) = (line["type"].as_str().unwrap_or("?"), &line["object"]);
    if kind == "ERROR" {
        return format!("ERROR {}", object["code"]);
    }
    let name = object["metadata"]["name"].as_str().unwrap_or("-");
    format!("{kind} {name}@{}", object["metadata"]["resourceVersion"].as_str().unwrap_or("-"))
}

fn pod(name: &str) -> PodSpec {
    PodSpec::new(name).label("app", "llm")
}

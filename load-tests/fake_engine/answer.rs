//! Answers, encoded once per kind and kept: a head and one chunk per event, with the offsets between them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::common::{Ask, DONE, SUM_HEADER, event};

/// What uvicorn puts in front of its own headers. The date is a constant: nobody here reads it.
const UVICORN: &str = "HTTP/1.1 200 OK\r\ndate: Sun, 15 Jun 2025 15:06:40 GMT\r\nserver: uvicorn\r\n";

/// The encoded body of a stream.
#[derive(Debug)]
pub struct Stream {
    /// All chunks in order, the last one included.
    pub bytes: Vec<u8>,
    /// Where each write ends: one per burst; the last also has `[DONE]` and the closing chunk.
    pub ends: Vec<usize>,
}

/// The streams asked for so far, by events, size and burst. The gap is not part of the bytes.
#[derive(Debug, Default)]
pub struct Book {
    streams: RefCell<HashMap<(usize, usize, usize), Rc<Stream>>>,
}

impl Book {
    /// The stream for `ask`, encoded at the first use.
    pub fn stream(&self, ask: Ask) -> Rc<Stream> {
        let mut streams = self.streams.borrow_mut();
        Rc::clone(streams.entry((ask.events, ask.bytes, ask.burst)).or_insert_with(|| Rc::new(encode(ask))))
    }
}

fn encode(ask: Ask) -> Stream {
    let mut stream = Stream { bytes: Vec::new(), ends: Vec::new() };
    for index in 0..ask.events {
        push_chunk(&mut stream.bytes, &event(index, ask.bytes));
        if index + 1 == ask.events {
            push_chunk(&mut stream.bytes, DONE);
            stream.bytes.extend_from_slice(b"0\r\n\r\n");
        }
        // The first event is never held back.
        if index == 0 || index % ask.burst == 0 || index + 1 == ask.events {
            stream.ends.push(stream.bytes.len());
        }
    }
    stream
}

fn push_chunk(bytes: &mut Vec<u8>, data: &str) {
    bytes.extend_from_slice(format!("{:x}\r\n{data}\r\n", data.len()).as_bytes());
}

/// Head of a stream; `sum` is that of the request body, where it is the generator that compares it.
pub fn stream_head(sum: Option<u64>) -> String {
    let kind = "content-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n";
    format!("{UVICORN}{kind}{}transfer-encoding: chunked\r\n\r\n", sum_line(sum))
}

/// Head and body of a plain answer; `sum` as in [`stream_head`].
pub fn plain(body: &str, sum: Option<u64>) -> String {
    let (length, sum) = (body.len(), sum_line(sum));
    format!("{UVICORN}content-length: {length}\r\ncontent-type: application/json\r\n{sum}\r\n{body}")
}

fn sum_line(sum: Option<u64>) -> String {
    sum.map(|sum| format!("{SUM_HEADER}: {sum}\r\n")).unwrap_or_default()
}

/// An answer to something this engine does not do; the connection closes after it.
pub fn refusal(status: &str, why: &str) -> String {
    let length = why.len();
    format!(
        "HTTP/1.1 {status}\r\nserver: uvicorn\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{why}"
    )
}

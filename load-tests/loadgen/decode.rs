//! Reads one response and compares its body with the expected one while it arrives.
//!
//! Proxies may cut chunks anew, so only the decoded bytes count. The decoder keeps no copy of the body.

use std::rc::Rc;

use crate::common::SUM_HEADER;

pub const MAX_HEADERS: usize = 64;
/// A chunk size line or a trailer longer than this is no answer of ours.
const MAX_LINE: usize = 256;

/// The only right answer to a request.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The decoded body.
    pub expected: Rc<[u8]>,
    /// The engine's sum of the request body, as it appears in its response header; with `--pd` there is none.
    pub sum: Option<String>,
}

/// Why an answer is wrong. The names are keys of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    Connect,
    Io,
    Closed,
    Head,
    Status,
    RequestSum,
    Framing,
    Body,
    Unfinished,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    Length(usize),
    Size,
    Data(usize),
    DataEnd,
    Trailer,
    Done,
}

/// The decoder of one response.
#[derive(Debug)]
pub struct Decoder<'a> {
    answer: &'a Answer,
    state: State,
    /// Body bytes seen so far, all of them right.
    pub at: usize,
}

impl<'a> Decoder<'a> {
    /// A decoder that takes no other than `answer`.
    pub fn new(answer: &'a Answer) -> Self {
        Self { answer, state: State::Head, at: 0 }
    }

    /// True when the response has ended with the whole expected body.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Takes what it can from the front of `input` and says how much that was; call again with the rest and more.
    ///
    /// # Errors
    /// The first thing that is wrong about the response.
    pub fn feed(&mut self, input: &[u8]) -> Result<usize, Fault> {
        let mut used = 0;
        while !self.is_done() {
            let taken = self.step(&input[used..])?;
            if taken == 0 {
                break;
            }
            used += taken;
        }
        Ok(used)
    }

    /// One state; 0 means that more input is needed.
    fn step(&mut self, input: &[u8]) -> Result<usize, Fault> {
        match self.state {
            State::Head => self.head(input),
            State::Length(left) => self.length(input, left),
            State::Data(left) => self.data(input, left),
            State::Size | State::DataEnd | State::Trailer => {
                let Some(end) = memchr::memchr(b'\n', input) else {
                    return if input.len() > MAX_LINE { Err(Fault::Framing) } else { Ok(0) };
                };
                let line = input[..end].strip_suffix(b"\r").ok_or(Fault::Framing)?;
                self.line(line)?;
                Ok(end + 1)
            }
            State::Done => Ok(0),
        }
    }

    fn head(&mut self, input: &[u8]) -> Result<usize, Fault> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let size = match response.parse(input) {
            Ok(httparse::Status::Complete(size)) => size,
            Ok(httparse::Status::Partial) => return Ok(0),
            Err(_) => return Err(Fault::Head),
        };
        if response.code != Some(200) {
            return Err(Fault::Status);
        }
        let value = |name: &str| {
            response
                .headers
                .iter()
                .find(|header| header.name.eq_ignore_ascii_case(name))
                .map(|header| header.value)
        };
        if self.answer.sum.as_ref().is_some_and(|sum| value(SUM_HEADER) != Some(sum.as_bytes())) {
            return Err(Fault::RequestSum);
        }
        self.state = match (value("content-length"), value("transfer-encoding")) {
            (None, Some(coding)) if coding.eq_ignore_ascii_case(b"chunked") => State::Size,
            (Some(length), None) => State::Length(number(length, 10)?),
            _ => return Err(Fault::Framing),
        };
        Ok(size)
    }

    fn length(&mut self, input: &[u8], left: usize) -> Result<usize, Fault> {
        let here = self.compare(input, left)?;
        self.state = State::Length(left - here);
        if left == here {
            self.finish()?;
        }
        Ok(here)
    }

    fn data(&mut self, input: &[u8], left: usize) -> Result<usize, Fault> {
        let here = self.compare(input, left)?;
        self.state = if left == here { State::DataEnd } else { State::Data(left - here) };
        Ok(here)
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Fault> {
        match self.state {
            State::Size => {
                self.state = match number(line, 16)? {
                    0 => State::Trailer,
                    size => State::Data(size),
                };
            }
            State::DataEnd if line.is_empty() => self.state = State::Size,
            State::Trailer if line.is_empty() => self.finish()?,
            State::Trailer => {}
            _ => return Err(Fault::Framing),
        }
        Ok(())
    }

    fn compare(&mut self, input: &[u8], left: usize) -> Result<usize, Fault> {
        let here = left.min(input.len());
        let expected = self.answer.expected.get(self.at..self.at + here).ok_or(Fault::Body)?;
        if expected != &input[..here] {
            return Err(Fault::Body);
        }
        self.at += here;
        Ok(here)
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.state = State::Done;
        if self.at == self.answer.expected.len() { Ok(()) } else { Err(Fault::Body) }
    }
}

pub fn number(text: &[u8], radix: u32) -> Result<usize, Fault> {
    let text = std::str::from_utf8(text).map_err(|_| Fault::Framing)?;
    usize::from_str_radix(text, radix).map_err(|_| Fault::Framing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(expected: &str) -> Answer {
        Answer { expected: expected.as_bytes().into(), sum: Some("5".to_owned()) }
    }

    /// Feeds `response` in two parts cut at `cut`, as a connection would.
    fn decode(answer: &Answer, response: &[u8], cut: usize) -> Result<bool, Fault> {
        let mut decoder = Decoder::new(answer);
        let used = decoder.feed(&response[..cut])?;
        let used = used + decoder.feed(&response[used..])?;
        Ok(decoder.is_done() && used == response.len())
    }

    const HEAD: &str = "HTTP/1.1 200 OK\r\nx-load-sum: 5\r\n";

    #[test]
    fn a_right_answer_is_accepted_wherever_it_is_cut() {
        let answer = answer("hello, world");
        for rest in [
            "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n7\r\n, world\r\n0\r\n\r\n",
            "content-length: 12\r\n\r\nhello, world",
        ] {
            let response = format!("{HEAD}{rest}");
            for cut in 0..=response.len() {
                assert_eq!(decode(&answer, response.as_bytes(), cut), Ok(true), "cut at {cut}");
            }
        }
    }

    #[test]
    fn a_wrong_answer_is_named() {
        let answer = answer("hello");
        let chunked = |body: &str| format!("{HEAD}transfer-encoding: chunked\r\n\r\n{body}");
        for (response, fault) in [
            (chunked("5\r\nhellO\r\n0\r\n\r\n"), Fault::Body),
            (chunked("4\r\nhell\r\n0\r\n\r\n"), Fault::Body),
            (chunked("6\r\nhello!\r\n0\r\n\r\n"), Fault::Body),
            (chunked("5\r\nhello0\r\n\r\n"), Fault::Framing),
            (format!("{HEAD}content-length: 4\r\n\r\nhell"), Fault::Body),
            (format!("{HEAD}\r\n"), Fault::Framing),
            ("HTTP/1.1 200 OK\r\nx-load-sum: 4\r\ncontent-length: 5\r\n\r\nhello".into(), Fault::RequestSum),
            ("HTTP/1.1 502 Bad Gateway\r\n\r\n".into(), Fault::Status),
        ] {
            assert_eq!(decode(&answer, response.as_bytes(), response.len()), Err(fault), "{response}");
        }
    }
}

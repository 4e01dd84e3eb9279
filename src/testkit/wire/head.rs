//! Heads of requests and answers, strictly: CRLF only, no folding, names are tokens, no space before the colon.

use std::fmt;

/// Headers as they came: order, case and repetition kept.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(pub Vec<(String, Vec<u8>)>);

impl Headers {
    /// The first value of this name, any case; `None` also when it is not text.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.raw(name).next().and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Every value of this name, in order.
    pub fn all(&self, name: &str) -> Vec<String> {
        self.raw(name).map(|value| String::from_utf8_lossy(value).into_owned()).collect()
    }

    pub fn has(&self, name: &str) -> bool {
        self.raw(name).next().is_some()
    }

    /// Whether a comma list such as `Connection` holds this token, any case.
    pub fn has_token(&self, name: &str, token: &str) -> bool {
        self.all(name)
            .iter()
            .flat_map(|value| value.split(','))
            .any(|item| item.trim().eq_ignore_ascii_case(token))
    }

    fn raw(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.0
            .iter()
            .filter(move |(have, _)| have.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_slice())
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.0.iter().map(|(name, value)| (name, String::from_utf8_lossy(value))))
            .finish()
    }
}

/// How a body is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Empty,
    /// `Content-Length`, in bytes.
    Length(u64),
    Chunked,
    /// Until the sender closes; answers only.
    UntilClose,
}

/// Length of the head at the start of `buf`, its blank line included; `None` while it is incomplete.
pub fn head_len(buf: &[u8]) -> Option<usize> {
    memchr::memmem::find(buf, b"\r\n\r\n").map(|at| at + 4)
}

/// The start line and the headers of a head as [`head_len`] delimits it.
pub fn parse(head: &[u8]) -> Result<(String, Headers), String> {
    let text = head.strip_suffix(b"\r\n\r\n").ok_or("head without its blank line")?;
    let mut lines = split_crlf(text)?.into_iter();
    let start = lines.next().unwrap_or_default();
    let start = std::str::from_utf8(start).map_err(|_| "start line is not text")?.to_owned();
    let headers = lines.map(header_line).collect::<Result<_, _>>()?;
    Ok((start, Headers(headers)))
}

/// What `Content-Length` and `Transfer-Encoding` say together; `None` when neither is there.
pub fn declared(headers: &Headers) -> Result<Option<Framing>, String> {
    let lengths = headers.all("content-length");
    let codings = headers.all("transfer-encoding");
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Ok(None),
        ([length], []) => length_value(length).map(|n| Some(Framing::Length(n))),
        ([], [coding]) if coding.eq_ignore_ascii_case("chunked") => Ok(Some(Framing::Chunked)),
        ([], _) => Err(format!("transfer-encoding {codings:?}")),
        (_, []) => Err(format!("several content-length {lengths:?}")),
        _ => Err("content-length together with transfer-encoding".to_owned()),
    }
}

fn length_value(text: &str) -> Result<u64, String> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let value = if digits { text.parse().ok() } else { None };
    value.ok_or_else(|| format!("content-length {text:?}"))
}

fn split_crlf(text: &[u8]) -> Result<Vec<&[u8]>, String> {
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = memchr::memmem::find(rest, b"\r\n") {
        lines.push(&rest[..at]);
        rest = &rest[at + 2..];
    }
    lines.push(rest);
    let bare = lines.iter().any(|line| memchr::memchr3(b'\r', b'\n', 0, line).is_some());
    if bare { Err("bare CR, LF or NUL in a head".to_owned()) } else { Ok(lines) }
}

fn header_line(line: &[u8]) -> Result<(String, Vec<u8>), String> {
    let shown = || String::from_utf8_lossy(line).into_owned();
    let colon = memchr::memchr(b':', line).ok_or_else(|| format!("header without a colon: {:?}", shown()))?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if name.is_empty() || !name.iter().all(|b| is_token(*b)) {
        return Err(format!("header name in {:?}", shown()));
    }
    Ok((String::from_utf8_lossy(name).into_owned(), value.trim_ascii().to_vec()))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_keeps_order_case_and_repetition() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nX-b:  1 \r\nx-B: 2\r\n\r\n";
        assert_eq!(head_len(head), Some(head.len()));
        let (start, headers) = parse(head).unwrap();
        assert_eq!(start, "GET / HTTP/1.1");
        assert_eq!(headers.0[1], ("X-b".to_owned(), b"1".to_vec()));
        assert_eq!(headers.all("x-b"), ["1", "2"]);
    }

    #[test]
    fn loose_heads_are_refused() {
        let loose: [&[u8]; 5] = [
            b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
            b"GET / HTTP/1.1\nHost: a\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: b\rc\r\n\r\n",
        ];
        for head in loose {
            assert!(parse(head).is_err(), "{:?}", String::from_utf8_lossy(head));
        }
    }

    #[test]
    fn ambiguous_framing_is_refused() {
        let declared_by = |lines: &[(&str, &str)]| {
            let headers = lines.iter().map(|(n, v)| ((*n).to_owned(), v.as_bytes().to_vec())).collect();
            declared(&Headers(headers))
        };
        assert_eq!(declared_by(&[("Content-Length", "12")]), Ok(Some(Framing::Length(12))));
        assert_eq!(declared_by(&[("transfer-encoding", "Chunked")]), Ok(Some(Framing::Chunked)));
        let ambiguous: [&[(&str, &str)]; 5] = [
            &[("content-length", "1"), ("content-length", "1")],
            &[("content-length", "1"), ("transfer-encoding", "chunked")],
            &[("content-length", "+1")],
            &[("transfer-encoding", "gzip, chunked")],
            &[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")],
        ];
        for lines in ambiguous {
            assert!(declared_by(lines).is_err(), "{lines:?}");
        }
    }
}

//! One pass over a request body for the few top-level keys that routing needs, with the place of each.
//!
//! The body is proved to be one well-formed JSON object and nothing is built from it: what is forwarded is the
//! client's own bytes, so number text, key order, escapes and unknown keys survive (I6). Edits are made at the
//! recorded places by [`super::splice`]. Everything that is wrong with a body is a [`PeekError`], a 400 with the
//! place in it.
//!
//! Types are judged only where the router itself acts on the value, `model` and `stream`. There it is stricter than
//! an engine that reads `"stream":"true"` as true: acting on a guess could differ from what the engine does.

use std::fmt;

use super::key::Key;
use super::scan::{Fault, MAX_DEPTH, Scan, Wrong};

/// A stretch of the body, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub start: usize,
    pub end: usize,
}

impl Span {
    /// The stretch of `body`; empty if it lies outside, which no span of that same body does.
    #[inline]
    pub fn of(self, body: &[u8]) -> &[u8] {
        body.get(self.start..self.end).unwrap_or_default()
    }
}

/// One top-level member with a known key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    pub key: Key,
    /// The key, quotes included.
    pub name: Span,
    /// The value.
    pub value: Span,
    /// Its place among all top-level members, known or not.
    pub(super) index: usize,
    /// Offset of the `{` or `,` before it.
    pub(super) before: usize,
    /// Offset of the `,` or `}` behind it.
    pub(super) after: usize,
}

/// A small whole number that a P/D attempt must understand (`n`, `best_of`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// No such key, or `null`.
    Absent,
    Is(u64),
    /// There, but not a plain non-negative integer: some engines read `"2"` or `2.0` as 2.
    Odd,
}

/// What is known of a body. Offsets belong to the body it was made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peek {
    /// `model`, escapes resolved, of any length; `None` when absent or `null`.
    pub model: Option<Box<str>>,
    /// `stream`; absent and `null` are false.
    pub stream: bool,
    pub n: Count,
    pub best_of: Count,
    /// Known keys in the order of the body, each at most once.
    pub members: Vec<Member>,
    /// Values of the wanted members, each with its position among what was wanted.
    wanted: Vec<(usize, Span)>,
    /// How many top-level members there are, known or not.
    pub(super) count: usize,
    /// Offset of the final `}`.
    pub(super) close: usize,
}

impl Peek {
    pub fn member(&self, key: Key) -> Option<&Member> {
        self.members.iter().find(|m| m.key == key)
    }

    /// What identifies something in the member that was wanted at this position: a string's content as it is written, or the
    /// text of a number.
    pub fn identity<'b>(&self, wanted: usize, body: &'b [u8]) -> Option<&'b [u8]> {
        let (_, value) = self.wanted.iter().rfind(|(at, _)| *at == wanted)?;
        let value = value.of(body);
        match value.first()? {
            b'"' => value.get(1..value.len() - 1).filter(|text| !text.is_empty()),
            b'-' | b'0'..=b'9' => Some(value),
            _ => None,
        }
    }

    /// Members that clients may not set (I11).
    pub fn owned(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|m| m.key.is_owned())
    }
}

/// Why a body is refused with 400. Never carries text from the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeekError {
    /// Nothing, or white space.
    Empty,
    /// Begins with a UTF-8 byte order mark.
    Bom,
    /// The first byte (at `at`) does not open an object.
    NotAnObject {
        at: usize,
        found: u8,
    },
    Malformed(Fault),
    /// A second member of a known key begins at `at`.
    Duplicate {
        key: Key,
        at: usize,
    },
    /// The value at `at` has a type that this key may not have.
    Type {
        key: Key,
        at: usize,
        expected: &'static str,
    },
}

impl PeekError {
    /// The `code` of the error body.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Duplicate { .. } => "duplicate_key",
            Self::Type { .. } => "invalid_type",
            _ => "invalid_json",
        }
    }

    /// The `param` of the error body: the key at fault.
    pub fn param(&self) -> Option<&'static str> {
        match self {
            Self::Duplicate { key, .. } | Self::Type { key, .. } => Some(key.as_str()),
            _ => None,
        }
    }
}

impl fmt::Display for PeekError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty => f.write_str("the request body is empty; a JSON object is expected"),
            Self::Bom => {
                f.write_str("the request body begins with a byte order mark; JSON is sent without one")
            }
            Self::NotAnObject { at, found } => {
                write!(f, "the request body must be a JSON object, but byte {at} is ")?;
                if found.is_ascii_graphic() {
                    write!(f, "'{}'", char::from(found))
                } else {
                    write!(f, "0x{found:02x}")
                }
            }
            Self::Malformed(Fault { at, wrong }) => {
                write!(f, "the request body is not valid JSON: {} at byte {at}", describe(wrong))?;
                if wrong == Wrong::Depth { write!(f, " (the limit is {MAX_DEPTH} levels)") } else { Ok(()) }
            }
            Self::Duplicate { key, at } => {
                write!(f, "the key \"{}\" appears more than once; again at byte {at}", key.as_str())
            }
            Self::Type { key, at, expected } => {
                write!(f, "the value of \"{}\" at byte {at} must be {expected}", key.as_str())
            }
        }
    }
}

impl std::error::Error for PeekError {}

impl From<Fault> for PeekError {
    fn from(fault: Fault) -> Self {
        Self::Malformed(fault)
    }
}

fn describe(wrong: Wrong) -> &'static str {
    match wrong {
        Wrong::End => "unexpected end",
        Wrong::Byte => "unexpected character",
        Wrong::Escape => "invalid escape",
        Wrong::Control => "unescaped control character in a string",
        Wrong::Utf8 => "invalid UTF-8",
        Wrong::Depth => "nested too deeply",
        Wrong::Trailing => "unexpected data after the object",
    }
}

/// Reads a body. About 10 GB/s on plain text, so a body over some megabytes belongs off the event loop.
///
/// # Errors
/// Whatever is not exactly one JSON object in UTF-8, nested at most [`MAX_DEPTH`] deep, with each known key at most
/// once and with `model` and `stream` of their types.
pub fn peek(body: &[u8]) -> Result<Peek, PeekError> {
    peek_for(body, &[])
}

/// The same, and the place of members whose names only the configuration knows, each spelled without escapes. Of two of one
/// name the last counts, as it does for engines.
///
/// # Errors
/// As [`peek`].
pub fn peek_for(body: &[u8], wanted: &[String]) -> Result<Peek, PeekError> {
    let mut scan = Scan::new(body);
    open(&mut scan, body)?;
    let mut peek = Peek {
        model: None,
        stream: false,
        n: Count::Absent,
        best_of: Count::Absent,
        members: vec![],
        wanted: vec![],
        count: 0,
        close: 0,
    };
    let mut before = scan.at;
    scan.at += 1;
    if scan.must_peek()? != b'}' {
        loop {
            before = member(&mut scan, body, &mut peek, before, wanted)?;
            if body.get(before) != Some(&b',') {
                break;
            }
            scan.at += 1;
        }
    }
    peek.close = scan.at;
    scan.at += 1;
    if scan.peek().is_some() {
        return Ok(scan.fault(Wrong::Trailing)?);
    }
    Ok(peek)
}

/// Moves to the `{`, or says what stands there instead.
fn open(scan: &mut Scan<'_>, body: &[u8]) -> Result<(), PeekError> {
    match scan.peek() {
        Some(b'{') => Ok(()),
        None => Err(PeekError::Empty),
        Some(_) if body.starts_with(b"\xef\xbb\xbf") => Err(PeekError::Bom),
        Some(found) => Err(PeekError::NotAnObject { at: scan.at, found }),
    }
}

/// Reads one member and moves to the `,` or `}` behind it, whose offset is the answer.
#[inline]
fn member(
    scan: &mut Scan<'_>,
    body: &[u8],
    peek: &mut Peek,
    before: usize,
    wanted: &[String],
) -> Result<usize, PeekError> {
    let index = peek.count;
    peek.count += 1;
    scan.must_peek()?;
    let start = scan.at;
    scan.key_string()?;
    let name = Span { start, end: scan.at };
    scan.colon()?;
    let first = scan.must_peek()?;
    let start = scan.at;
    let key = Key::from_raw(&body[name.start + 1..name.end - 1]);
    if let Some(key) = key
        && peek.member(key).is_some()
    {
        return Err(PeekError::Duplicate { key, at: name.start });
    }
    scan.value(1)?;
    let value = Span { start, end: scan.at };
    let after = match scan.must_peek()? {
        b',' | b'}' => scan.at,
        _ => return Ok(scan.fault(Wrong::Byte)?),
    };
    if !wanted.is_empty() {
        let name = &body[name.start + 1..name.end - 1];
        let found = wanted.iter().enumerate().filter(|(_, word)| word.as_bytes() == name);
        peek.wanted.extend(found.map(|(at, _)| (at, value)));
    }
    if let Some(key) = key {
        note(peek, key, first, value, body)?;
        peek.members.push(Member { key, name, value, index, before, after });
    }
    Ok(after)
}

/// Takes the values that routing acts on.
fn note(peek: &mut Peek, key: Key, first: u8, value: Span, body: &[u8]) -> Result<(), PeekError> {
    let wrong = |expected| PeekError::Type { key, at: value.start, expected };
    match (key, first) {
        (Key::Model | Key::Stream, b'n') => {}
        (Key::Model, b'"') => {
            let model = text(value.of(body)).ok_or(wrong("a string of whole characters"))?;
            peek.model = Some(model);
        }
        (Key::Model, _) => return Err(wrong("a string")),
        (Key::Stream, b't' | b'f') => peek.stream = first == b't',
        (Key::Stream, _) => return Err(wrong("true or false")),
        (Key::N, _) => peek.n = count(value.of(body)),
        (Key::BestOf, _) => peek.best_of = count(value.of(body)),
        _ => {}
    }
    Ok(())
}

/// The content of a quoted string; `None` for a lone surrogate, which no string of characters can hold.
fn text(quoted: &[u8]) -> Option<Box<str>> {
    let raw = quoted.get(1..quoted.len().checked_sub(1)?)?;
    if raw.contains(&b'\\') {
        return serde_json::from_slice::<String>(quoted).ok().map(String::into_boxed_str);
    }
    std::str::from_utf8(raw).ok().map(Box::from)
}

fn count(value: &[u8]) -> Count {
    match std::str::from_utf8(value) {
        Ok("null") => Count::Absent,
        Ok(text) if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().map_or(Count::Odd, Count::Is),
        _ => Count::Odd,
    }
}

#[cfg(test)]
mod tests;

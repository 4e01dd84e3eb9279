//! Looks at answers as they pass: counts events, reads the engine's usage, notices an in-stream `error` event or an
//! aborted generation (I7). It never holds bytes back and never changes them.
//!
//! Cheap by design: a frame is searched for three short needles; only a line that has one is parsed. A line that spans
//! frames is collected up to [`MAX_LINE`]; beyond that the line goes uninspected and the relay goes on (B23).

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Longest event line that is inspected, bytes.
const MAX_LINE: usize = 64 * 1024;
/// The field that makes an event.
const FIELD: &[u8] = b"data:";
/// [`Observer::begun`] of a line that is none of its beginnings.
const OTHER: usize = usize::MAX;
/// How much of the end of a JSON answer is kept to find its usage in.
const JSON_TAIL: usize = 4 * 1024;

static DATA: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("data:"));
static USAGE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"usage\""));
static ERROR: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"error\""));
static ABORT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"abort\""));

/// What an otherwise well-framed answer said about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamFault {
    /// A top-level `error` in an event.
    Error,
    /// `finish_reason: "abort"`: the engine gave the generation up (vLLM on SIGTERM).
    Abort,
}

/// Token counts as the engine states them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub prompt: u64,
    pub completion: u64,
}

/// One answer's observer.
#[derive(Debug)]
pub struct Observer {
    kind: Kind,
    /// Start of a line that has not ended (SSE), or the end of what was seen (JSON).
    carry: Vec<u8>,
    /// The current line is longer than [`MAX_LINE`].
    skipping: bool,
    /// How much of [`FIELD`] the current line consists of so far; [`OTHER`] where it does not begin like it, or was counted.
    begun: usize,
    /// Last bytes seen, to know whether a stream stands between two events.
    tail: [u8; 3],
    pub usage: Option<Usage>,
    pub fault: Option<StreamFault>,
    /// Usage that was there and could not be read.
    pub unreadable: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Events,
    Json,
    /// Encoded or of another type: nothing to see.
    Opaque,
}

impl Observer {
    /// `content_type` as sent by the engine; `encoded`: with a content encoding other than identity.
    pub fn new(content_type: Option<&[u8]>, encoded: bool) -> Self {
        let is = |kind: &str| {
            content_type.is_some_and(|t| {
                t.len() >= kind.len() && t[..kind.len()].eq_ignore_ascii_case(kind.as_bytes())
            })
        };
        let kind = match () {
            () if encoded => Kind::Opaque,
            () if is("text/event-stream") => Kind::Events,
            () if is("application/json") => Kind::Json,
            () => Kind::Opaque,
        };
        Self {
            kind,
            carry: Vec::new(),
            skipping: false,
            begun: 0,
            tail: *b"\n\n\n",
            usage: None,
            fault: None,
            unreadable: 0,
        }
    }

    pub fn is_events(&self) -> bool {
        self.kind == Kind::Events
    }

    /// The stream stands inside an event: bytes of it went out, its blank line did not.
    pub fn mid_event(&self) -> bool {
        !(self.tail.ends_with(b"\n\n") || self.tail.ends_with(b"\n\r\n") || self.tail.ends_with(b"\r\r"))
    }

    /// Looks at the next payload bytes, `last` when none follow. Returns how many data events begin in them.
    pub fn see(&mut self, bytes: &[u8], last: bool) -> u64 {
        match self.kind {
            Kind::Opaque => 0,
            Kind::Json => {
                self.see_json(bytes, last);
                0
            }
            Kind::Events => {
                let events = self.count_events(bytes);
                self.see_events(bytes);
                self.remember_tail(bytes);
                events
            }
        }
    }

    fn remember_tail(&mut self, bytes: &[u8]) {
        for &b in &bytes[bytes.len().saturating_sub(3)..] {
            self.tail = [self.tail[1], self.tail[2], b];
        }
    }

    /// Lines that begin with [`FIELD`], each counted where its colon is.
    fn count_events(&mut self, bytes: &[u8]) -> u64 {
        let mut count = 0;
        if (1..FIELD.len()).contains(&self.begun) {
            let missing = &FIELD[self.begun..];
            if bytes.starts_with(missing) {
                count = 1;
            } else if missing.starts_with(bytes) {
                self.begun += bytes.len();
                return 0;
            }
            self.begun = OTHER;
        }
        let starts =
            |at: usize| if at == 0 { self.begun == 0 } else { matches!(bytes[at - 1], b'\n' | b'\r') };
        count += DATA.find_iter(bytes).filter(|&at| starts(at)).count() as u64;
        let end = &bytes[bytes.len().saturating_sub(FIELD.len())..];
        let (line, fresh) = match memchr::memrchr2(b'\n', b'\r', end) {
            Some(at) => (&end[at + 1..], true),
            None => (end, self.begun == 0),
        };
        self.begun =
            if fresh && line.len() < FIELD.len() && FIELD.starts_with(line) { line.len() } else { OTHER };
        count
    }

    fn see_events(&mut self, bytes: &[u8]) {
        // The common case: whole lines, nothing of interest in them.
        let whole = self.carry.is_empty() && !self.skipping && bytes.last() == Some(&b'\n');
        if whole && !interesting(bytes) {
            return;
        }
        let mut rest = bytes;
        while let Some(end) = memchr::memchr2(b'\n', b'\r', rest) {
            let (line, after) = (&rest[..end], &rest[end + 1..]);
            if self.skipping {
                self.skipping = false;
            } else if self.carry.len() + line.len() > MAX_LINE {
                // Too long, whether it came in one piece or in many.
            } else if self.carry.is_empty() {
                self.see_line(line);
            } else {
                self.carry.extend_from_slice(line);
                let whole = std::mem::take(&mut self.carry);
                self.see_line(&whole);
            }
            self.carry.clear();
            rest = after;
        }
        if self.carry.len() + rest.len() > MAX_LINE {
            self.carry = Vec::new();
            self.skipping = true;
        } else if !self.skipping {
            self.carry.extend_from_slice(rest);
        }
    }

    fn see_line(&mut self, line: &[u8]) {
        let Some(data) = line.strip_prefix(b"data:") else { return };
        if !interesting(data) {
            return;
        }
        let Ok(event) = serde_json::from_slice::<Event<'_>>(data) else {
            self.unreadable += u32::from(USAGE.find(data).is_some());
            return;
        };
        if event.error.is_some() {
            self.fault = Some(StreamFault::Error);
        } else if event.aborted() {
            self.fault.get_or_insert(StreamFault::Abort);
        }
        if let Some(raw) = event.usage() {
            self.read_usage(raw.get());
        }
    }

    fn see_json(&mut self, bytes: &[u8], last: bool) {
        let joined;
        let seen = if self.carry.is_empty() {
            bytes
        } else {
            joined = [&self.carry, bytes].concat();
            &joined
        };
        // Each that is a key with a whole value, the last one wins: what was read in the frame before is read again, the
        // same. A value that is cut off here is whole in a later frame.
        for at in USAGE.find_iter(seen) {
            let Some(value) = after_colon(&seen[at + b"\"usage\"".len()..]) else { continue };
            match Option::<RawUsage>::deserialize(&mut serde_json::Deserializer::from_slice(value)) {
                Err(error) if error.is_eof() => {}
                read => note(&mut self.usage, &mut self.unreadable, read),
            }
        }
        let aborted = ABORT.find_iter(seen).any(|at| {
            let before = seen[..at].trim_ascii_end().strip_suffix(b":");
            before.is_some_and(|key| key.trim_ascii_end().ends_with(b"\"finish_reason\""))
        });
        let keep = if last { Vec::new() } else { seen[seen.len().saturating_sub(JSON_TAIL)..].to_vec() };
        if aborted {
            self.fault.get_or_insert(StreamFault::Abort);
        }
        self.carry = keep;
    }

    fn read_usage(&mut self, raw: &str) {
        note(&mut self.usage, &mut self.unreadable, serde_json::from_str(raw));
    }
}

/// Takes over one `usage` value, if it can be read; `null` says nothing.
#[expect(clippy::needless_pass_by_value, reason = "a fresh result, matched once")]
fn note(usage: &mut Option<Usage>, unreadable: &mut u32, read: serde_json::Result<Option<RawUsage>>) {
    match read {
        Ok(None) => {}
        Ok(Some(RawUsage { prompt: Some(prompt), completion })) => {
            *usage = Some(Usage { prompt, completion: completion.unwrap_or(0) });
        }
        // The Messages API sends the output count alone at the end.
        Ok(Some(RawUsage { prompt: None, completion: Some(completion) })) => {
            *usage = Some(Usage { prompt: usage.map_or(0, |u| u.prompt), completion });
        }
        _ => *unreadable += 1,
    }
}

fn interesting(bytes: &[u8]) -> bool {
    USAGE.find(bytes).is_some() || ERROR.find(bytes).is_some() || ABORT.find(bytes).is_some()
}

fn after_colon(bytes: &[u8]) -> Option<&[u8]> {
    bytes.trim_ascii_start().strip_prefix(b":").map(<[u8]>::trim_ascii_start)
}

type Raw<'a> = Option<&'a serde_json::value::RawValue>;

/// Fields are read one by one, so that an odd one (`message` as a text, `choices` as none) hides none of the others.
#[derive(Deserialize)]
struct Event<'a> {
    error: Option<IgnoredAny>,
    #[serde(borrow)]
    usage: Raw<'a>,
    #[serde(borrow)]
    choices: Raw<'a>,
    #[serde(borrow)]
    meta_info: Raw<'a>,
    #[serde(borrow)]
    response: Raw<'a>,
    #[serde(borrow)]
    message: Raw<'a>,
}

#[derive(Deserialize)]
struct Nested<'a> {
    #[serde(borrow)]
    usage: Raw<'a>,
}

/// A choice, or the `meta_info` of SGLang's `/generate`.
#[derive(Deserialize)]
struct Finish<'a> {
    #[serde(borrow)]
    finish_reason: Raw<'a>,
}

/// SGLang's form of a reason.
#[derive(Deserialize)]
struct Reason<'a> {
    #[serde(borrow)]
    r#type: Raw<'a>,
}

fn read<'a, T: Deserialize<'a>>(raw: Raw<'a>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

impl<'a> Event<'a> {
    fn aborted(&self) -> bool {
        let is_abort = |raw: Raw<'_>| raw.is_some_and(|raw| raw.get() == "\"abort\"");
        let choices: Vec<Finish<'_>> = read(self.choices).unwrap_or_default();
        let reason = read(self.meta_info).and_then(|meta: Finish<'_>| read::<Reason<'_>>(meta.finish_reason));
        choices.iter().any(|choice| is_abort(choice.finish_reason))
            || reason.is_some_and(|r| is_abort(r.r#type))
    }

    /// An event of the Responses API and of the Messages API nests it once.
    fn usage(&self) -> Raw<'a> {
        let nested = |outer| read(outer).and_then(|inner: Nested<'a>| inner.usage);
        self.usage.or_else(|| nested(self.response)).or_else(|| nested(self.message))
    }
}

#[derive(Deserialize)]
struct RawUsage {
    #[serde(alias = "prompt_tokens", alias = "input_tokens")]
    prompt: Option<u64>,
    #[serde(alias = "completion_tokens", alias = "output_tokens")]
    completion: Option<u64>,
}

#[cfg(test)]
mod tests;

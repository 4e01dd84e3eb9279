//! One access record as one line of JSON or text, appended to a reused buffer.
//!
//! Written by hand because it is on the path of every request: no allocation, no formatting machinery. Both formats
//! come from one list of fields. Every text from outside is quoted and escaped, so that neither a line nor a terminal can
//! be forged: the JSON escapes, and also DEL, the C1 controls, the Unicode line separators and the bidirectional
//! overrides.

use std::net::IpAddr;

use super::{AccessRecord, time::Stamp};
use crate::config::LogFormat;

/// Most bytes of a model name that are shown; the client chooses it.
const MODEL_BYTES: usize = 128;
/// Most further attempts that are told.
const MOST_RETRIED: usize = 8;
/// Most bytes of any other text. All of them are bounded elsewhere; this is the last resort (I12).
const TEXT_BYTES: usize = 256;

/// Appends `record`, ended by a line feed.
pub(super) fn write(
    out: &mut Vec<u8>,
    format: LogFormat,
    stamp: &mut Stamp,
    ms: u64,
    record: &AccessRecord<'_>,
) {
    let mut line = match format {
        LogFormat::Json => Line { out, json: true },
        LogFormat::Text => Line { out, json: false },
    };
    line.open(stamp, ms);
    fields(&mut line, record);
    line.close();
}

/// The fields, in order; `docs/access-log.md` lists them.
fn fields(line: &mut Line<'_>, r: &AccessRecord<'_>) {
    line.text(",\"request_id\":", r.request_id, TEXT_BYTES);
    line.address(",\"peer\":", r.peer);
    line.word(",\"protocol\":", r.protocol);
    line.text(",\"method\":", r.method, TEXT_BYTES);
    line.word(",\"route\":", r.route);
    line.optional_text(",\"model\":", r.model, MODEL_BYTES);
    line.text(",\"service\":", r.service, TEXT_BYTES);
    line.optional_text(",\"endpoint\":", r.endpoint, TEXT_BYTES);
    line.optional_text(",\"prefill\":", r.pair.map(|p| p.prefill), TEXT_BYTES);
    line.optional_text(",\"cohort\":", r.cohort, TEXT_BYTES);
    line.optional_number(",\"split_version\":", r.split_version);
    line.flag(",\"stream\":", r.stream);
    line.number(",\"status\":", u64::from(r.status));
    line.word(",\"outcome\":", r.outcome.as_str());
    if let Some(code) = r.error {
        line.word(",\"error\":", code);
    }
    line.number(",\"attempts\":", u64::from(r.attempts));
    line.retried(r.retried);
    if r.budget_exhausted {
        line.flag(",\"budget_exhausted\":", true);
    }
    line.number(",\"bytes_in\":", r.bytes_in);
    line.number(",\"bytes_out\":", r.bytes_out);
    line.optional_number(",\"ttfb_us\":", r.ttfb_us);
    if let Some(pair) = &r.pair {
        line.optional_number(",\"prefill_us\":", pair.prefill_us);
        line.optional_number(",\"handoff_us\":", pair.handoff_us);
        line.optional_number(",\"decode_us\":", pair.decode_us);
    }
    line.number(",\"duration_us\":", r.duration_us);
    if r.stream {
        line.number(",\"events\":", r.events);
        line.optional_number(",\"longest_gap_us\":", r.longest_gap_us);
    }
    if let Some([trace, prefill, decode]) = r.pair.and_then(|p| p.spans) {
        line.text(",\"trace_id\":", trace, TEXT_BYTES);
        line.text(",\"prefill_span_id\":", prefill, TEXT_BYTES);
        line.text(",\"decode_span_id\":", decode, TEXT_BYTES);
    }
}

struct Line<'a> {
    out: &'a mut Vec<u8>,
    json: bool,
}

impl Line<'_> {
    fn open(&mut self, stamp: &mut Stamp, ms: u64) {
        self.out.extend_from_slice(if self.json { b"{\"time\":\"" } else { b"" });
        stamp.write(self.out, ms);
        self.out.extend_from_slice(if self.json { b"\"" } else { b"" });
    }

    fn close(&mut self) {
        self.out.extend_from_slice(if self.json { b"}\n" } else { b"\n" });
    }

    /// `key` is `,"name":`; the text form is ` name=`, cut from the same literal.
    #[inline]
    fn key(&mut self, key: &'static str) {
        if self.json {
            self.out.extend_from_slice(key.as_bytes());
        } else {
            self.out.push(b' ');
            self.out.extend_from_slice(&key.as_bytes()[2..key.len() - 2]);
            self.out.push(b'=');
        }
    }

    /// A word of the program: needs no escape.
    #[inline]
    fn word(&mut self, key: &'static str, word: &'static str) {
        self.key(key);
        if self.json {
            self.out.push(b'"');
        }
        self.out.extend_from_slice(word.as_bytes());
        if self.json {
            self.out.push(b'"');
        }
    }

    /// `prefill_busy,decode_connect`: one for each further attempt, the first few of them.
    fn retried(&mut self, rows: &[(&'static str, &'static str)]) {
        if rows.is_empty() {
            return;
        }
        self.key(",\"retried\":");
        self.out.push(b'"');
        for (i, (role, reason)) in rows.iter().take(MOST_RETRIED).enumerate() {
            for piece in [if i == 0 { "" } else { "," }, role, "_", reason] {
                self.out.extend_from_slice(piece.as_bytes());
            }
        }
        self.out.push(b'"');
    }

    #[inline]
    fn text(&mut self, key: &'static str, text: &str, max: usize) {
        self.key(key);
        self.out.push(b'"');
        escape(self.out, cut(text, max));
        self.out.push(b'"');
    }

    #[inline]
    fn optional_text(&mut self, key: &'static str, text: Option<&str>, max: usize) {
        if let Some(text) = text {
            self.text(key, text, max);
        }
    }

    #[inline]
    fn number(&mut self, key: &'static str, number: u64) {
        self.key(key);
        self.digits(number);
    }

    #[inline]
    fn optional_number(&mut self, key: &'static str, number: Option<u64>) {
        if let Some(number) = number {
            self.number(key, number);
        }
    }

    #[inline]
    fn flag(&mut self, key: &'static str, flag: bool) {
        self.key(key);
        self.out.extend_from_slice(if flag { b"true" } else { b"false" });
    }

    fn address(&mut self, key: &'static str, address: IpAddr) {
        self.key(key);
        if self.json {
            self.out.push(b'"');
        }
        match address.to_canonical() {
            IpAddr::V4(v4) => {
                for (i, octet) in v4.octets().into_iter().enumerate() {
                    if i > 0 {
                        self.out.push(b'.');
                    }
                    self.digits(u64::from(octet));
                }
            }
            IpAddr::V6(v6) => {
                // Rare enough for the formatter; writing to a vector does not fail.
                let _ = std::io::Write::write_fmt(self.out, format_args!("{v6}"));
            }
        }
        if self.json {
            self.out.push(b'"');
        }
    }

    #[inline]
    fn digits(&mut self, number: u64) {
        self.out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }
}

/// The longest prefix of at most `max` bytes that ends at a character.
fn cut(text: &str, max: usize) -> &str {
    if text.len() <= max { text } else { &text[..text.floor_char_boundary(max)] }
}

/// Bytes that may need an escape: controls, `"`, `\`, DEL, and the lead bytes of what `special` looks at.
const WATCHED: [bool; 256] = {
    let mut table = [false; 256];
    let mut i = 0;
    while i < 0x20 {
        table[i] = true;
        i += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table[0x7f] = true;
    table[0xc2] = true;
    table[0xe2] = true;
    table
};

/// Copies runs of harmless bytes at once and escapes the rest as JSON does.
fn escape(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    let mut from = 0;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if !WATCHED[usize::from(byte)] {
            at += 1;
            continue;
        }
        let Some((unit, len)) = special(&bytes[at..]) else {
            at += 1; // the lead byte of a harmless character
            continue;
        };
        out.extend_from_slice(&bytes[from..at]);
        match unit {
            0x22 => out.extend_from_slice(b"\\\""),
            0x5c => out.extend_from_slice(b"\\\\"),
            0x0a => out.extend_from_slice(b"\\n"),
            0x0d => out.extend_from_slice(b"\\r"),
            0x09 => out.extend_from_slice(b"\\t"),
            _ => unicode(out, unit),
        }
        at += len;
        from = at;
    }
    out.extend_from_slice(&bytes[from..]);
}

/// The character at the start of `bytes` that has to be escaped, and its length; `None` if it is harmless.
fn special(bytes: &[u8]) -> Option<(u16, usize)> {
    match *bytes {
        [b @ (0..0x20 | b'"' | b'\\' | 0x7f), ..] => Some((u16::from(b), 1)),
        // U+0080 to U+009F: C1 controls
        [0xc2, b @ 0x80..=0x9f, ..] => Some((u16::from(b), 2)),
        // U+200E, U+200F: marks; U+2028 to U+202E: line separators, embeddings and overrides
        [0xe2, 0x80, b @ (0x8e | 0x8f | 0xa8..=0xae), ..] => Some((0x2000 + u16::from(b - 0x80), 3)),
        // U+2066 to U+2069: isolates
        [0xe2, 0x81, b @ 0xa6..=0xa9, ..] => Some((0x2040 + u16::from(b - 0x80), 3)),
        _ => None,
    }
}

fn unicode(out: &mut Vec<u8>, unit: u16) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let nibble = |shift: u32| HEX[usize::from(unit >> shift & 0xf)];
    out.extend_from_slice(&[b'\\', b'u', nibble(12), nibble(8), nibble(4), nibble(0)]);
}

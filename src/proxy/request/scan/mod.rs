//! A strict JSON skipper: proves that a value is well formed and says where it ends, without building anything.
//!
//! Why not `serde_json::IgnoredAny`: it skips iteratively, so it has **no nesting limit** (10 000 brackets pass), and
//! it does not look at the UTF-8 of skipped strings. Each of those would need a pass of its own over the prompt. This
//! skipper does all three at once, and walks plain text a block at a time; `docs/decisions/0007-json-peek.md` has the
//! numbers. What it accepts is fuzzed against `serde_json` (`tests/fuzz`): the same bodies, the same end, the same
//! depth.
//!
//! Deliberately accepted, because the bytes are forwarded as they are and the engine judges them: numbers of any size
//! (`1e400`, 60 digits) and escapes of lone surrogates (`"\ud83d"`).

use super::{numbers, plain};

/// Deepest nesting that passes, the outermost value included: as in `serde_json`, and what keeps recursive parsers
/// behind us (engines, loggers) off their stack limits.
pub const MAX_DEPTH: u32 = 127;

/// What is wrong with a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// Ends inside a value.
    End,
    /// A byte that no JSON text may have at this place.
    Byte,
    /// A bad escape in a string.
    Escape,
    /// A control character inside a string.
    Control,
    /// Not UTF-8.
    Utf8,
    /// Nested deeper than [`MAX_DEPTH`].
    Depth,
    /// Something after the value.
    Trailing,
}

/// A [`Wrong`] and its byte offset in the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub at: usize,
    pub wrong: Wrong,
}

/// A position in a body. Every method starts at the position and leaves it behind what it read.
#[derive(Debug)]
pub struct Scan<'a> {
    text: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Scan<'a> {
    pub fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn fault<T>(&self, wrong: Wrong) -> Result<T, Fault> {
        Err(Fault { at: self.at, wrong })
    }

    /// Skips white space; the byte after it, not taken. `None`: the body is over.
    #[inline]
    pub fn peek(&mut self) -> Option<u8> {
        loop {
            match self.text.get(self.at) {
                Some(b' ' | b'\n' | b'\t' | b'\r') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    /// [`Self::peek`] where more must follow.
    #[inline]
    pub fn must_peek(&mut self) -> Result<u8, Fault> {
        match self.peek() {
            Some(b) => Ok(b),
            None => self.fault(Wrong::End),
        }
    }

    /// Skips one value. `depth`: how many containers it already stands in.
    pub fn value(&mut self, depth: u32) -> Result<(), Fault> {
        match self.must_peek()? {
            b'{' | b'[' => self.container(depth),
            first => self.scalar(first),
        }
    }

    /// A value that is no container and begins with `first`, here.
    #[inline]
    fn scalar(&mut self, first: u8) -> Result<(), Fault> {
        match first {
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => self.fault(Wrong::Byte),
        }
    }

    /// Skips a whole object or array. The kinds of the open containers are the bits of one word, so nothing is
    /// allocated and nothing recurses.
    fn container(&mut self, outer: u32) -> Result<(), Fault> {
        let mut kinds: u128 = 0; // lowest bit: the innermost container; 1 is an object
        let mut closes = 0; // what closes it
        let mut open: u32 = 0;
        loop {
            // At a value.
            match self.must_peek()? {
                kind @ (b'{' | b'[') => {
                    if outer + open >= MAX_DEPTH {
                        return self.fault(Wrong::Depth);
                    }
                    self.at += 1;
                    kinds = (kinds << 1) | u128::from(kind == b'{');
                    closes = closer(kinds);
                    open += 1;
                    if self.must_peek()? != closes {
                        self.key_if_object(closes)?;
                        continue;
                    }
                }
                first => {
                    if closes == b']' && first.is_ascii_digit() {
                        self.at = numbers::skip(self.text, self.at);
                    }
                    self.scalar(first)?;
                }
            }
            // Behind a value, or at the closer of an empty container.
            loop {
                let b = self.must_peek()?;
                if b == b',' {
                    self.at += 1;
                    self.key_if_object(closes)?;
                    break;
                } else if b == closes {
                    self.at += 1;
                    kinds >>= 1;
                    closes = closer(kinds);
                    open -= 1;
                    if open == 0 {
                        return Ok(());
                    }
                } else {
                    return self.fault(Wrong::Byte);
                }
            }
        }
    }

    #[inline]
    fn key_if_object(&mut self, closes: u8) -> Result<(), Fault> {
        if closes == b'}' { self.key() } else { Ok(()) }
    }

    #[inline]
    fn key(&mut self) -> Result<(), Fault> {
        self.key_string()?;
        self.colon()
    }

    /// Skips the string that a member begins with.
    #[inline]
    pub fn key_string(&mut self) -> Result<(), Fault> {
        if self.must_peek()? != b'"' {
            return self.fault(Wrong::Byte);
        }
        self.string()
    }

    /// Skips the colon behind a key.
    #[inline]
    pub fn colon(&mut self) -> Result<(), Fault> {
        if self.must_peek()? != b':' {
            return self.fault(Wrong::Byte);
        }
        self.at += 1;
        Ok(())
    }

    /// Skips a string; the position is at its opening quote.
    pub fn string(&mut self) -> Result<(), Fault> {
        let start = self.at + 1;
        let mut seen_high = false;
        self.at = start;
        loop {
            self.at = plain::skip(self.text, self.at, &mut seen_high);
            match self.text.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => self.escape()?,
                Some(_) => return self.fault(Wrong::Control),
                None => return self.fault(Wrong::End),
            }
        }
        if seen_high && let Err(e) = std::str::from_utf8(&self.text[start..self.at]) {
            return Err(Fault { at: start + e.valid_up_to(), wrong: Wrong::Utf8 });
        }
        self.at += 1;
        Ok(())
    }

    /// Skips one escape; the position is at its backslash.
    fn escape(&mut self) -> Result<(), Fault> {
        match self.text.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') => {
                for i in 2..6 {
                    match self.text.get(self.at + i) {
                        Some(b) if b.is_ascii_hexdigit() => {}
                        Some(_) => return self.fault(Wrong::Escape),
                        None => return Err(Fault { at: self.text.len(), wrong: Wrong::End }),
                    }
                }
                self.at += 6;
            }
            Some(_) => return self.fault(Wrong::Escape),
            None => return Err(Fault { at: self.text.len(), wrong: Wrong::End }),
        }
        Ok(())
    }

    /// Skips a number by the JSON grammar; its size does not matter.
    fn number(&mut self) -> Result<(), Fault> {
        if self.text.get(self.at) == Some(&b'-') {
            self.at += 1;
        }
        if self.text.get(self.at) == Some(&b'0') {
            self.at += 1; // and no further digit: `01` fails at the `1`, where a comma or closer is due
        } else {
            self.digits()?;
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.text.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.text.get(self.at) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// One digit or more.
    fn digits(&mut self) -> Result<(), Fault> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let digits = rest.iter().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len());
        self.at += digits;
        match rest.first() {
            _ if digits > 0 => Ok(()),
            Some(_) => self.fault(Wrong::Byte),
            None => self.fault(Wrong::End),
        }
    }

    fn word(&mut self, word: &'static [u8]) -> Result<(), Fault> {
        for &expected in word {
            match self.text.get(self.at) {
                Some(&b) if b == expected => self.at += 1,
                Some(_) => return self.fault(Wrong::Byte),
                None => return self.fault(Wrong::End),
            }
        }
        Ok(())
    }
}

/// What closes the innermost of these containers.
#[inline]
fn closer(kinds: u128) -> u8 {
    if kinds & 1 == 1 { b'}' } else { b']' }
}

#[cfg(test)]
mod tests;

//! Body framing to payload (RFC 9112 §6, §7.1), in place: chunk framing is cut out by moving payload down inside the
//! read buffer, so everything one read delivered leaves as a single frame that shares that buffer.
//!
//! Strict where leniency lets two readers disagree: hexadecimal digits only, at most 16 of them, CRLF and nothing else,
//! exactly the announced bytes. Chunk extensions are skipped, trailers are checked and dropped, both within bounds.

use bytes::{Bytes, BytesMut};

use super::head::BodyFraming;

/// Most bytes of chunk extension in one size line.
const MAX_EXTENSION: u16 = 1024;
/// Most bytes of trailer section.
const MAX_TRAILERS: u16 = 16 * 1024;

/// What a decoding step produced.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// Payload, never empty. More may follow.
    Data(Bytes),
    /// The rest of the buffer holds no complete step: read more.
    NeedMore,
    /// The message is complete. Anything left in the buffer does not belong to it.
    End,
}

/// Decodes one message body.
#[derive(Debug)]
pub struct Decoder {
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// `Content-Length` bytes left.
    Length(u64),
    /// Everything until the connection ends.
    Close,
    Chunk(Chunk),
    Done,
    /// A rule was broken; what came before it has been handed out.
    Broken(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    /// In the digits of a size line: value and digits so far.
    Size(u64, u8),
    /// In white space behind the size, which some servers pad with: size, and bytes of it so far.
    Space(u64, u16),
    /// In a chunk extension: size, and extension bytes so far.
    Extension(u64, u16),
    /// After the CR of a size line.
    SizeLf(u64),
    /// Payload bytes left.
    Data(u64),
    DataCr,
    DataLf,
    /// At the start of a trailer line, after `n` bytes of trailers.
    TrailerStart(u16),
    /// Inside a trailer line; the flag says that its colon was seen.
    TrailerLine(u16, bool),
    TrailerLf(u16),
    EndLf,
}

impl Decoder {
    pub fn new(framing: BodyFraming) -> Self {
        let state = match framing {
            BodyFraming::Empty | BodyFraming::Length(0) => State::Done,
            BodyFraming::Length(n) => State::Length(n),
            BodyFraming::Chunked => State::Chunk(Chunk::Size(0, 0)),
            BodyFraming::Close => State::Close,
        };
        Self { state }
    }

    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Payload bytes still to come, where the head announced them.
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Length(n) => Some(n),
            State::Done => Some(0),
            State::Close | State::Chunk(_) | State::Broken(_) => None,
        }
    }

    /// Takes what it can from the front of `buf`. Errors are [`super::Fault::Malformed`] texts and stay. Payload in front
    /// of a fault comes first, so what is handed out does not depend on how the bytes were split into reads.
    pub fn step(&mut self, buf: &mut BytesMut) -> Result<Frame, &'static str> {
        match self.state {
            State::Done => Ok(Frame::End),
            State::Broken(rule) => Err(rule),
            _ if buf.is_empty() => Ok(Frame::NeedMore),
            State::Close => Ok(Frame::Data(buf.split().freeze())),
            State::Length(left) => {
                let take = left.min(buf.len() as u64);
                self.state = if take == left { State::Done } else { State::Length(left - take) };
                Ok(Frame::Data(buf.split_to(take as usize).freeze()))
            }
            State::Chunk(chunk) => self.chunked(chunk, buf),
        }
    }

    /// The connection ended. `Ok` where that is how this body ends.
    #[expect(clippy::result_unit_err, reason = "there is one thing to say: the body was cut")]
    pub fn eof(&mut self) -> Result<(), ()> {
        match self.state {
            State::Done => Ok(()),
            State::Close => {
                self.state = State::Done;
                Ok(())
            }
            State::Length(_) | State::Chunk(_) | State::Broken(_) => Err(()),
        }
    }

    /// One pass over the buffer: framing is consumed, payload is moved down to the front.
    fn chunked(&mut self, chunk: Chunk, buf: &mut BytesMut) -> Result<Frame, &'static str> {
        let (mut at, mut payload) = (0, 0);
        let end = buf.len();
        self.state = State::Chunk(chunk);
        while at < end
            && let State::Chunk(chunk) = self.state
        {
            if let Chunk::Data(left) = chunk {
                let take = usize::try_from(left).unwrap_or(usize::MAX).min(end - at);
                if at != payload {
                    buf.copy_within(at..at + take, payload);
                }
                at += take;
                payload += take;
                let next = if take as u64 == left { Chunk::DataCr } else { Chunk::Data(left - take as u64) };
                self.state = State::Chunk(next);
                continue;
            }
            self.state = framing_byte(chunk, buf[at]).unwrap_or_else(State::Broken);
            at += 1;
        }
        if payload == 0 {
            let _ = buf.split_to(at);
            return match self.state {
                State::Done => Ok(Frame::End),
                State::Broken(rule) => Err(rule),
                _ => Ok(Frame::NeedMore),
            };
        }
        let data = buf.split_to(payload).freeze();
        let _ = buf.split_to(at - payload);
        Ok(Frame::Data(data))
    }
}

/// One byte of chunk framing.
fn framing_byte(chunk: Chunk, byte: u8) -> Result<State, &'static str> {
    let next = match (chunk, byte) {
        (Chunk::Size(n, digits), b) if b.is_ascii_hexdigit() => {
            if digits == 16 || n > u64::MAX >> 4 {
                return Err("chunk size out of range");
            }
            Chunk::Size(n << 4 | u64::from(hex(b)), digits + 1)
        }
        (Chunk::Size(_, 0), _) => return Err("chunk size without digits"),
        (Chunk::Size(n, _), b'\r') => Chunk::SizeLf(n),
        (Chunk::Size(n, _) | Chunk::Space(n, _), b';') => Chunk::Extension(n, 0),
        (Chunk::Size(n, _), b' ' | b'\t') => Chunk::Space(n, 1),
        (Chunk::Space(n, _), b'\r') => Chunk::SizeLf(n),
        (Chunk::Space(_, MAX_EXTENSION), b' ' | b'\t') => return Err("chunk extension too long"),
        (Chunk::Space(n, len), b' ' | b'\t') => Chunk::Space(n, len + 1),
        (Chunk::Size(..) | Chunk::Space(..), _) => return Err("chunk size is not hexadecimal"),
        (Chunk::Extension(n, _), b'\r') => Chunk::SizeLf(n),
        (Chunk::Extension(..), b) if !is_text(b) => return Err("bad byte in a chunk extension"),
        (Chunk::Extension(_, MAX_EXTENSION), _) => return Err("chunk extension too long"),
        (Chunk::Extension(n, len), _) => Chunk::Extension(n, len + 1),
        (Chunk::SizeLf(0), b'\n') => Chunk::TrailerStart(0),
        (Chunk::SizeLf(n), b'\n') => Chunk::Data(n),
        (Chunk::DataCr, b'\r') => Chunk::DataLf,
        (Chunk::DataLf, b'\n') => Chunk::Size(0, 0),
        (Chunk::TrailerStart(_), b'\r') => Chunk::EndLf,
        (Chunk::TrailerStart(len) | Chunk::TrailerLine(len, _) | Chunk::TrailerLf(len), _)
            if len >= MAX_TRAILERS =>
        {
            return Err("trailers too long");
        }
        (Chunk::TrailerStart(len), b) if is_token(b) => Chunk::TrailerLine(len + 1, false),
        (Chunk::TrailerLine(len, false), b':') => Chunk::TrailerLine(len + 1, true),
        (Chunk::TrailerLine(len, false), b) if is_token(b) => Chunk::TrailerLine(len + 1, false),
        (Chunk::TrailerLine(len, true), b'\r') => Chunk::TrailerLf(len + 1),
        (Chunk::TrailerLine(len, true), b) if is_text(b) => Chunk::TrailerLine(len + 1, true),
        (Chunk::TrailerLf(len), b'\n') => Chunk::TrailerStart(len),
        (Chunk::EndLf, b'\n') => return Ok(State::Done),
        (Chunk::TrailerStart(_) | Chunk::TrailerLine(..), b'\n') => {
            return Err("bare line feed in the trailers");
        }
        (Chunk::TrailerStart(_) | Chunk::TrailerLine(..), _) => return Err("malformed trailer"),
        (Chunk::DataCr | Chunk::DataLf, _) => return Err("chunk data longer than its size"),
        _ => return Err("bare carriage return in chunk framing"),
    };
    Ok(State::Chunk(next))
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// What field values and chunk extensions may hold: no controls but the tab.
fn is_text(b: u8) -> bool {
    b == b'\t' || (b >= b' ' && b != 0x7f)
}

/// RFC 9110 §5.6.2.
fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

#[cfg(test)]
#[path = "tests/decode.rs"]
mod tests;

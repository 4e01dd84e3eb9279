//! The chunked coding, byte by byte and strictly: the kit's own, so that it can judge the product's.

use bytes::{BufMut, Bytes, BytesMut};

const MAX_LINE: usize = 8 * 1024;

/// One chunk around these bytes; an empty buffer would end the body, so it gives nothing.
pub fn chunk(data: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(data.len() + 16);
    if !data.is_empty() {
        out.put_slice(format!("{:x}\r\n", data.len()).as_bytes());
        out.put_slice(data);
        out.put_slice(b"\r\n");
    }
    out.freeze()
}

/// The end of a chunked body without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Size,
    /// Bytes of this chunk still to come.
    Data(u64),
    /// The line end after the data; so many of its bytes were seen.
    DataEnd(usize),
    Trailer,
    Done,
}

/// Incremental decoder.
#[derive(Debug, Clone)]
pub struct Chunked {
    state: State,
    line: Vec<u8>,
    /// Size of each chunk that started, the last (empty) one excluded.
    pub sizes: Vec<u64>,
    /// Trailer lines as they came.
    pub trailers: Vec<String>,
}

impl Default for Chunked {
    fn default() -> Self {
        Self { state: State::Size, line: Vec::new(), sizes: Vec::new(), trailers: Vec::new() }
    }
}

impl Chunked {
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Takes what belongs to this body from the start of `input` and appends the payload to `out`.
    /// Returns how many bytes it took.
    pub fn feed(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, String> {
        let mut at = 0;
        while at < input.len() && !self.is_done() {
            at += match self.state {
                State::Data(left) => self.data(left, &input[at..], out),
                State::DataEnd(seen) => self.data_end(seen, input[at])?,
                _ => self.line_byte(input[at])?,
            };
        }
        Ok(at)
    }

    fn data(&mut self, left: u64, input: &[u8], out: &mut Vec<u8>) -> usize {
        let take = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        out.extend_from_slice(&input[..take]);
        let left = left - take as u64;
        self.state = if left == 0 { State::DataEnd(0) } else { State::Data(left) };
        take
    }

    fn data_end(&mut self, seen: usize, byte: u8) -> Result<usize, String> {
        if byte != b"\r\n"[seen] {
            return Err(format!("byte {byte:#04x} where the line end after a chunk belongs"));
        }
        self.state = if seen == 0 { State::DataEnd(1) } else { State::Size };
        Ok(1)
    }

    fn line_byte(&mut self, byte: u8) -> Result<usize, String> {
        self.line.push(byte);
        if self.line.len() > MAX_LINE {
            return Err("chunk line too long".to_owned());
        }
        if byte == b'\n' {
            let line = std::mem::take(&mut self.line);
            let text = line.strip_suffix(b"\r\n").ok_or("bare LF in a chunk line")?;
            self.whole_line(text)?;
        }
        Ok(1)
    }

    fn whole_line(&mut self, text: &[u8]) -> Result<(), String> {
        if self.state == State::Trailer {
            if text.is_empty() {
                self.state = State::Done;
            } else {
                self.trailers.push(String::from_utf8_lossy(text).into_owned());
            }
            return Ok(());
        }
        match size(text)? {
            0 => self.state = State::Trailer,
            size => {
                self.sizes.push(size);
                self.state = State::Data(size);
            }
        }
        Ok(())
    }
}

fn size(text: &[u8]) -> Result<u64, String> {
    let digits = text.split(|b| *b == b';').next().unwrap_or_default();
    let hex = !digits.is_empty() && digits.len() <= 16 && digits.iter().all(u8::is_ascii_hexdigit);
    let value = if hex { u64::from_str_radix(&String::from_utf8_lossy(digits), 16).ok() } else { None };
    value.ok_or_else(|| format!("chunk size line {:?}", String::from_utf8_lossy(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::wire::split::Split;

    fn decode(wire: &[u8], split: &Split) -> Result<(Vec<u8>, usize, Chunked), String> {
        let (mut decoder, mut out, mut used) = (Chunked::default(), Vec::new(), 0);
        for piece in split.pieces(wire.len()) {
            used += decoder.feed(&wire[piece], &mut out)?;
        }
        Ok((out, used, decoder))
    }

    #[test]
    fn any_split_gives_the_same_payload() {
        let wire = b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nT: v\r\n\r\nnext";
        for split in [Split::Whole, Split::EveryByte, Split::Random { seed: 3, max: 4 }] {
            let (out, used, decoder) = decode(wire, &split).unwrap();
            assert_eq!(out, b"hello world");
            assert!(decoder.is_done());
            assert_eq!(
                (used, decoder.sizes, decoder.trailers),
                (wire.len() - 4, vec![5, 6], vec!["T: v".into()])
            );
        }
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for wire in [
            "5zz\r\n",
            "0x5\r\n",
            "+5\r\n",
            " 5\r\n",
            "\r\n",
            "5\nhello",
            "5\r\nhelloX",
            "FFFFFFFFFFFFFFFFF\r\n",
        ] {
            assert!(decode(wire.as_bytes(), &Split::EveryByte).is_err(), "{wire:?}");
        }
    }

    #[test]
    fn what_chunk_writes_feed_reads() {
        let wire = [chunk(b"abc").as_ref(), &chunk(b""), LAST_CHUNK].concat();
        let (out, used, decoder) = decode(&wire, &Split::Whole).unwrap();
        assert_eq!((out.as_slice(), used, decoder.is_done()), (b"abc".as_slice(), wire.len(), true));
    }
}

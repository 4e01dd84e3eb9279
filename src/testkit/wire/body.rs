//! Takes one body from a buffer, keeping both its exact bytes and its payload.

use bytes::{Buf, BytesMut};

use super::chunked::Chunked;
use super::head::Framing;

/// Progress through one body.
#[derive(Debug, Clone)]
pub struct BodyReader {
    framing: Framing,
    chunked: Chunked,
    /// Bytes of a declared length still to come.
    left: u64,
}

impl BodyReader {
    pub fn new(framing: Framing) -> Self {
        let left = if let Framing::Length(length) = framing { length } else { 0 };
        Self { framing, chunked: Chunked::default(), left }
    }

    /// Whether the message ended by its own framing; one that ends by close never does.
    pub fn is_done(&self) -> bool {
        match self.framing {
            Framing::Empty => true,
            Framing::Length(_) => self.left == 0,
            Framing::Chunked => self.chunked.is_done(),
            Framing::UntilClose => false,
        }
    }

    /// Bytes of the declared length that have not come yet.
    pub fn missing(&self) -> u64 {
        self.left
    }

    pub fn chunked(&self) -> &Chunked {
        &self.chunked
    }

    /// Moves what belongs to this body out of `input`: exact bytes to `raw`, payload to `payload`.
    pub fn take(
        &mut self,
        input: &mut BytesMut,
        raw: &mut Vec<u8>,
        payload: &mut Vec<u8>,
    ) -> Result<(), String> {
        let taken = match self.framing {
            Framing::Empty => 0,
            Framing::Chunked => self.chunked.feed(input, payload)?,
            Framing::Length(_) => usize::try_from(self.left).unwrap_or(usize::MAX).min(input.len()),
            Framing::UntilClose => input.len(),
        };
        if self.framing != Framing::Chunked {
            payload.extend_from_slice(&input[..taken]);
            self.left = self.left.saturating_sub(taken as u64);
        }
        raw.extend_from_slice(&input[..taken]);
        input.advance(taken);
        Ok(())
    }
}

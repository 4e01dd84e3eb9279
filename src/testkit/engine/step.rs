//! What an engine can be told to do with one request, one thing after the other.

use std::time::Duration;

use bytes::Bytes;

use super::response::Response;
use crate::testkit::wire::split::Split;

/// One action. While it lasts the engine goes on reading, unless reading was stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Sleep(Duration),
    /// These bytes, in one write.
    Write(Bytes),
    /// These bytes in pieces, each flushed, with a pause between them. With no pause the other tasks still
    /// get a turn between the pieces.
    WriteSplit {
        bytes: Bytes,
        split: Split,
        gap: Duration,
    },
    /// A whole answer; closes afterwards when it says so.
    Respond(Response),
    /// Nothing more, until the peer leaves.
    Stall,
    /// Closes at once: a FIN (and, as with any kernel, a RST where received bytes were left unread).
    Close,
    /// Resets the connection.
    Reset,
    /// Closes the write side and goes on.
    HalfClose,
    /// First step only: the connection is closed as soon as this answer is next in turn on it, with no byte of
    /// the request read. On a kept-alive connection that is an engine's idle close.
    CloseBeforeReading,
    /// First step only: as soon as a byte of the next request arrives the connection is reset, and no request
    /// is recorded; the bytes are in [`ConnRecord::stray`](super::ConnRecord::stray).
    ResetOnFirstByte,
    /// First step only: the steps start when the head is complete. Without `keep_reading` the body is not read
    /// before [`Step::ReadBody`] or the end of the steps.
    ReadNoBody {
        keep_reading: bool,
    },
    /// Waits for the whole request body.
    ReadBody,
    /// From here on nothing is read until [`Step::ResumeReading`] or the end of the steps. A peer that leaves
    /// meanwhile goes unnoticed, except by a failing write.
    StopReading,
    ResumeReading,
}

impl Step {
    pub fn write(bytes: impl Into<Bytes>) -> Self {
        Self::Write(bytes.into())
    }

    /// In pieces without a pause.
    pub fn write_split(bytes: impl Into<Bytes>, split: Split) -> Self {
        Self::write_paced(bytes, split, Duration::ZERO)
    }

    /// In pieces with a pause after each but the last.
    pub fn write_paced(bytes: impl Into<Bytes>, split: Split, gap: Duration) -> Self {
        Self::WriteSplit { bytes: bytes.into(), split, gap }
    }

    /// Whether it writes part of an answer.
    pub(super) fn writes(&self) -> bool {
        matches!(self, Self::Write(_) | Self::WriteSplit { .. } | Self::Respond(_))
    }
}

/// An informational head such as 100 or 103, or a 101; `headers` are whole lines without their CRLF.
pub fn informational(status: u16, headers: &[&str]) -> Step {
    let mut head = format!("HTTP/1.1 {status} Interim\r\n");
    for line in headers {
        head.push_str(line);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    Step::write(head)
}

/// Whatever can stand for the steps of one answer.
pub trait IntoSteps {
    fn into_steps(self) -> Vec<Step>;
}

impl IntoSteps for Vec<Step> {
    fn into_steps(self) -> Vec<Step> {
        self
    }
}

impl IntoSteps for Step {
    fn into_steps(self) -> Vec<Step> {
        vec![self]
    }
}

impl IntoSteps for Response {
    fn into_steps(self) -> Vec<Step> {
        vec![Step::Respond(self)]
    }
}

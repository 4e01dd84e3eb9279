//! Listens in on the HTTP/2 frames that a server sends: the h2 crate acts on RST_STREAM and GOAWAY but does
//! not show them as they were.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::types::clock::{Instant, now};

const FRAME_HEAD: usize = 9;
/// Payload bytes kept per frame; enough for every frame but DATA and HEADERS.
const KEPT: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    Data,
    Headers,
    RstStream,
    Settings,
    Ping,
    GoAway,
    WindowUpdate,
    Other(u8),
}

impl From<u8> for FrameKind {
    fn from(kind: u8) -> Self {
        match kind {
            0 => Self::Data,
            1 => Self::Headers,
            3 => Self::RstStream,
            4 => Self::Settings,
            6 => Self::Ping,
            7 => Self::GoAway,
            8 => Self::WindowUpdate,
            other => Self::Other(other),
        }
    }
}

/// One frame from the server.
#[derive(Debug, Clone)]
pub struct Frame {
    pub kind: FrameKind,
    pub flags: u8,
    pub stream: u32,
    /// Payload length in bytes.
    pub len: usize,
    /// The first bytes of the payload, at most 64.
    pub start: Vec<u8>,
    /// When its last byte was read.
    pub at: Instant,
}

/// A GOAWAY as sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoAway {
    pub last_stream: u32,
    pub code: u32,
    pub at: Instant,
}

#[derive(Debug, Default)]
struct Sniffer {
    head: Vec<u8>,
    /// The frame being read and the payload bytes still to come.
    open: Option<(Frame, usize)>,
    frames: Vec<Frame>,
}

impl Sniffer {
    fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = match self.open.take() {
                None => self.head(bytes),
                Some((frame, left)) => self.payload(frame, left, bytes),
            };
        }
    }

    fn head<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let take = (FRAME_HEAD - self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..take]);
        if self.head.len() == FRAME_HEAD {
            let head = std::mem::take(&mut self.head);
            let len = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            let stream = word(&head[5..]) & 0x7fff_ffff;
            let (kind, flags) = (head[3].into(), head[4]);
            self.settle(Frame { kind, flags, stream, len, start: Vec::new(), at: now() }, len);
        }
        &bytes[take..]
    }

    fn payload<'a>(&mut self, mut frame: Frame, left: usize, bytes: &'a [u8]) -> &'a [u8] {
        let take = left.min(bytes.len());
        let keep = take.min(KEPT - frame.start.len());
        frame.start.extend_from_slice(&bytes[..keep]);
        frame.at = now();
        self.settle(frame, left - take);
        &bytes[take..]
    }

    fn settle(&mut self, frame: Frame, left: usize) {
        if left == 0 {
            self.frames.push(frame);
        } else {
            self.open = Some((frame, left));
        }
    }
}

fn word(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// What was heard; clones are the same record.
#[derive(Debug, Clone, Default)]
pub struct Frames(Arc<Mutex<Sniffer>>);

impl Frames {
    /// Every frame received so far.
    pub fn all(&self) -> Vec<Frame> {
        self.0.lock().frames.clone()
    }

    /// The error code of the server's RST_STREAM for this stream.
    pub fn reset_of(&self, stream: u32) -> Option<u32> {
        let is_it = |frame: &&Frame| frame.kind == FrameKind::RstStream && frame.stream == stream;
        self.0.lock().frames.iter().find(is_it).map(|frame| word(&frame.start))
    }

    /// Every GOAWAY received, in order.
    pub fn goaways(&self) -> Vec<GoAway> {
        let frames = self.all().into_iter().filter(|frame| frame.kind == FrameKind::GoAway);
        let read = |frame: Frame| GoAway {
            last_stream: word(&frame.start) & 0x7fff_ffff,
            code: word(frame.start.get(4..).unwrap_or_default()),
            at: frame.at,
        };
        frames.map(read).collect()
    }
}

/// A transport whose incoming bytes are listened to.
#[derive(Debug)]
pub struct Tap<IO> {
    io: IO,
    frames: Frames,
}

impl<IO> Tap<IO> {
    pub fn new(io: IO) -> (Self, Frames) {
        let frames = Frames::default();
        (Self { io, frames: frames.clone() }, frames)
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Tap<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        self.frames.0.lock().feed(&buf.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Tap<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

//! A transport that can be frozen: nothing is read, written or noticed until it is thawed.
//!
//! That is a host that fell off the network, as far as one can show it without firewalls: the kernel still
//! acknowledges, the application is gone.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::testkit::wire::Wire;

#[derive(Debug, Default)]
struct State {
    frozen: bool,
    waiting: Vec<Waker>,
}

/// The switch, shared by all connections of an engine or server.
#[derive(Debug, Clone, Default)]
pub(in crate::testkit) struct Gate(Arc<Mutex<State>>);

impl Gate {
    pub(in crate::testkit) fn freeze(&self, frozen: bool) {
        let mut state = self.0.lock();
        state.frozen = frozen;
        if !frozen {
            state.waiting.drain(..).for_each(Waker::wake);
        }
    }

    fn poll_open(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if !state.frozen {
            return Poll::Ready(());
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// A transport behind the switch.
#[derive(Debug)]
pub(in crate::testkit) struct Gated<IO> {
    pub(in crate::testkit) io: IO,
    pub(in crate::testkit) gate: Gate,
}

impl<IO: Wire> Wire for Gated<IO> {
    fn arm_reset(&self) {
        self.io.arm_reset();
    }
}

impl<IO: Wire> AsyncRead for Gated<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.gate.poll_open(cx));
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<IO: Wire> AsyncWrite for Gated<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.gate.poll_open(cx));
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.gate.poll_open(cx));
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.gate.poll_open(cx));
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

//! A router's two sides in memory: where clients connect, and how it dials engines.

use std::net::{Ipv4Addr, SocketAddr};
use std::task::{Context, Poll, Waker};

use super::memory::{MemoryListener, MemoryNet, MemoryStream};
use crate::proxy::listener::{Accept, AcceptFuture};
use crate::upstream::{Dial, DialFuture, Io};

#[derive(Debug)]
pub(super) struct Front(pub(super) MemoryListener);

impl Accept for Front {
    fn accept(&mut self) -> AcceptFuture<'_> {
        Box::pin(async move {
            let stream = self.0.accept().await?;
            Ok(front_end(stream))
        })
    }

    fn queued(&mut self) -> Option<std::io::Result<(Io, SocketAddr)>> {
        match self.0.poll_accept(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(accepted) => Some(accepted.map(front_end)),
            Poll::Pending => None,
        }
    }
}

fn front_end(stream: MemoryStream) -> (Io, SocketAddr) {
    (Io::Boxed(Box::new(stream)), SocketAddr::from((Ipv4Addr::LOCALHOST, 1)))
}

#[derive(Debug)]
pub(super) struct NetDial(pub(super) MemoryNet);

impl Dial for NetDial {
    fn dial(&self, host: &str, port: u16) -> DialFuture {
        let (net, host) = (self.0.clone(), host.to_owned());
        Box::pin(async move { Ok(Io::Boxed(Box::new(net.dial_host(&host, port).await?))) })
    }
}

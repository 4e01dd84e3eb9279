//! The seam between the engine and the network: TCP in the product, in-memory pipes in tests with a paused clock.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// One connection that can be reset.
pub trait Socket: AsyncRead + AsyncWrite + Unpin + Send {
    /// From here on dropping it resets the connection.
    fn arm_reset(&self);
}

impl Socket for TcpStream {
    fn arm_reset(&self) {
        // Refused only on a socket that is gone anyway.
        let _ = socket2::SockRef::from(self).set_linger(Some(std::time::Duration::ZERO));
    }
}

type Dialing = Pin<Box<dyn Future<Output = io::Result<Box<dyn Socket>>> + Send>>;

/// How an engine reaches another one's side port.
#[derive(Clone)]
pub struct Dialer(Arc<dyn Fn(String, u16) -> Dialing + Send + Sync>);

impl Dialer {
    pub fn new<F, D>(dial: F) -> Self
    where
        F: Fn(String, u16) -> D + Send + Sync + 'static,
        D: Future<Output = io::Result<Box<dyn Socket>>> + Send + 'static,
    {
        Self(Arc::new(move |host, port| Box::pin(dial(host, port))))
    }

    /// The real network.
    pub fn tcp() -> Self {
        Self::new(|host: String, port| async move {
            let stream = TcpStream::connect((host.as_str(), port)).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Socket>)
        })
    }

    pub(super) async fn dial(&self, host: &str, port: u16) -> io::Result<Box<dyn Socket>> {
        (self.0)(host.to_owned(), port).await
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialer")
    }
}

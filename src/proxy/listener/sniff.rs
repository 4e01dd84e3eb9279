//! HTTP/2 by prior knowledge (RFC 9113 §3.3) or HTTP/1.1: decided by the first bytes, within the header-read limit.

use std::io;

use bytes::BytesMut;
use tokio_util::io::read_buf;

use super::downstream::Protocol;
use crate::upstream::Io;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Reads until the protocol is certain. `Ok(None)`: the client left before that.
pub(super) async fn sniff(io: &mut Io) -> io::Result<Option<(Protocol, BytesMut)>> {
    let mut first = BytesMut::with_capacity(4096);
    loop {
        if read_buf(io, &mut first).await? == 0 {
            return Ok(None);
        }
        let seen = first.len().min(PREFACE.len());
        if first[..seen] != PREFACE[..seen] {
            return Ok(Some((Protocol::H1, first)));
        }
        if seen == PREFACE.len() {
            return Ok(Some((Protocol::H2, first)));
        }
    }
}

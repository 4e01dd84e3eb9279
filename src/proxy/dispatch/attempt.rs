//! One attempt: a connection, the last bit check, the exchange.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout_at;

use crate::config::Timeouts;
use crate::proxy::context::Worker;
use crate::proxy::relay::Leg;
use crate::registry::Endpoint;
use crate::types::clock::{self, Instant};
use crate::upstream::{self, Conn, Fault, LegError, Limits, Outbound};

/// How an attempt went.
#[derive(Debug)]
pub(super) enum Attempt {
    /// A final head was read.
    Answered(Conn, upstream::Answer),
    Failed(LegError),
    /// The endpoint was withdrawn between the decision and the first byte: decide again, no retry is spent (I3).
    Withdrawn,
}

/// Sends `out` on the leg's engine; `fresh`: on a new connection, whatever waits in the pool.
pub(super) async fn attempt(
    worker: &Worker,
    leg: &mut Leg,
    out: &Outbound,
    timeouts: &Timeouts,
    deadline: Option<Instant>,
    fresh: bool,
) -> Attempt {
    let found = {
        let connecting = pin!(connect(worker, leg.endpoint(), timeouts.connect, deadline, fresh));
        leg.unless_cut(connecting).await
    };
    match found {
        Some(Ok(found)) => send(leg, found, out, timeouts, deadline).await,
        Some(Err(fault)) => Attempt::Failed(LegError::before_write(fault)),
        // Nothing of it was sent, so nothing is lost with it.
        None => Attempt::Withdrawn,
    }
}

/// The same on a connection that is there.
pub(super) async fn send(
    leg: &mut Leg,
    (mut conn, idle): (Conn, Option<Duration>),
    out: &Outbound,
    timeouts: &Timeouts,
    deadline: Option<Instant>,
) -> Attempt {
    if !leg.may_start() {
        // Untouched, but its endpoint has left: dropped with it.
        return Attempt::Withdrawn;
    }
    let exchange = upstream::exchange(&mut conn, out, limits(timeouts, deadline), idle);
    match leg.first_byte_of(exchange).await {
        Ok(answer) => Attempt::Answered(conn, answer),
        Err(error) => Attempt::Failed(error),
    }
}

/// Time limits of an exchange.
pub(super) fn limits(timeouts: &Timeouts, deadline: Option<Instant>) -> Limits {
    Limits { first_byte: timeouts.first_byte, write_stall: timeouts.write_stall, deadline }
}

/// A pooled connection and how long it had waited, or a new one.
pub(super) async fn connect(
    worker: &Worker,
    endpoint: &Arc<Endpoint>,
    limit: Option<Duration>,
    deadline: Option<Instant>,
    fresh: bool,
) -> Result<(Conn, Option<Duration>), Fault> {
    if !fresh && let Some(reused) = endpoint.pool.take(worker.index) {
        endpoint.metrics.reused();
        return Ok((reused.conn, Some(reused.idle)));
    }
    endpoint.metrics.dialed();
    let dial = worker.shared.dial.dial(&endpoint.host, endpoint.port);
    let until = limit.map(|limit| clock::now() + limit).into_iter().chain(deadline).min();
    let io = match until {
        Some(at) if deadline == Some(at) => timeout_at(at, dial).await.map_err(|_| Fault::TotalTimeout)?,
        Some(at) => timeout_at(at, dial).await.map_err(|_| Fault::ConnectTimeout)?,
        None => dial.await,
    };
    match io {
        Ok(io) => Ok((Conn::new(io, worker.index), None)),
        Err(error) => {
            tracing::debug!(endpoint = %endpoint.url, %error, "connect failed");
            Err(Fault::of_dial(&error))
        }
    }
}

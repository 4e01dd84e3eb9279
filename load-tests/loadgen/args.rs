//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;

use crate::legs::Wire;

/// Load generator that verifies every byte of every answer.
#[derive(Debug, Parser)]
pub struct Args {
    /// Address of the router, or of an engine itself; of several each connection has one.
    #[arg(long, required = true)]
    pub target: Vec<SocketAddr>,
    /// Address of a prefill, for `--legs`; again for each one.
    #[arg(long, requires = "legs")]
    pub prefill: Vec<SocketAddr>,
    /// Send both legs without a router, as a client does that knows this engine; `--target` is the decode.
    #[arg(long, requires_all = ["prefill", "pd"])]
    pub legs: Option<Wire>,
    /// Connections, kept alive; in the closed loop also the requests in flight.
    #[arg(long, default_value_t = 32)]
    pub connections: usize,
    /// Requests in all.
    #[arg(long, default_value_t = 1000)]
    pub requests: usize,
    /// Size of the request body in bytes (at least the fixed JSON around the prompt).
    #[arg(long, default_value_t = 200)]
    pub body_bytes: usize,
    /// Events of each answer; 0 asks for a plain JSON answer.
    #[arg(long, default_value_t = 0)]
    pub events: usize,
    /// Bytes of one event.
    #[arg(long, default_value_t = 180)]
    pub event_bytes: usize,
    /// Microseconds between two events; 0 for as fast as possible.
    #[arg(long, default_value_t = 0)]
    pub gap_us: u64,
    /// Events the engine puts in one write.
    #[arg(long, default_value_t = 1)]
    pub burst: usize,
    /// Open loop: mean arrivals per second.
    #[arg(long, conflicts_with = "idle")]
    pub rate: Option<f64>,
    /// Open loop: equal distances in place of Poisson arrivals.
    #[arg(long, requires = "rate")]
    pub even: bool,
    /// Open loop: arrivals, sizes and events from this file, a line `MICROSECONDS BODY_BYTES EVENTS` for each request.
    #[arg(long, conflicts_with_all = ["rate", "idle", "requests", "body_bytes", "events"])]
    pub schedule: Option<PathBuf>,
    /// Seed of the Poisson arrivals.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Open `--connections` silent streams and hold them until a line (or the end) of stdin.
    #[arg(long)]
    pub idle: bool,
    /// Ask in the prompt and not by a header, for routers that send two legs. The engine verifies what it received.
    #[arg(long, conflicts_with = "idle")]
    pub pd: bool,
    /// Give up after this many seconds; what is not answered by then is an error.
    #[arg(long, default_value_t = 120)]
    pub limit_s: u64,
}

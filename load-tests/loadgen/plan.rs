//! What to send and what has to come back, worked out once before the clock starts.

use std::net::SocketAddr;
use std::rc::Rc;

use clap::Parser;

use crate::common::{ASK_HEADER, Ask, body_sum, carrying, stream_body, words};

/// Load generator that verifies every byte of every answer.
#[derive(Debug, Parser)]
pub struct Args {
    /// Address of the router, or of the engine itself.
    #[arg(long)]
    pub target: SocketAddr,
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

/// One kind of request and its only right answer.
#[derive(Debug)]
pub struct Plan {
    /// Head and body of the request.
    pub request: Vec<u8>,
    /// The decoded response body.
    pub expected: Vec<u8>,
    /// Events before `[DONE]`.
    pub events: usize,
    /// The engine's sum of the request body, as it appears in its response header; with `--pd` there is none.
    pub sum: Option<String>,
    /// Size of the read buffer of one connection.
    pub read_buffer: usize,
}

impl Plan {
    /// Encodes the request that `args` describe.
    pub fn new(args: &Args) -> Rc<Self> {
        // A held stream says its first event and never its second.
        let events = if args.idle { 2 } else { args.events };
        let Args { event_bytes: bytes, gap_us, burst, idle: hold, .. } = *args;
        let ask = Ask { events, bytes, gap_us, burst, hold };
        let size = args.body_bytes.saturating_sub(chat("", events > 0).len());
        let prompt = if args.pd { carrying(ask, size) } else { words(size) };
        let body = chat(&prompt, events > 0);
        let asking = if args.pd { String::new() } else { format!("{ASK_HEADER}: {}\r\n", ask.to_header()) };
        let mut request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\nuser-agent: loadgen\r\naccept: */*\r\n\
             content-type: application/json\r\n{asking}content-length: {}\r\n\r\n",
            args.target,
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body.as_bytes());
        Rc::new(Self {
            request,
            expected: stream_body(ask).into_bytes(),
            events,
            sum: (!args.pd).then(|| body_sum(body.as_bytes()).to_string()),
            read_buffer: if args.idle { 2 * 1024 } else { 32 * 1024 },
        })
    }
}

/// A chat request.
fn chat(prompt: &str, stream: bool) -> String {
    format!(
        r#"{{"model":"load","stream":{stream},"max_tokens":256,"messages":[{{"role":"user","content":"{prompt}"}}]}}"#
    )
}

//! `tandem demo`: flags for something to look at.

use std::net::SocketAddr;

use clap::Args;

use super::engine::WireName;
use super::exit::{Exit, fail};
use super::help;
use crate::demo::{self, Mode, Options};

/// Run a router with mock engines on this machine, and watch it work
#[derive(Debug, Args)]
#[command(after_help = help::DEMO, after_long_help = help::DEMO)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(super) struct Demo {
    /// Whose HTTP the engines speak. vLLM's two legs run one after the other, so the times that are shown add up; SGLang's
    /// run at once
    #[arg(long, value_enum, default_value_t = WireName::Vllm, value_name = "WIRE")]
    engine: WireName,
    /// Router's front door; port 0: any free one, printed [default: 127.0.0.1:8080, with --once 127.0.0.1:0]
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<SocketAddr>,
    /// Its probes, metrics and operator routes [default: 127.0.0.1:9090, with --once 127.0.0.1:0]
    #[arg(long, value_name = "IP:PORT")]
    admin_listen: Option<SocketAddr>,
    /// Send nothing by itself: only your requests are seen
    #[arg(long, conflicts_with = "once")]
    no_traffic: bool,
    /// Two releases of the engines, r1 and r2, and a split between them that moves while requests go on: 90/10, 50/50, back,
    /// 0/100
    #[arg(long)]
    canary: bool,
    /// Send eight requests (with --canary some hundred in each step), say what came of them, and end: 0 if all was right,
    /// else 1
    #[arg(long)]
    once: bool,
    /// Say it as one JSON document
    #[arg(long, requires = "once")]
    json: bool,
}

impl Demo {
    pub(super) fn run(&self) -> Exit {
        match demo::run(&self.options()) {
            Ok(true) => Exit::Ok,
            Ok(false) => Exit::Failure,
            Err(error) => fail(&error),
        }
    }

    fn options(&self) -> Options {
        let at = |given: Option<SocketAddr>, port: u16| {
            given.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], if self.once { 0 } else { port })))
        };
        let mode =
            if self.once { Mode::Once { json: self.json } } else { Mode::Live { traffic: !self.no_traffic } };
        let (listen, admin_listen) = (at(self.listen, 8080), at(self.admin_listen, 9090));
        Options { wire: self.engine.into(), listen, admin_listen, canary: self.canary, mode }
    }
}

//! The near end of the load tests: sends requests in one of three ways and verifies every answer.
//!
//! * closed loop: each connection sends its next request when the answer is complete; for cost per request.
//! * open loop (`--rate`, `--schedule`): arrivals on a schedule that does not wait for answers. Latency counts from the scheduled
//!   arrival, so that a stall is charged to all the requests it delayed (no coordinated omission).
//! * idle (`--idle`): opens streams that stay silent, says so on stdout, and waits for a line on stdin; for memory.
//!
//! With `--legs` it is a client that needs no router for prefill and decode: it sends both legs itself.
//!
//! The result is one JSON object on stdout. Exit code 1 when any answer was wrong.

#![allow(unreachable_pub, reason = "a program of its own: nothing is exported")]

#[path = "../common/mod.rs"]
#[allow(dead_code, reason = "each end uses its half")]
mod common;

mod args;
mod client;
mod decode;
mod idle;
mod legs;
mod pace;
mod plan;
mod report;
mod run;

use std::process::ExitCode;

use clap::Parser;
use tokio::task::LocalSet;

fn main() -> anyhow::Result<ExitCode> {
    let args = args::Args::parse();
    let plans = plan::Plans::new(&args)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = LocalSet::new().block_on(&runtime, async {
        if args.idle { idle::hold(&args, plans).await } else { run::run(&args, plans).await }
    })?;
    println!("{}", report.to_json());
    Ok(if report.errors() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

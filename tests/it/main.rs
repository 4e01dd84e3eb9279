//! Integration tests: whole conversations over real sockets. See `tests/README.md` for what belongs here.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::unchecked_time_subtraction,
    unreachable_pub,
    reason = "a test binary: a panic is how its helpers report"
)]

mod admin;
mod architecture;
mod budgets;
mod by_schema;
mod cli;
mod cli_drain;
mod cli_drain_pods;
mod cli_split;
mod config;
mod counts;
mod demo;
mod demo_canary;
mod deploy;
mod discovery;
mod doc_commands;
mod docs;
mod edges;
mod engine;
mod force;
mod gpustack;
mod inflight;
mod keys;
mod no_body;
mod observability;
mod observer;
mod openai_sdk;
mod pairs;
mod pd;
mod pd_basic;
mod pods;
mod policies;
mod process;
mod relay;
mod reload;
mod replay;
mod scale_down;
mod split;
mod upstream;

//! Endpoints that are Pods: what a router makes of an API server, whatever that says, and when.
//!
//! Replays of reported faults carry their row's id (`b59_…`), those of the acceptance list theirs (`ac1_2_…`).

#![expect(clippy::float_cmp, reason = "whole numbers, written and read as such")]

mod addresses;
mod api_failures;
mod basics;
mod cluster;
mod credentials;
mod dialects;
mod events;
mod force;
mod identity;
mod listed;
mod lists;
mod ports;
mod probes;
mod readiness;
mod report;
mod rig;
mod roles;
mod rollout;
mod silence;
mod streams;
mod tokens;
mod unknown;
mod visible;

//! The prefill/decode tables, row by row, for both engine kinds, with scripted engines in memory on a paused clock.

#![expect(clippy::float_cmp, reason = "whole numbers, written and read as such")]

mod bodies;
mod bootstrap;
mod ending;
mod ends;
mod force;
mod head;
mod holds;
mod leaks;
mod report;
mod retry;
mod rig;
mod storm;
mod totals;
mod traces;

//! The prefill/decode tables, row by row, for both engine kinds, with scripted engines in memory on a paused clock.

mod bodies;
mod ending;
mod ends;
mod head;
mod holds;
mod retry;
mod rig;
mod totals;

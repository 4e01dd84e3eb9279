//! The kit's own tests: a rig that cannot see a fault would pass every other test.

mod client;
mod engine;
mod faults;
mod h2;
mod memory;

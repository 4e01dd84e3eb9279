//! A drain that forces: what is open at its deadline is cut, and nothing else ever is. Plain engines;
//! pairs are in `pd/force.rs`, Pods in `discovery/force.rs`.

#![expect(clippy::float_cmp, reason = "whole numbers, written and read as such")]

mod busy;
mod plain;

use tandem::types::clock::wall_ms;
use tandem::types::drain_order::DrainOrder;

/// An order with a deadline in so many milliseconds.
pub(crate) fn order(in_ms: u64, force: bool) -> DrainOrder {
    DrainOrder { reason: "disk".to_owned(), deadline_ms: Some(wall_ms() + in_ms), force }
}

//! 3. May it enter? Keys first (they cost no body), then the process bounds. A permit lives until the response body ends.

mod permit;

pub use permit::{Bound, Permit};

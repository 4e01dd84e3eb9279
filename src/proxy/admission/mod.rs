//! 3. May it enter? Keys first (they cost no body), then the process bounds. A permit lives until the response body ends.

pub mod keys;
mod permit;

pub use keys::{ApiKeys, AuthError};
pub use permit::{Bound, Permit};

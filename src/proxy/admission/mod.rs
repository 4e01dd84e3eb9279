//! 3. May it enter.

pub mod keys;

//! What several targets share.

pub mod reference;

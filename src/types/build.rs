//! Which build this is. Filled in by the build script; "unknown" where it could not tell.

/// Of the package, as in `Cargo.toml`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Short git revision.
pub const REVISION: &str = env!("BUILD_OF_REVISION");
/// Compiler, as it names itself.
pub const RUSTC: &str = env!("BUILD_OF_RUSTC");
/// Target triple.
pub const TARGET: &str = env!("BUILD_OF_TARGET");
/// `debug` or `release`.
pub const PROFILE: &str = env!("BUILD_OF_PROFILE");

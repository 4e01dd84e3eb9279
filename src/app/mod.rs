//! The only place that knows every plane: a configuration becomes a running router.

/// Runs the router until it has shut down.
///
/// # Errors
/// When it cannot start. Always, until the planes are wired here.
pub fn run(_: crate::config::RouterConfig) -> anyhow::Result<()> {
    anyhow::bail!("this build cannot run the router yet")
}

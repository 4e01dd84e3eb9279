//! What the process says about itself in words: diagnostics on standard error, and the [`access`] log.
//!
//! Diagnostics go through `tracing`. Only our own targets follow the configured level: HTTP libraries print header
//! values at `trace`, and a key must not reach a log because somebody debugs the router. The target `audit` (one line
//! per admin change) is shown at every level.

pub mod access;

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::config;

/// Target of audit lines.
pub const AUDIT: &str = "audit";

/// Diagnostics could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    #[error("log.level {0:?} is not one of error, warn, info, debug, trace")]
    Level(String),
    #[error("diagnostics were set up twice: {0}")]
    Twice(#[from] TryInitError),
}

/// Sends diagnostics to `writer`, which is standard error unless something else is drawn there, for the rest of the
/// process. Once per process.
pub fn init<W>(log: &config::Log, writer: W) -> Result<(), InitError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = filter(&log.level)?;
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let layer = match log.format {
        config::LogFormat::Json => lines.json().flatten_event(true).boxed(),
        config::LogFormat::Text => lines.with_ansi(colours()).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(filter)).try_init()?;
    Ok(())
}

/// Colours on a terminal, unless <https://no-color.org> is set.
fn colours() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn filter(level: &str) -> Result<Targets, InitError> {
    let ours = match level {
        "error" => LevelFilter::ERROR,
        "warn" => LevelFilter::WARN,
        "info" => LevelFilter::INFO,
        "debug" => LevelFilter::DEBUG,
        "trace" => LevelFilter::TRACE,
        other => return Err(InitError::Level(other.to_owned())),
    };
    let others = ours.min(LevelFilter::WARN);
    Ok(Targets::new().with_default(others).with_target("tandem", ours).with_target(AUDIT, LevelFilter::INFO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn dependencies_never_speak_below_warn() {
        let filter = filter("trace").unwrap();
        assert!(filter.would_enable("tandem::proxy", &Level::TRACE));
        assert!(!filter.would_enable("hyper::proto", &Level::INFO));
        assert!(filter.would_enable("hyper::proto", &Level::WARN));
    }

    #[test]
    fn audit_lines_are_shown_at_every_level() {
        let filter = filter("error").unwrap();
        assert!(filter.would_enable(AUDIT, &Level::INFO));
        assert!(!filter.would_enable("tandem::proxy", &Level::WARN));
        assert!(!filter.would_enable("hyper", &Level::WARN));
    }

    #[test]
    fn an_unknown_level_is_an_error() {
        assert!(matches!(super::filter("verbose"), Err(InitError::Level(_))));
    }
}

//! Exit codes, the same for every command, and the reports that go with them.

use std::io::Write as _;
use std::process::ExitCode;

use crate::config::Problem;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    Ok = 0,
    /// It was understood and tried, and failed.
    Failure = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// A server that is needed does not answer.
    Unreachable = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// Every mistake on a line of its own, then how many, on standard error.
pub(super) fn report(problems: &[Problem]) -> Exit {
    let plural = if problems.len() == 1 { "" } else { "s" };
    let mut lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.push(format!("{} mistake{plural} in the configuration\n", problems.len()));
    let _ = std::io::stderr().lock().write_all(lines.join("\n").as_bytes()); // nowhere left to report to
    Exit::Usage
}

/// A failure with its causes, on standard error.
pub(super) fn fail(error: &anyhow::Error) -> Exit {
    say(&format!("{error:#}"));
    Exit::Failure
}

/// One line on standard error.
pub(super) fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "tandem: {line}"); // nowhere left to report to
}

/// A result on standard output. A reader that stopped reading (`| head`) is no failure.
pub(super) fn show(text: &str) -> Exit {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            fail(&anyhow::Error::new(e).context("standard output"))
        }
        _ => Exit::Ok,
    }
}

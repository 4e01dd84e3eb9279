//! Why a leg failed, told in the terms the retry table decides on (`docs/request-lifecycle.md`): what the engine may
//! have read, and whether it answered anything.

use std::io;
use std::time::Duration;

use rustix::io::Errno;

/// How much of the request left us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Written {
    /// Not one byte.
    Nothing,
    /// Some, but not all: the engine cannot have a whole request.
    Part,
    /// All of it: the engine may have read and executed it.
    All,
}

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("connection refused or unreachable")]
    Connect,
    /// We could not even try: this process or its machine is out of descriptors or memory. No fault of the engine.
    #[error("this router is out of descriptors or memory")]
    Local,
    /// The same for local ports, which are counted for each engine: another one may still be reached.
    #[error("this router has no local port or address for it")]
    LocalPort,
    #[error("connect timed out")]
    ConnectTimeout,
    /// Closed or reset by the engine before the answer was complete.
    #[error("connection lost")]
    Lost,
    /// Bytes that are not one valid HTTP/1.1 answer; the text says which rule.
    #[error("malformed answer: {0}")]
    Malformed(&'static str),
    #[error("no answer in time")]
    FirstByteTimeout,
    #[error("silent for too long inside the answer")]
    IdleTimeout,
    #[error("took no request bytes for too long")]
    WriteStall,
    #[error("total time limit")]
    TotalTimeout,
    /// We ended it: its engine's drain reached a deadline that forces. No fault of the engine.
    #[error("cut at the deadline of the engine's drain")]
    Cut,
}

impl Fault {
    /// What a failed dial means.
    pub fn of_dial(error: &io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => Self::Local,
            Some(Errno::ADDRNOTAVAIL) => Self::LocalPort,
            _ => Self::Connect,
        }
    }

    /// Our own shortage: says nothing about the engine.
    pub fn is_local(self) -> bool {
        matches!(self, Self::Local | Self::LocalPort)
    }
}

/// A failed leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LegError {
    pub fault: Fault,
    pub written: Written,
    /// At least one byte of an answer was read.
    pub answered: bool,
    /// For a connection from the pool: how long it had waited there, and how long after our first byte it failed.
    pub reused: Option<(Duration, Duration)>,
}

impl LegError {
    /// A failure before any byte was written.
    pub fn before_write(fault: Fault) -> Self {
        Self { fault, written: Written::Nothing, answered: false, reused: None }
    }

    /// A failure while the answer's body was read.
    pub fn in_answer(fault: Fault) -> Self {
        Self { fault, written: Written::All, answered: true, reused: None }
    }

    /// Cut by a drain. What the engine may have read is taken to be everything.
    pub fn cut() -> Self {
        Self { fault: Fault::Cut, written: Written::All, answered: false, reused: None }
    }

    pub fn is_timeout(&self) -> bool {
        matches!(
            self.fault,
            Fault::FirstByteTimeout | Fault::IdleTimeout | Fault::WriteStall | Fault::TotalTimeout
        )
    }

    /// A keep-alive race rather than an engine fault: the engine closed the waiting connection just as we used it
    /// (pd.md, last retry row: idle for 100 ms or more, lost within 100 ms of our first byte, nothing answered).
    pub fn is_reuse_race(&self) -> bool {
        const RACE: Duration = Duration::from_millis(100);
        self.fault == Fault::Lost
            && !self.answered
            && self.reused.is_some_and(|(idle, since_write)| idle >= RACE && since_write <= RACE)
    }
}

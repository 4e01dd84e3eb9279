//! The one thread that writes access lines, and the bounded queue before it.
//!
//! An operating system thread, because a write to a full pipe or a slow disk blocks. Whatever the sink does, the process
//! goes on: a failed write loses its lines, is counted, and is told once per run of failures.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;

use super::{AccessLog, FULL, Local, SPARE};
use crate::config::{self, LogSink};
use crate::metrics::AccessLogMetrics;
use crate::types::clock;

/// Buffers that may wait for the sink: about 2 MiB.
const WAITING: usize = 64;
/// Emptied buffers kept for reuse.
const SPARES: usize = 16;
/// How long the writer waits when a sink that does not block (an inherited pipe) is full.
const FULL_SINK_PAUSE: Duration = Duration::from_millis(10);
/// How many such pauses before the rest of the buffer is given up.
const FULL_SINK_PAUSES: u32 = 100;
/// What dropping an [`AccessSink`] that was not closed waits at most.
const DROP_WAIT: Duration = Duration::from_secs(1);

/// Lines of one traffic thread.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    pub(super) lines: u64,
}

impl Batch {
    pub(super) fn cleared(mut self) -> Self {
        self.bytes.clear();
        self.lines = 0;
        self
    }
}

#[derive(Debug)]
enum Order {
    Write(Batch),
    Reopen,
    End,
}

/// A traffic thread's end of the queue.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    orders: Sender<Order>,
    spares: Receiver<Batch>,
}

impl Queue {
    pub(super) fn empty(&self) -> Batch {
        self.spares.try_recv().unwrap_or_else(|_| Batch { bytes: Vec::with_capacity(FULL + SPARE), lines: 0 })
    }

    /// Gives the batch back when there is no room, or no writer any more.
    pub(super) fn offer(&self, batch: Batch) -> Result<(), Batch> {
        self.orders.try_send(Order::Write(batch)).map_err(|refused| match refused.into_inner() {
            Order::Write(batch) => batch,
            Order::Reopen | Order::End => Batch::default(),
        })
    }
}

/// The access log of the process.
#[derive(Debug)]
pub struct AccessSink {
    config: config::AccessLog,
    metrics: AccessLogMetrics,
    /// `None` for `off`.
    writer: Option<Writer>,
}

#[derive(Debug)]
struct Writer {
    queue: Queue,
    ended: Receiver<()>,
    handles: Mutex<Vec<Weak<Local>>>,
}

impl AccessSink {
    /// Opens the sink and starts the writer. Fails when the file cannot be opened for appending.
    pub fn start(config: &config::AccessLog, metrics: AccessLogMetrics) -> io::Result<Self> {
        let (target, path) = match &config.sink {
            LogSink::Off => return Ok(Self { config: config.clone(), metrics, writer: None }),
            // Descriptor 1 itself: the library's `Stdout` would look for line ends in every buffer.
            LogSink::Stdout => (File::from(io::stdout().as_fd().try_clone_to_owned()?), None),
            LogSink::File(path) => (open(path)?, Some(path.clone())),
        };
        Self::with_target(config, metrics, target, path)
    }

    /// Starts the writer on a file that is open already, such as a pipe; `sink` of the configuration is not looked at.
    pub fn to(config: &config::AccessLog, metrics: AccessLogMetrics, target: File) -> io::Result<Self> {
        Self::with_target(config, metrics, target, None)
    }

    pub(super) fn with_target(
        config: &config::AccessLog,
        metrics: AccessLogMetrics,
        target: impl Write + From<File> + Send + 'static,
        path: Option<PathBuf>,
    ) -> io::Result<Self> {
        let (orders, queue) = bounded(WAITING);
        let (give_back, spares) = bounded(SPARES);
        let (end, ended) = bounded(1);
        let mut output = Output { target, path, metrics: metrics.clone(), failing: false, torn: false };
        thread::Builder::new().name("access-log".to_owned()).spawn(move || {
            output.run(&queue, &give_back);
            let _ = end.send(());
        })?;
        let queue = Queue { orders, spares };
        let writer = Writer { queue, ended, handles: Mutex::default() };
        Ok(Self { config: config.clone(), metrics, writer: Some(writer) })
    }

    /// A handle for one traffic thread.
    pub fn handle(&self) -> AccessLog {
        let Some(writer) = &self.writer else { return AccessLog::off() };
        let (format, sample) = (self.config.format, self.config.sample);
        let local = Local::new(format, sample, self.metrics.clone(), writer.queue.clone());
        let mut handles = writer.handles.lock();
        handles.retain(|handle| handle.strong_count() > 0);
        handles.push(Arc::downgrade(&local));
        AccessLog(Some(local))
    }

    /// Opens the file again, after the one being written was renamed by a log rotation. Lines accepted before this call
    /// go to the old file. Nothing for `stdout`. False when the queue is full: try again.
    pub fn reopen(&self) -> bool {
        self.writer.as_ref().is_none_or(|writer| writer.queue.orders.try_send(Order::Reopen).is_ok())
    }

    /// Writes what every handle holds and ends the writer; later lines are counted as dropped. Blocks for at most
    /// `wait`: a sink that is stuck must not keep the process. False when it was: lines may be missing.
    pub fn close(mut self, wait: Duration) -> bool {
        self.end(wait)
    }

    fn end(&mut self, wait: Duration) -> bool {
        let Some(writer) = self.writer.take() else { return true };
        let deadline = clock::now() + wait;
        let left = || deadline.saturating_duration_since(clock::now());
        for handle in writer.handles.lock().drain(..).filter_map(|handle| handle.upgrade()) {
            let batch = handle.take();
            let lines = batch.lines;
            if lines > 0 && writer.queue.orders.send_timeout(Order::Write(batch), left()).is_err() {
                self.metrics.dropped_lines.inc_by(lines);
            }
        }
        let _ = writer.queue.orders.send_timeout(Order::End, left());
        // An error here means that the thread is gone without its last word: it ended all the same.
        writer.ended.recv_timeout(left()) != Err(crossbeam_channel::RecvTimeoutError::Timeout)
    }
}

impl Drop for AccessSink {
    fn drop(&mut self) {
        self.end(DROP_WAIT);
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).open(path)
}

/// The writer thread's side.
struct Output<T> {
    target: T,
    path: Option<PathBuf>,
    metrics: AccessLogMetrics,
    /// The last write failed, and was told.
    failing: bool,
    /// The last failure was inside a line: the next write ends it first, so that only that line is damaged.
    torn: bool,
}

impl<T: Write + From<File>> Output<T> {
    fn run(&mut self, orders: &Receiver<Order>, spares: &Sender<Batch>) {
        while let Ok(order) = orders.recv() {
            match order {
                Order::Write(batch) => {
                    self.write(&batch);
                    let _ = spares.try_send(batch.cleared());
                }
                Order::Reopen => self.reopen(),
                Order::End => break,
            }
        }
        // Handles that raced with the end.
        for order in orders.try_iter() {
            if let Order::Write(batch) = order {
                self.write(&batch);
            }
        }
        let _ = self.target.flush();
    }

    fn write(&mut self, batch: &Batch) {
        let result = self.end_torn_line().and_then(|()| self.write_all(&batch.bytes));
        match result {
            Ok(()) => {
                self.metrics.lines.inc_by(batch.lines);
                if std::mem::take(&mut self.failing) {
                    tracing::info!("the access log is written again");
                }
            }
            Err(Failure { written, error }) => {
                let complete = memchr::memchr_iter(b'\n', &batch.bytes[..written]).count() as u64;
                self.torn |= written > 0 && batch.bytes[written - 1] != b'\n';
                self.metrics.lines.inc_by(complete);
                self.metrics.dropped_lines.inc_by(batch.lines.saturating_sub(complete));
                self.metrics.write_errors.inc();
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(%error, "access lines are lost: the sink cannot be written");
                }
            }
        }
    }

    fn end_torn_line(&mut self) -> Result<(), Failure> {
        if self.torn {
            self.write_all(b"\n").map_err(|failure| Failure { written: 0, ..failure })?;
            self.torn = false;
        }
        Ok(())
    }

    /// `write_all` that says how far it came and has patience with a sink that does not block.
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let mut written = 0;
        let mut pauses = 0;
        while written < bytes.len() {
            match self.target.write(&bytes[written..]) {
                Ok(0) => return Err(Failure { written, error: ErrorKind::WriteZero.into() }),
                Ok(n) => (written, pauses) = (written + n, 0),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && pauses < FULL_SINK_PAUSES => {
                    pauses += 1;
                    thread::sleep(FULL_SINK_PAUSE);
                }
                Err(error) => return Err(Failure { written, error }),
            }
        }
        Ok(())
    }

    fn reopen(&mut self) {
        let Some(path) = &self.path else { return };
        match open(path) {
            Ok(file) => (self.target, self.torn) = (T::from(file), false),
            Err(error) => tracing::warn!(%error, "access log not reopened; the old file goes on"),
        }
    }
}

struct Failure {
    written: usize,
    error: io::Error,
}

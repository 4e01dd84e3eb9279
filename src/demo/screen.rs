//! Standard output: a table that is redrawn in place on a terminal, plain lines elsewhere.
//!
//! Only the table is drawn anew; what was printed above it stays, so that commands can be copied while it runs.
//! Diagnostics would land in the middle of it: where both go to a terminal, they are kept and printed above the table.

use std::io::{self, IsTerminal as _, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::termios::tcgetwinsize;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

/// Up so many lines, then forget all from there on.
const CLEAR: &str = "\x1b[J";
/// Where the terminal does not tell its size.
const SIZE: (usize, usize) = (24, 80);

#[derive(Debug)]
pub(super) struct Screen {
    pub(super) terminal: bool,
    /// Lines of the table that is there.
    drawn: usize,
    said: Said,
}

/// Diagnostics that wait to be printed.
#[derive(Debug, Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Screen {
    /// A terminal that can move its cursor, or something that takes lines.
    pub(super) fn new() -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        Self { terminal: io::stdout().is_terminal() && !dumb, drawn: 0, said: Said::default() }
    }

    /// Lines, whoever reads.
    pub(super) fn plain() -> Self {
        Self { terminal: false, drawn: 0, said: Said::default() }
    }

    /// Where diagnostics go.
    pub(super) fn diagnostics(&self) -> BoxMakeWriter {
        if self.terminal && io::stderr().is_terminal() {
            let said = self.said.clone();
            BoxMakeWriter::new(move || said.clone())
        } else {
            BoxMakeWriter::new(io::stderr)
        }
    }

    /// Text that stays; a table is gone until it is drawn again.
    pub(super) fn print(&mut self, text: &str) -> io::Result<()> {
        let said = std::mem::take(&mut *self.said.0.lock());
        let clear = self.clear();
        put(&[clear.as_bytes(), &said, text.as_bytes()])
    }

    /// The table in place of the one before, cut to the terminal: a line that wraps could not be found again.
    pub(super) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let (rows, columns) = size();
        let lines: Vec<String> = lines
            .iter()
            .take(rows.saturating_sub(1))
            .map(|line| line.chars().take(columns).collect())
            .collect();
        let said = std::mem::take(&mut *self.said.0.lock());
        let clear = self.clear();
        self.drawn = lines.len();
        let table = lines.join("\n") + "\n";
        put(&[clear.as_bytes(), &said, table.as_bytes()])
    }

    fn clear(&mut self) -> String {
        match std::mem::take(&mut self.drawn) {
            0 => String::new(),
            lines => format!("\x1b[{lines}F{CLEAR}"),
        }
    }
}

impl Drop for Screen {
    /// The last words.
    fn drop(&mut self) {
        let _ = put(&[&self.said.0.lock()]); // nowhere left to report to
    }
}

/// In one write, so that no half of it is ever seen.
fn put(parts: &[&[u8]]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(&parts.concat())?;
    out.flush()
}

/// Rows and columns.
fn size() -> (usize, usize) {
    let size = tcgetwinsize(io::stdout()).ok().map(|size| (size.ws_row.into(), size.ws_col.into()));
    size.filter(|(rows, columns)| *rows > 1 && *columns > 1).unwrap_or(SIZE)
}

//! `tandem demo`: two prefill and two decode engines and the router, on loopback, in one process, to be looked at.
//!
//! The engines are mocks; everything else is what `tandem router` runs, through the same `app`. What is shown is what the
//! router knows: its access lines, read from a pipe, and its endpoints, as the admin listener tells them.
//!
//! * `engines` — the four, and the router's configuration for them.
//! * `traffic`, `ask` — a gentle load, and one request whose right answer is known.
//! * `facts` — access lines and what they add up to.
//! * `live`, `view`, `screen`, `welcome` — the view until Ctrl-C: its loop, its text, its terminal, what is printed first.
//! * `once`, `transcript` — a few requests and a verdict, for scripts.

mod ask;
mod engines;
mod facts;
mod live;
mod once;
mod screen;
mod traffic;
mod transcript;
mod view;
mod welcome;

use std::io::ErrorKind;
use std::net::SocketAddr;

use anyhow::Context as _;

use crate::admin::EndpointStatus;
use crate::app::{self, Started};
use crate::drain::Signals;
use crate::engine::Wire;
use crate::telemetry;
use engines::Engines;
use facts::{Lines, Tally};
use screen::Screen;

/// What to show.
#[derive(Debug, Clone)]
pub struct Options {
    pub wire: Wire,
    /// Front door and admin listener of the router.
    pub listen: SocketAddr,
    pub admin_listen: SocketAddr,
    pub mode: Mode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Until a signal.
    Live { traffic: bool },
    /// A few requests.
    Once { json: bool },
}

/// All that runs, and what it said so far.
#[derive(Debug)]
struct House {
    wire: Wire,
    router: Started,
    lines: Lines,
    tally: Tally,
    /// Dropped last: whoever is left then is cut off.
    engines: Engines,
}

impl House {
    fn endpoints(&self) -> Vec<EndpointStatus> {
        view::sorted(self.router.admin.endpoints.list())
    }
}

/// Whether everything was as it should be; a live view that was ended is. Errors are those of starting.
pub fn run(options: &Options) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("runtime")?;
    runtime.block_on(serve(options))
}

async fn serve(options: &Options) -> anyhow::Result<bool> {
    let mut signals = Signals::new().context("signal handlers")?;
    let mut screen = if matches!(options.mode, Mode::Live { .. }) { Screen::new() } else { Screen::plain() };
    let engines = Engines::start(options.wire).await?;
    let config = engines.router(options);
    telemetry::init(&config.log, screen.diagnostics())?;
    let (log, lines) = Lines::pipe().context("pipe")?;
    let router = app::start(config, Some(log))?;
    let mut house = House { wire: options.wire, router, lines, tally: Tally::default(), engines };
    let leave = async { _ = signals.next().await };
    let good = match options.mode {
        Mode::Live { traffic } => match live::run(&mut house, &mut screen, traffic, leave).await {
            // Whoever read it has seen enough (`| head`).
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(true),
            ended => ended.map(|()| true).context("standard output"),
        },
        Mode::Once { json } => tokio::select! {
            verdict = once::run(&mut house, &mut screen, json) => verdict,
            () = leave => Err(anyhow::anyhow!("ended by a signal before the requests were over")),
        },
    };
    house.router.leave(async { _ = signals.next().await }).await;
    good
}

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
//! * `canary` — two releases, and weights that move from the one to the other.

mod ask;
mod canary;
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
use std::sync::Arc;

use anyhow::Context as _;

use crate::admin::{EndpointControl, EndpointStatus, SplitControl};
use crate::app::{self, Started};
use crate::drain::Signals;
use crate::engine::Wire;
use crate::telemetry;
use engines::{Engines, Pace, Release};
use facts::{Lines, Tally};
use screen::Screen;
use view::Facts;

/// What to show.
#[derive(Debug, Clone)]
pub struct Options {
    pub wire: Wire,
    /// Front door and admin listener of the router.
    pub listen: SocketAddr,
    pub admin_listen: SocketAddr,
    /// Two releases instead of one, and a split that moves.
    pub canary: bool,
    pub mode: Mode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Until a signal.
    Live { traffic: bool },
    /// A few requests.
    Once { json: bool },
}

/// What there is to know, and where from.
struct House {
    wire: Wire,
    front: SocketAddr,
    admin: SocketAddr,
    control: Arc<dyn EndpointControl>,
    splits: Arc<dyn SplitControl>,
    lines: Lines,
    tally: Tally,
    /// Own requests whose text was right, and wrong; none without own traffic.
    texts: Option<(u64, u64)>,
    engines: Engines,
}

impl House {
    fn new(wire: Wire, engines: Engines, router: &Started, lines: Lines) -> Self {
        let (control, splits) = (Arc::clone(&router.admin.endpoints), Arc::clone(&router.admin.splits));
        let (front, admin) = (router.front, router.admin_at);
        Self { wire, front, admin, control, splits, lines, tally: Tally::default(), texts: None, engines }
    }

    fn endpoints(&self) -> Vec<EndpointStatus> {
        view::sorted(self.control.list().endpoints)
    }

    fn facts<'a>(&'a self, endpoints: &'a [EndpointStatus]) -> Facts<'a> {
        Facts { endpoints, tally: &self.tally, texts: self.texts, dead: self.engines.dead() }
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
    let (engines, config) = if options.canary {
        canary::engines(options).await?
    } else {
        let engines = Engines::start(options.wire, &[Release::ONLY], &Pace::GENTLE).await?;
        let config = engines.router(options);
        (engines, config)
    };
    telemetry::init(&config.log, screen.diagnostics())?;
    let (log, lines) = Lines::pipe().context("pipe")?;
    let router = app::start(config, None, Some(log))?;
    let mut house = House::new(options.wire, engines, &router, lines);
    let leave = async { _ = signals.next().await };
    let good = match options.mode {
        Mode::Live { traffic } if options.canary => {
            read(canary::live(&mut house, &mut screen, traffic, leave).await)
        }
        Mode::Live { traffic } => read(live::run(&mut house, &mut screen, traffic, leave).await),
        Mode::Once { json } => tokio::select! {
            verdict = once(&mut house, &mut screen, options.canary, json) => verdict,
            () = leave => Err(anyhow::anyhow!("ended by a signal before the requests were over")),
        },
    };
    router.leave(async { _ = signals.next().await }).await;
    match options.mode {
        Mode::Live { .. } if !options.canary => good.and(read(live::last(&mut house, &mut screen).await)),
        _ => good,
    }
}

async fn once(house: &mut House, screen: &mut Screen, canary: bool, json: bool) -> anyhow::Result<bool> {
    if canary { canary::once(house, screen, json).await } else { once::run(house, screen, json).await }
}

/// A view that was written, or whose reader had seen enough (`| head`).
fn read(written: std::io::Result<()>) -> anyhow::Result<bool> {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("standard output"),
        _ => Ok(true),
    }
}

/// One that serves, for tests.
#[cfg(test)]
fn endpoint(id: &str, role: &'static str, url: &str) -> EndpointStatus {
    EndpointStatus {
        id: id.to_owned(),
        url: url.to_owned(),
        role: role.into(),
        selectable: true,
        reason: None,
        service: "demo".to_owned(),
        in_flight: 0,
        handoffs: 0,
        ejected: false,
        draining: false,
        ..EndpointStatus::default()
    }
}

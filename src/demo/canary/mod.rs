//! `--canary`: two releases behind one router, and a split between them that is moved while requests go on, by the very
//! control that `PUT /split` orders.
//!
//! What the router says of its shares is shown beside what the engines recorded, and the verdict is the engines': the
//! version of the split that a request was decided under comes with it, so none is counted in the wrong step.
//!
//! * `clients` — the requests. `witness` — what the engines recorded. `course` — the steps, and what each came to.
//! * `show` — rows, and what is printed first. `verdict` — what is not as it should be, and the document.

mod clients;
mod course;
mod show;
mod verdict;
mod witness;

use std::io;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, sleep_until, timeout_at};

use super::engines::{Engines, Pace, Release};
use super::screen::Screen;
use super::welcome::url;
use super::{House, Mode, Options};
use crate::config::RouterConfig;
use crate::engine::Timing;
use crate::types::clock::now;
use clients::{Clients, Load};
use course::{Course, STEPS};
use verdict::Transcript;

/// The one in service, and the one that is to replace it.
const RELEASES: [Release; 2] =
    [Release { revision: "r1", token: "kv-v1" }, Release { revision: "r2", token: "kv-v2" }];
/// So that a verdict takes seconds.
const QUICK: Pace = Pace {
    timing: Timing {
        ttft: Duration::from_millis(2),
        prefill_token: Duration::from_micros(20),
        token: Duration::from_millis(1),
        transfer: Duration::from_millis(1),
    },
    log: LOG,
};
/// Requests that an engine remembers: many more than come between two looks.
const LOG: usize = 1024;
/// Requests of a step before the verdict's next one: a tenth of them is then known to five deviations within 8 %.
const REQUESTS: u64 = 200;
/// For the requests of one step.
const LIMIT: Duration = Duration::from_mins(1);
/// How long a step is to be looked at.
const STEP: Duration = Duration::from_secs(15);
/// Between two looks.
const TICK: Duration = Duration::from_millis(250);
const GLANCE: Duration = Duration::from_millis(20);

/// Both releases, and a router whose split gives the second one nothing yet.
pub(super) async fn engines(options: &Options) -> anyhow::Result<(Engines, RouterConfig)> {
    let quick = matches!(options.mode, Mode::Once { .. });
    let pace = if quick { QUICK } else { Pace { log: LOG, ..Pace::GENTLE } };
    let engines = Engines::start(options.wire, &RELEASES, &pace).await?;
    let mut config = engines.router(options);
    for service in &mut config.services {
        service.split = Some(course::entries(STEPS[0].weights));
        // By these the engines' records say which step a request is of.
        service.cohort_headers = true;
    }
    Ok((engines, config))
}

/// Every step with enough requests, then the verdict.
pub(super) async fn once(house: &mut House, screen: &mut Screen, json: bool) -> anyhow::Result<bool> {
    let mut course = Course::new(&*house.splits, &house.engines);
    let clients = Clients::start(house.front, Load::QUICK);
    let mut problems = Vec::new();
    loop {
        let until = now() + LIMIT;
        while course.requests() < REQUESTS && now() < until {
            pass(house, GLANCE).await;
            course.look(&*house.splits, &house.engines, clients.failed());
        }
        if course.at_the_end() {
            break;
        }
        if !course.step(&*house.splits).await {
            problems.push("somebody else moved the split".to_owned());
            break;
        }
    }
    clients.end().await;
    course.look(&*house.splits, &house.engines, clients.failed());
    let transcript = Transcript::new(house, &course.rows(), &clients, problems);
    let text = if json {
        serde_json::to_string_pretty(&transcript)? + "\n"
    } else {
        let mut lines = show::table(&course.rows());
        lines.extend(transcript.last_lines());
        lines.join("\n") + "\n"
    };
    screen.print(&text)?;
    Ok(transcript.ok)
}

/// Runs until `leave` completes. Steps are taken by the clock, until somebody else sets a split: then it is theirs.
pub(super) async fn live(
    house: &mut House,
    screen: &mut Screen,
    traffic: bool,
    leave: impl Future<Output = ()>,
) -> io::Result<()> {
    screen.print(&show::welcome(house.wire, &url(house.front), &url(house.admin), traffic))?;
    let clients = traffic.then(|| Clients::start(house.front, Load::GENTLE));
    let failed = || clients.as_ref().map_or(0, Clients::failed);
    let mut course = Course::new(&*house.splits, &house.engines);
    let (mut tick, mut next, mut told) = (interval(TICK), now() + STEP, 0);
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut leave = std::pin::pin!(leave);
    loop {
        tokio::select! {
            () = &mut leave => break,
            Some(line) = house.lines.next() => house.tally.add(line),
            _ = tick.tick() => {
                let goes_on = traffic && course.goes_on();
                if goes_on && now() >= next {
                    course.step(&*house.splits).await;
                    next = now() + STEP;
                }
                course.look(&*house.splits, &house.engines, failed());
                if screen.terminal {
                    let left = goes_on.then(|| next.saturating_duration_since(now()));
                    screen.draw(&show::screen(&course, left, clients.as_ref()))?;
                } else {
                    screen.print(&show::news(&course, &mut told))?;
                }
            }
        }
    }
    if let Some(clients) = &clients {
        clients.end().await;
    }
    course.look(&*house.splits, &house.engines, failed());
    let mut last = show::table(&course.rows()).join("\n");
    last.push_str("\nleaving\n");
    screen.print(&last)
}

/// Takes access lines for so long: nobody else does, and a full pipe would cost lines.
async fn pass(house: &mut House, time: Duration) {
    let until = now() + time;
    while let Ok(Some(line)) = timeout_at(until, house.lines.next()).await {
        house.tally.add(line);
    }
    sleep_until(until).await;
}

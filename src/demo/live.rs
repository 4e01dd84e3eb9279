//! The view, until it is asked to leave.

use std::io;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, timeout};

use super::House;
use super::screen::Screen;
use super::traffic::Traffic;
use super::view::{Facts, Names, finished, name};
use super::welcome::welcome;
use crate::types::clock::{Instant, now};

/// Between two drawings.
const TICK: Duration = Duration::from_millis(250);
/// Between two lines that sum up, where there is no terminal.
const SUMMARY: Duration = Duration::from_secs(10);
/// For the last access lines, when their writer has ended already.
const LAST: Duration = Duration::from_millis(500);

/// Runs until `leave` completes, or nobody reads standard output any more.
pub(super) async fn run(
    house: &mut House,
    screen: &mut Screen,
    traffic: bool,
    leave: impl Future<Output = ()>,
) -> io::Result<()> {
    screen.print(&welcome(house.wire, house.front, house.admin, &house.endpoints()))?;
    let traffic = traffic.then(|| Traffic::start(house.front));
    let mut lines =
        Plain { names: Names::of(&house.endpoints()), states: Vec::new(), summed: now(), told: 0 };
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut leave = std::pin::pin!(leave);
    loop {
        tokio::select! {
            () = &mut leave => break,
            Some(line) = house.lines.next() => {
                if !screen.terminal {
                    screen.print(&(finished(&line, &lines.names) + "\n"))?;
                }
                house.tally.add(line);
            }
            _ = tick.tick() => {
                house.texts = traffic.as_ref().map(Traffic::texts);
                let endpoints = house.endpoints();
                let facts = house.facts(&endpoints);
                if screen.terminal {
                    screen.draw(&facts.table())?;
                } else {
                    screen.print(&lines.tick(&facts))?;
                }
            }
        }
    }
    house.texts = traffic.as_ref().map(Traffic::texts);
    screen.print("leaving: open requests get a second\n")
}

/// The sum, when the router has written its last line.
pub(super) async fn last(house: &mut House, screen: &mut Screen) -> io::Result<()> {
    let endpoints = house.endpoints();
    let names = Names::of(&endpoints);
    while let Ok(Some(line)) = timeout(LAST, house.lines.next()).await {
        if !screen.terminal {
            screen.print(&(finished(&line, &names) + "\n"))?;
        }
        house.tally.add(line);
    }
    let facts = house.facts(&endpoints);
    if screen.terminal { screen.draw(&facts.table()) } else { screen.print(&(facts.summary() + "\n")) }
}

/// What lines say beside the requests: what changed, and a sum from time to time.
#[derive(Debug)]
struct Plain {
    names: Names,
    states: Vec<String>,
    summed: Instant,
    /// Requests at the last sum.
    told: u64,
}

impl Plain {
    fn tick(&mut self, facts: &Facts<'_>) -> String {
        let mut text = String::new();
        let state = |e| format!("{} is {}\n", name(e), facts.state(e));
        let states: Vec<String> = facts.endpoints.iter().map(state).collect();
        for (at, state) in states.iter().enumerate() {
            if self.states.get(at).is_some_and(|before| before != state) {
                text.push_str(state);
            }
        }
        self.states = states;
        if now().duration_since(self.summed) >= SUMMARY && facts.tally.requests() > self.told {
            (self.summed, self.told) = (now(), facts.tally.requests());
            text.push_str(&(facts.summary() + "\n"));
        }
        text
    }
}

//! The view, until it is asked to leave.

use std::io;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

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

/// Runs until `leave` completes, or nobody reads standard output any more.
pub(super) async fn run(
    house: &mut House,
    screen: &mut Screen,
    traffic: bool,
    leave: impl Future<Output = ()>,
) -> io::Result<()> {
    screen.print(&welcome(house.wire, house.router.front, house.router.admin_at, &house.endpoints()))?;
    let traffic = traffic.then(|| Traffic::start(house.router.front));
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
                let (endpoints, texts) = (house.endpoints(), traffic.as_ref().map(Traffic::texts));
                let facts = Facts { endpoints: &endpoints, tally: &house.tally, texts, dead: house.engines.dead() };
                if screen.terminal {
                    screen.draw(&facts.table())?;
                } else {
                    screen.print(&lines.tick(&facts))?;
                }
            }
        }
    }
    let (endpoints, texts) = (house.endpoints(), traffic.as_ref().map(Traffic::texts));
    let facts = Facts { endpoints: &endpoints, tally: &house.tally, texts, dead: house.engines.dead() };
    let last = format!("leaving; requests: {}\n", facts.requests());
    if screen.terminal {
        screen.draw(&facts.table())?;
        screen.keep();
    }
    screen.print(&last)
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

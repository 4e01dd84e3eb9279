//! The closed and the open loop: connections that take their starts from one pace.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::args::Args;
use crate::client::{Client, Times};
use crate::common::now;
use crate::decode::Fault;
use crate::legs::Pair;
use crate::pace::{Pace, Start};
use crate::plan::{Plan, Plans};
use crate::report::Report;

/// What one connection reads at a time.
const READ_BUFFER: usize = 32 * 1024;

/// Sends all requests and reports.
///
/// # Errors
/// Only what makes a report impossible; wrong answers are in the report.
pub async fn run(args: &Args, plans: Rc<Plans>) -> anyhow::Result<Report> {
    let requests = plans.due.as_ref().map_or(args.requests, Vec::len);
    let report = Rc::new(RefCell::new(Report::new(requests)?));
    let mut lines = Vec::with_capacity(args.connections);
    for number in 0..args.connections {
        let mut line = Line { ends: Ends::of(args, number), open: None };
        // One that is refused now is tried again with its first request.
        line.open = line.ends.connect().await.ok();
        lines.push(line);
    }
    let begin = now();
    let pace = Rc::new(Pace::new(args, &plans));
    let mut workers = JoinSet::new();
    for line in lines {
        let (pace, plans, report) = (Rc::clone(&pace), Rc::clone(&plans), Rc::clone(&report));
        workers.spawn_local(async move { work(line, &pace, &plans, &report).await });
    }
    let all = async { while workers.join_next().await.is_some() {} };
    // What is missing after the limit is counted as unfinished by `end`.
    let _ = tokio::time::timeout(Duration::from_secs(args.limit_s), all).await;
    let mut report = report.take();
    report.end(begin.elapsed());
    Ok(report)
}

/// One connection's life: a request for every start it gets, a new connection after a fault.
async fn work(mut line: Line, pace: &Pace, plans: &Plans, report: &RefCell<Report>) {
    while let Some(start) = pace.next().await {
        let plan = plans.of(start.number);
        match line.exchange(plan).await {
            Ok(times) => report.borrow_mut().answered(start, times, plan.events),
            Err(fault) => report.borrow_mut().failed(fault),
        }
    }
}

/// A place for a connection, or for a pair of them.
struct Line {
    ends: Ends,
    open: Option<Open>,
}

/// Whom it belongs to.
#[derive(Clone, Copy)]
struct Ends {
    target: SocketAddr,
    /// With `--legs`.
    prefill: Option<SocketAddr>,
}

enum Open {
    One(Client),
    Two(Pair),
}

impl Ends {
    /// Neighbours go to other targets; prefills change less often, so that each meets every target.
    fn of(args: &Args, number: usize) -> Self {
        let targets = args.target.len();
        let prefill = args.prefill.get(number / targets % args.prefill.len().max(1));
        Self { target: args.target[number % targets], prefill: prefill.copied() }
    }

    async fn connect(self) -> Result<Open, Fault> {
        Ok(match self.prefill {
            None => Open::One(Client::connect(self.target, READ_BUFFER).await?),
            Some(prefill) => Open::Two(Pair::connect(prefill, self.target, READ_BUFFER).await?),
        })
    }
}

impl Line {
    async fn exchange(&mut self, plan: &Plan) -> Result<Times, Fault> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.ends.connect().await?,
        };
        let times = match &mut open {
            Open::One(client) => client.exchange(&plan.request, &[], &plan.answer).await?,
            Open::Two(pair) => pair.exchange(plan).await?,
        };
        self.open = Some(open);
        Ok(times)
    }
}

/// Kept beside its user: a start is all that a latency needs.
impl Report {
    fn answered(&mut self, start: Start, times: Times, events: usize) {
        self.record(start.told - start.due, times.first - start.due, times.end - start.due, events);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Parser as _;

    use super::*;

    #[test]
    fn every_prefill_meets_every_decode() -> anyhow::Result<()> {
        let words = "loadgen --pd --legs vllm --target 127.0.0.1:1 --target 127.0.0.1:2 --prefill 127.0.0.1:3 \
                     --prefill 127.0.0.1:4";
        let args = Args::try_parse_from(words.split_whitespace())?;
        let met: BTreeSet<_> =
            (0..4).map(|number| Ends::of(&args, number)).map(|ends| (ends.prefill, ends.target)).collect();
        assert_eq!(met.len(), 4, "{met:?}");
        Ok(())
    }
}

//! The closed and the open loop: connections that take their starts from one pace.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::client::Client;
use crate::common::now;
use crate::decode::Fault;
use crate::pace::{Pace, Start};
use crate::plan::{Args, Plan};
use crate::report::Report;

/// Sends all requests and reports.
///
/// # Errors
/// Only what makes a report impossible; wrong answers are in the report.
pub async fn run(args: &Args, plan: Rc<Plan>) -> anyhow::Result<Report> {
    let report = Rc::new(RefCell::new(Report::new(args.requests, plan.events)?));
    let mut clients = Vec::with_capacity(args.connections);
    for _ in 0..args.connections {
        clients.push(Client::connect(args.target, &plan).await.ok());
    }
    let begin = now();
    let pace = Rc::new(Pace::new(args));
    let mut workers = JoinSet::new();
    for client in clients {
        let (pace, plan, report) = (Rc::clone(&pace), Rc::clone(&plan), Rc::clone(&report));
        let target = args.target;
        workers.spawn_local(async move { work(client, target, &pace, &plan, &report).await });
    }
    let all = async { while workers.join_next().await.is_some() {} };
    // What is missing after the limit is counted as unfinished by `end`.
    let _ = tokio::time::timeout(Duration::from_secs(args.limit_s), all).await;
    let mut report = report.take();
    report.end(begin.elapsed());
    Ok(report)
}

/// One connection's life: a request for every start it gets, a new connection after a fault.
async fn work(
    mut client: Option<Client>,
    target: SocketAddr,
    pace: &Pace,
    plan: &Plan,
    report: &RefCell<Report>,
) {
    while let Some(start) = pace.next().await {
        match exchange(&mut client, target, plan).await {
            Ok(first) => report.borrow_mut().answered(start, first, now()),
            Err(fault) => {
                client = None;
                report.borrow_mut().failed(fault);
            }
        }
    }
}

async fn exchange(
    client: &mut Option<Client>,
    target: SocketAddr,
    plan: &Plan,
) -> Result<std::time::Instant, Fault> {
    let mut open = match client.take() {
        Some(open) => open,
        None => Client::connect(target, plan).await?,
    };
    let first = open.exchange(plan).await?;
    *client = Some(open);
    Ok(first)
}

/// Kept beside its user: a start is all that a latency needs.
impl Report {
    fn answered(&mut self, start: Start, first: std::time::Instant, end: std::time::Instant) {
        self.record(start.told - start.due, first - start.due, end - start.due);
    }
}

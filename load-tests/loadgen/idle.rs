//! Streams that are open and silent: what a router holds in memory for each of them.

use std::io::{BufRead as _, Write as _};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::args::Args;
use crate::client::Client;
use crate::common::{event, now};
use crate::decode::Fault;
use crate::plan::Plans;
use crate::report::Report;

/// Connections being opened at one time: below what an accept queue holds.
const OPENING: usize = 64;
/// Enough for a head and the first event: there are thousands of these.
const READ_BUFFER: usize = 2 * 1024;

/// Opens the streams, prints `{"holding":N}`, waits for stdin, and checks that all are still open and silent.
///
/// # Errors
/// Stdin or stdout cannot be used. Streams that failed are in the report.
pub async fn hold(args: &Args, plans: Rc<Plans>) -> anyhow::Result<Report> {
    let mut report = Report::new(args.connections)?;
    let begin = now();
    let open = tokio::time::timeout(Duration::from_secs(args.limit_s), open(args, plans, &mut report)).await;
    let clients = open.unwrap_or_default();
    let mut out = std::io::stdout().lock();
    writeln!(out, "{{\"holding\":{}}}", clients.len())?;
    out.flush()?;
    // A thread waits for the line; the event loop goes on so that closes are noticed.
    let (told, wait) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || told.send(std::io::stdin().lock().read_line(&mut String::new()).is_ok()));
    wait.await?;
    for client in &clients {
        if client.is_silent() {
            report.record(Duration::ZERO, Duration::ZERO, Duration::ZERO, 1);
        } else {
            report.failed(Fault::Closed);
        }
    }
    report.end(begin.elapsed());
    Ok(report)
}

async fn open(args: &Args, plans: Rc<Plans>, report: &mut Report) -> Vec<Client> {
    let gate = Rc::new(Semaphore::new(OPENING));
    let first = event(0, args.event_bytes).len();
    let mut opening = JoinSet::new();
    for number in 0..args.connections {
        let (gate, plans) = (Rc::clone(&gate), Rc::clone(&plans));
        let target = args.target[number % args.target.len()];
        opening.spawn_local(async move {
            let _turn = gate.acquire().await;
            let mut client = Client::connect(target, READ_BUFFER).await?;
            let plan = plans.of(number);
            client.begin(&plan.request, &plan.answer, first).await.map(|()| client)
        });
    }
    let mut clients = Vec::with_capacity(args.connections);
    while let Some(done) = opening.join_next().await {
        match done {
            Ok(Ok(client)) => clients.push(client),
            Ok(Err(fault)) => report.failed(fault),
            Err(_) => report.failed(Fault::Unfinished),
        }
    }
    clients
}

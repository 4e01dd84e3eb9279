//! Streams that are open and silent: what a router holds in memory for each of them.

use std::io::{BufRead as _, Write as _};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::common::{event, now};
use crate::decode::Fault;
use crate::plan::{Args, Plan};
use crate::report::Report;

/// Connections being opened at one time: below what an accept queue holds.
const OPENING: usize = 64;

/// Opens the streams, prints `{"holding":N}`, waits for stdin, and checks that all are still open and silent.
///
/// # Errors
/// Stdin or stdout cannot be used. Streams that failed are in the report.
pub async fn hold(args: &Args, plan: Rc<Plan>) -> anyhow::Result<Report> {
    let mut report = Report::new(args.connections, 1)?;
    let begin = now();
    let open = tokio::time::timeout(Duration::from_secs(args.limit_s), open(args, plan, &mut report)).await;
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
            report.record(Duration::ZERO, Duration::ZERO, Duration::ZERO);
        } else {
            report.failed(Fault::Closed);
        }
    }
    report.end(begin.elapsed());
    Ok(report)
}

async fn open(args: &Args, plan: Rc<Plan>, report: &mut Report) -> Vec<Client> {
    let gate = Rc::new(Semaphore::new(OPENING));
    let first = event(0, args.event_bytes).len();
    let mut opening = JoinSet::new();
    for _ in 0..args.connections {
        let (gate, plan, target) = (Rc::clone(&gate), Rc::clone(&plan), args.target);
        opening.spawn_local(async move {
            let _turn = gate.acquire().await;
            let mut client = Client::connect(target, &plan).await?;
            client.begin(&plan, first).await.map(|()| client)
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

//! Is "quiesced" in the in-flight report ever contradicted by an engine's log (R5), and does every count return to zero (R4)? The
//! storm of `tests/drain_storm` on real threads: three `tandem router` processes, a fake API server over HTTP, mock engines and
//! clients on loopback; `docs/benchmarks.md`, "Drain".
//!
//! * `fleet` — Pods, the engines behind them, and what befalls them. `routers` — the processes, and the readers of their reports.
//! * `clients` — requests. `lag` — how late this machine is, which widens what the judge allows.
//!
//! Exit code 1: a contradiction, a count that is not zero in time, or an outcome too many or too few.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic, reason = "a program that measures")]

mod clients;
mod fleet;
mod lag;
mod routers;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Parser;
use parking_lot::Mutex;
use tandem::testkit::kube::FakeKube;
use tandem::testkit::quiet::{Limits, Logs, Reports};
use tandem::types::clock::{Instant, now};
use tokio::time::sleep;

use clients::Load;
use fleet::Fleet;
use lag::Lag;
use routers::{Router, Wrong};

/// Replicas of the router.
const ROUTERS: usize = 3;
/// From a leg's end in the router to the engine's notice, and from its last look at the bit to the engine's: as in R1.
const SLACK: Duration = Duration::from_millis(50);

/// Judges in-flight reports by engines' logs.
#[derive(Debug, Parser)]
struct Args {
    /// Requests, over all routers.
    #[arg(long, default_value_t = 1_000_000)]
    requests: u64,
    /// Clients of each router.
    #[arg(long, default_value_t = 12)]
    clients: usize,
    /// Seed of what befalls the Pods.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Longest run, seconds: no new request after it.
    #[arg(long, default_value_t = 1200)]
    limit: u64,
    #[command(flatten)]
    calm: Calm,
}

/// For a run of an hour beside other work (`load-tests/soak.py`): nothing of it is set in the storm.
#[derive(Debug, Clone, Copy, clap::Args)]
struct Calm {
    /// Mean pause of a client between two requests, milliseconds; above 0 some requests are large and some come over HTTP/2.
    #[arg(long, default_value_t = 0)]
    pace: u64,
    /// Mean time between two events of the fleet, milliseconds.
    #[arg(long, default_value_t = 20)]
    step: u64,
    /// Time between two reports of a router, milliseconds.
    #[arg(long, default_value_t = 5)]
    every: u64,
    /// One new Pod in two comes at an address that none had for long, instead of at its predecessor's.
    #[arg(long)]
    fresh: bool,
    /// Seconds for which the routers are left alone at the end, for who looks at them from outside.
    #[arg(long, default_value_t = 0)]
    quiet: u64,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("{wrong}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> Result<(), String> {
    let api = FakeKube::with_replicas(ROUTERS);
    let mut fleet = Fleet::new(&api, args.seed, args.calm).await;
    let reports = Arc::new(Mutex::new(Reports::new(ROUTERS, Limits { slack: SLACK, stale: Duration::ZERO })));
    let mut routers = Vec::new();
    for n in 0..ROUTERS {
        routers.push(Router::start(n, &api).await);
    }
    let wrong = Wrong::default();
    let every = Duration::from_millis(args.calm.every);
    let read = |router: &Router| router.read(every, Arc::clone(&reports), Arc::clone(&wrong));
    let readers: Vec<_> = routers.iter().map(read).collect();
    let lag = Lag::start();
    let seen = Seen { reports: &reports, wrong: &wrong, lag: &lag };
    fleet.all_selectable(&reports).await?;
    let load = Load::start(&routers, args.clients, args.requests, args.calm.pace);
    let (began, mut logs) = (now(), Logs::default());
    let limit = Duration::from_secs(args.limit);
    let stormy = storm(&mut fleet, &mut logs, (&seen, &routers, &load), limit).await;
    let took = began.elapsed();
    if stormy.is_err() {
        load.abort();
        readers.iter().for_each(tokio::task::JoinHandle::abort);
    }
    stormy?;
    load.stop().await;
    let zero = all_zero(&reports).await;
    let rest = fleet.rest(&mut logs, &seen).await;
    readers.iter().for_each(tokio::task::JoinHandle::abort);
    rest?;
    let zero = zero?;
    let mut outcomes = 0;
    for (router, sent) in routers.iter().zip(&load.by_router) {
        let (counted, sent) = (router.outcomes().await.ok_or("no metrics")?, sent.load(Ordering::Relaxed));
        outcomes += counted;
        if counted > sent {
            return Err(format!("{counted} outcomes of {sent} requests"));
        }
    }
    // Whoever was gone when the router first looked at the connection asked nothing, as far as it knows.
    let left = load.answers.lock().get(&0).copied().unwrap_or(0);
    if outcomes + left < load.sent() {
        return Err(format!("{outcomes} outcomes of {} requests, {left} of which left", load.sent()));
    }
    show(&load, took, &fleet, &reports.lock(), &logs, &lag, (zero, outcomes));
    if args.calm.quiet > 0 {
        eprintln!("quiet for {} s", args.calm.quiet);
        sleep(Duration::from_secs(args.calm.quiet)).await;
    }
    Ok(())
}

/// What the work is held against.
struct Seen<'a> {
    reports: &'a Mutex<Reports>,
    wrong: &'a Wrong,
    lag: &'a Lag,
}

/// Until the last request was sent.
async fn storm(
    fleet: &mut Fleet,
    logs: &mut Logs,
    (seen, routers, load): (&Seen<'_>, &[Router], &Load),
    limit: Duration,
) -> Result<(), String> {
    let (began, mut shown) = (now(), now());
    while !load.is_over() && since(began) < limit {
        fleet.step(seen.reports, routers).await;
        judge(logs, fleet, seen)?;
        fleet.forget(seen.reports);
        if since(shown) > Duration::from_secs(20) {
            shown = now();
            eprintln!("{:4.0} s: {} requests", since(began).as_secs_f64(), load.sent());
        }
    }
    Ok(())
}

/// Judges what was taken before, once every router was read since; then takes what is over by now.
fn judge(logs: &mut Logs, fleet: &Fleet, seen: &Seen<'_>) -> Result<(), String> {
    if let Some(wrong) = seen.wrong.lock().take() {
        return Err(wrong);
    }
    let reports = seen.reports.lock();
    if fleet.taken().is_some_and(|at| !reports.are_since(at)) {
        return Ok(());
    }
    logs.judge(&reports, |from, to| seen.lag.between(from, to))?;
    drop(reports);
    logs.take(fleet.engines());
    fleet.mark_taken();
    Ok(())
}

/// From the last client's end until nothing is in flight anywhere (R4). Slowest of the rules: an SGLang prefill's answer is read
/// on for 4 s behind its decode's.
async fn all_zero(reports: &Mutex<Reports>) -> Result<Duration, String> {
    let began = now();
    loop {
        let left: Vec<String> = {
            let reports = reports.lock();
            let rows = (0..ROUTERS).flat_map(|n| reports.newest(n).into_values());
            let busy = rows.filter(|row| row.in_flight.total() > 0);
            let mut left: Vec<String> = busy.map(|row| format!("{row:?}")).collect();
            if !reports.are_since(began) {
                left.push("not read yet".to_owned());
            }
            left
        };
        if left.is_empty() {
            return Ok(began.elapsed());
        }
        if began.elapsed() > Duration::from_secs(5) {
            return Err(format!("R4: 5 s after the last request: {left:#?}"));
        }
        sleep(Duration::from_millis(5)).await;
    }
}

fn show(
    load: &Load,
    took: Duration,
    fleet: &Fleet,
    reports: &Reports,
    logs: &Logs,
    lag: &Lag,
    (zero, counted): (Duration, u64),
) {
    let done = &fleet.done;
    let outcomes = load.answers.lock().clone();
    let rows = [
        ("requests, outcomes", format!("{}, {counted}", load.sent())),
        ("statuses (0: the client left, 1: the answer was cut)", format!("{outcomes:?}")),
        ("seconds", format!("{:.0}", took.as_secs_f64())),
        ("withdrawals (label, Ready, drain annotation, membership, order)", done.withdrawals.to_string()),
        ("restores", done.restores.to_string()),
        ("deletions, creations", format!("{}, {}", done.deletions, done.creations)),
        ("creations at a fresh address", done.fresh.to_string()),
        ("reports read", reports.read.to_string()),
        ("rows, of them quiesced", format!("{}, {}", reports.rows, reports.quiesced)),
        ("legs and moves of KV judged", format!("{}, {}", logs.legs, logs.moved)),
        (
            "by a namesake's rows, between two Pods, KV for no one",
            format!("{}, {}, {}", logs.namesakes, logs.between, logs.unwanted),
        ),
        ("contradictions (R5)", "0".to_owned()),
        ("every count zero after the last request (R4)", format!("{:.0} ms", zero.as_secs_f64() * 1000.0)),
        ("this machine's worst lateness", format!("{:.0} ms", lag.worst().as_secs_f64() * 1000.0)),
    ];
    for (what, value) in rows {
        println!("| {what} | {value} |");
    }
}

/// A span that ended `at`.
fn since(at: Instant) -> Duration {
    now().saturating_duration_since(at)
}

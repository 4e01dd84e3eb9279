//! What a rollout costs the clients (R2), and a router's restart in the middle of it (R6): two prefills and ten decodes move from
//! pairing token `kv-v1` to `kv-v2` under load; `docs/benchmarks.md`, "Rolling 2 prefills and 10 decodes".
//!
//! * `fleet` — engines of both releases and their Pods, and the judge: what each engine saw. `roll` — the controller.
//! * `routers` — the processes under test. `load` — clients. `report` — figures.
//!
//! Everything but the routers is in this process, on loopback. Exit code 1: a client got an error, a decode was told to use a
//! prefill of the other release, or another count that has to be zero is not.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic, reason = "a program that measures")]

mod fleet;
mod load;
mod report;
mod roll;
mod routers;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use tandem::engine::{Role, Timing, Wire};
use tandem::testkit::kube::FakeKube;
use tandem::types::clock::now;
use tokio::sync::Notify;
use tokio::time::sleep;

use fleet::{Fleet, Release, Size, Withdraw, ms};
use load::{Load, Target, ask};
use report::{Latency, Report, Restart, errors};
use roll::{Roll, Rolled};
use routers::{Plan, Router};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Engine {
    Vllm,
    Sglang,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// No split: cohorts by token, weighted by what is selectable.
    Labels,
    /// Weights moved from 0 to 100 while the engines change.
    Split,
}

/// Rolls a fleet under load.
#[derive(Debug, Parser)]
struct Args {
    #[arg(long, value_enum, default_value = "vllm")]
    engine: Engine,
    #[arg(long, value_enum, default_value = "labels")]
    by: By,
    #[arg(long, value_enum, default_value = "marks")]
    withdraw: Withdraw,
    /// Two routers, one of which is restarted when half of the decodes are new.
    #[arg(long)]
    restart: bool,
    /// Pods do not say their token: what a router without cohorts does, and whether the judge sees it.
    #[arg(long)]
    blind: bool,
    /// Requests a second.
    #[arg(long, default_value_t = 200.0)]
    rate: f64,
    /// Words of each answer.
    #[arg(long, default_value_t = 40)]
    events: u32,
    /// Seconds of steady load before the roll.
    #[arg(long, default_value_t = 20.0)]
    seconds: f64,
    /// Milliseconds between two engines.
    #[arg(long, default_value_t = 1000)]
    pause: u64,
    #[arg(long, default_value_t = 2)]
    prefills: usize,
    #[arg(long, default_value_t = 10)]
    decodes: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Tandem's binary; without it the one beside this.
    #[arg(long)]
    tandem: Option<PathBuf>,
    /// Where the figures go as JSON.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Another router's command line, with {listen} and {admin} for its ports; KUBECONFIG is set.
    #[arg(last = true)]
    foreign: Vec<String>,
}

/// Of the mock engines: 20 ms of prefill, 5 ms to move KV, a word each 10 ms.
const TIMING: Timing = Timing {
    ttft: Duration::from_millis(20),
    prefill_token: Duration::ZERO,
    token: Duration::from_millis(10),
    transfer: Duration::from_millis(5),
};
/// Load that counts for nothing: connections are made, caches filled.
const WARM: Duration = Duration::from_secs(1);

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    let args = Args::parse();
    let report = match run(&args).await {
        Ok(report) => report,
        Err(wrong) => {
            eprintln!("{wrong}");
            return ExitCode::FAILURE;
        }
    };
    for (what, value) in report.rows() {
        println!("| {what} | {value} |");
    }
    for (kind, count) in &report.errors {
        println!("{count} × {kind}");
    }
    if let Some(path) = &args.out {
        std::fs::write(path, serde_json::to_string_pretty(&report).unwrap()).unwrap();
    }
    let wrong = report.wrong();
    for wrong in &wrong {
        eprintln!("{wrong}");
    }
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run(args: &Args) -> Result<Report, String> {
    let api = FakeKube::new();
    let server = api.serve().await;
    let wire = if args.engine == Engine::Vllm { Wire::Vllm } else { Wire::Sglang };
    let mut fleet = Fleet::new(&api, wire, TIMING, args.withdraw, args.blind);
    for (role, count) in [(Role::Prefill, args.prefills), (Role::Decode, args.decodes)] {
        for _ in 0..count {
            fleet.add(role, Release::Old).await;
        }
    }
    let mut routers: Vec<Router> =
        (0..=usize::from(args.restart)).map(|_| Router::start(&plan(args, wire), &server)).collect();
    for router in &mut routers {
        router.ready().await?;
    }
    let targets: Vec<_> = routers.iter().map(|router| Arc::clone(&router.target)).collect();
    let admins: Vec<_> =
        if args.foreign.is_empty() { routers.iter().map(Router::admin).collect() } else { vec![] };
    if args.foreign.is_empty() {
        routers.iter().for_each(Router::watch);
    } else {
        all_used(&fleet, &targets).await?;
    }
    let late = lateness();
    let load = Load::start(&targets, args.rate, args.events, args.seed);
    sleep(WARM).await;
    let steady = now();
    late.store(0, Ordering::Relaxed);
    sleep(Duration::from_secs_f64(args.seconds)).await;
    let begins = now();
    let size = Size { prefills: args.prefills, decodes: args.decodes };
    let (split, pause) = (args.by == By::Split, Duration::from_millis(args.pause));
    let mut roll = Roll { admins: &admins, split, pause, size, rolled: Rolled::default() };
    let half = Notify::new();
    let restarted = async {
        if !args.restart {
            return Ok(None);
        }
        half.notified().await;
        restart(&mut routers[0]).await.map(Some)
    };
    let (done, restart) = tokio::join!(roll.run(&mut fleet, || half.notify_one()), restarted);
    let (ends, rolled) = (now(), std::mem::take(&mut roll.rolled));
    let (before, after) = done.and(restart.map(|restart| (restart, targets[0].served())))?;
    sleep(WARM).await;
    let late_ms = late.load(Ordering::Relaxed) as f64 / 1000.0;
    let samples = load.stop().await;
    let restart = before.map(|one| Restart { served_after: after - one.served_after, ..one });
    let (before, during) = (Latency::of(&samples, steady, begins), Latency::of(&samples, begins, ends));
    let ratio = (before.ttft_p99_ms > 0.0).then(|| during.ttft_p99_ms / before.ttft_p99_ms);
    Ok(Report {
        engine: wire.as_str(),
        rate: args.rate,
        requests: samples.len(),
        client_errors: samples.iter().filter(|sample| sample.took.is_err()).count(),
        errors: errors(&samples),
        before,
        during,
        ttft_p99_ratio: ratio,
        engines: fleet.verdict(),
        roll: rolled,
        restart,
        late_ms,
    })
}

fn plan(args: &Args, wire: Wire) -> Plan {
    let beside = || {
        let own = std::env::current_exe().unwrap();
        own.parent().and_then(std::path::Path::parent).unwrap().join("tandem")
    };
    Plan {
        tandem: args.tandem.clone().unwrap_or_else(beside),
        foreign: args.foreign.clone(),
        kind: wire.as_str(),
        split: args.by == By::Split,
    }
}

async fn restart(router: &mut Router) -> Result<Restart, String> {
    let served_before = router.target.served();
    let left = router.restart().await?;
    let served_after = router.target.served();
    Ok(Restart { left_ms: ms(left), served_before, served_after })
}

/// Until a router that reports nothing has used every engine.
async fn all_used(fleet: &Fleet, targets: &[Arc<Target>]) -> Result<(), String> {
    let (began, turn) = (now(), AtomicUsize::new(0));
    loop {
        let answer = ask(targets, &turn, 0, 2).await;
        let unused: Vec<&str> =
            fleet.members.iter().filter(|m| !m.is_used()).map(|m| m.name.as_str()).collect();
        if unused.is_empty() && answer.is_ok() {
            return Ok(());
        }
        if began.elapsed() > Duration::from_mins(1) {
            return Err(format!("not used: {unused:?}; last answer {answer:?}"));
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Microseconds by which this process' timers were late at most.
fn lateness() -> Arc<AtomicU64> {
    const EVERY: Duration = Duration::from_millis(2);
    let worst: Arc<AtomicU64> = Arc::default();
    let mine = Arc::clone(&worst);
    tokio::spawn(async move {
        loop {
            let due = now() + EVERY;
            sleep(EVERY).await;
            let late = now().saturating_duration_since(due).as_micros();
            mine.fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    });
    worst
}

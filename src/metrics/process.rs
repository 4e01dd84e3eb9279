//! The standard `process_*` metrics, read from `/proc/self` at each scrape.
//!
//! Small enough to own: the `prometheus` crate's feature for it brings `procfs` and `libc` for seven numbers. Where
//! there is no `/proc`, the families are absent rather than zero.

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, IntGauge, Result};

use super::{build, names};

/// Ticks per second of the times in `/proc`: `USER_HZ`, 100 on every Linux architecture Rust supports.
const TICKS: f64 = 100.0;

#[derive(Debug)]
pub(super) struct ProcessCollector {
    /// Only described by this one; see `collect_stat`.
    cpu: Counter,
    rss: IntGauge,
    virtual_memory: IntGauge,
    open_fds: IntGauge,
    max_fds: IntGauge,
    threads: IntGauge,
    start: IntGauge,
}

/// The fields of `/proc/self/stat` that are used.
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_ticks: u64,
    threads: i64,
    start_ticks: u64,
    virtual_bytes: i64,
}

impl ProcessCollector {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            cpu: build::loose_counter(&names::PROCESS_CPU)?,
            rss: build::loose_gauge(&names::PROCESS_RSS)?,
            virtual_memory: build::loose_gauge(&names::PROCESS_VIRTUAL)?,
            open_fds: build::loose_gauge(&names::PROCESS_OPEN_FDS)?,
            max_fds: build::loose_gauge(&names::PROCESS_MAX_FDS)?,
            threads: build::loose_gauge(&names::PROCESS_THREADS)?,
            start: build::loose_gauge(&names::PROCESS_START)?,
        })
    }

    fn collect_stat(&self, out: &mut Vec<MetricFamily>) -> Option<()> {
        let stat = parse_stat(&read("/proc/self/stat")?)?;
        // A counter can only be set by a fresh one: resetting the shared one would show another scrape a drop.
        let cpu = build::loose_counter(&names::PROCESS_CPU).ok()?;
        cpu.inc_by(stat.cpu_ticks as f64 / TICKS);
        self.threads.set(stat.threads);
        self.virtual_memory.set(stat.virtual_bytes);
        out.extend(cpu.collect());
        out.extend(self.threads.collect());
        out.extend(self.virtual_memory.collect());
        let boot: i64 = field(&read("/proc/stat")?, "btime ")?;
        self.start.set(boot + (stat.start_ticks as f64 / TICKS) as i64);
        out.extend(self.start.collect());
        Some(())
    }

    fn collect_memory(&self, out: &mut Vec<MetricFamily>) -> Option<()> {
        let kib: i64 = field(&read("/proc/self/status")?, "VmRSS:")?;
        self.rss.set(kib * 1024);
        out.extend(self.rss.collect());
        Some(())
    }

    fn collect_fds(&self, out: &mut Vec<MetricFamily>) -> Option<()> {
        // Less the descriptor that reads the directory.
        let open = std::fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1);
        self.open_fds.set(i64::try_from(open).ok()?);
        out.extend(self.open_fds.collect());
        let max: i64 = field(&read("/proc/self/limits")?, "Max open files")?;
        self.max_fds.set(max);
        out.extend(self.max_fds.collect());
        Some(())
    }
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        let gauges =
            [&self.rss, &self.virtual_memory, &self.open_fds, &self.max_fds, &self.threads, &self.start];
        self.cpu.desc().into_iter().chain(gauges.into_iter().flat_map(Collector::desc)).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut out = Vec::with_capacity(7);
        let _ = self.collect_stat(&mut out);
        let _ = self.collect_memory(&mut out);
        let _ = self.collect_fds(&mut out);
        out
    }
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// The first number after `key` in a `/proc` listing.
fn field(text: &str, key: &str) -> Option<i64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The second field is the program's name in brackets and may hold spaces and brackets: parse from the last one on.
fn parse_stat(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    // Numbering of proc(5), whose third field is the first here.
    let number = |n: usize| fields.get(n - 3)?.parse::<u64>().ok();
    Some(Stat {
        cpu_ticks: number(14)? + number(15)?,
        threads: i64::try_from(number(20)?).ok()?,
        start_ticks: number(22)?,
        virtual_bytes: i64::try_from(number(23)?).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_survives_a_hostile_program_name() {
        let text = "1 (a) b) 9) S 1 1 1 0 -1 4 9 9 9 9 250 50 0 0 20 0 7 0 1234 4096 100 rest";
        let expected = Stat { cpu_ticks: 300, threads: 7, start_ticks: 1234, virtual_bytes: 4096 };
        assert_eq!(parse_stat(text), Some(expected));
        assert_eq!(parse_stat("nothing"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn every_process_family_is_present_and_plausible() {
        let families = ProcessCollector::new().unwrap().collect();
        assert_eq!(families.len(), 7);
        for family in families {
            let metric = &family.get_metric()[0];
            let value = metric.gauge.value().max(metric.counter.value());
            // A test process may not have used a CPU tick yet.
            assert!(value > 0.0 || family.name() == names::PROCESS_CPU.name, "{} = {value}", family.name());
        }
    }
}

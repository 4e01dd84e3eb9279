use std::time::Duration;

use super::{Limits, Reports, Verdict, Work};
use crate::registry::InFlight;
use crate::registry::report::{Entry, Report, Router, SCHEMA};
use crate::types::clock::{Instant, now};

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn row(uid: &str) -> Entry {
    Entry {
        uid: Some(uid.to_owned()),
        namespace: Some("default".to_owned()),
        pod: Some("p".to_owned()),
        service: "s".to_owned(),
        url: "http://e:1".to_owned(),
        role: "prefill".to_owned(),
        revision: None,
        pairing_token: None,
        selectable: true,
        reason: None,
        volatile_drain: false,
        deadline_in_ms: None,
        force: false,
        withdrawn_age_ms: None,
        last_dispatch_age_ms: None,
        in_flight: InFlight::default(),
        forced: 0,
        quiesced_for_ms: None,
    }
}

fn quiet(uid: &str, withdrawn: u64, quiesced: u64) -> Entry {
    let reason = Some("not_ready".to_owned());
    Entry {
        selectable: false,
        reason,
        withdrawn_age_ms: Some(withdrawn),
        quiesced_for_ms: Some(quiesced),
        ..row(uid)
    }
}

/// One router, read at so many milliseconds.
struct Told {
    reports: Reports,
    began: Instant,
    seq: u64,
}

impl Told {
    fn new() -> Self {
        let limits = Limits { slack: ms(50), stale: ms(0) };
        Self { reports: Reports::new(1, limits), began: now(), seq: 0 }
    }

    fn read(&mut self, at: u64, endpoints: Vec<Entry>) -> Result<(), String> {
        self.seq += 1;
        let router = Router { instance: "i".to_owned(), boot_generation: 1, seq: self.seq, now_ms: 0 };
        let report = Report { schema: SCHEMA, router, registry_version: 1, endpoints, pods: Vec::new() };
        let at = self.began + ms(at);
        self.reports.read(0, at, at, &report)
    }

    fn work(&self, uid: &str, began: u64, ended: Option<u64>) -> Result<Verdict, String> {
        let at = |n| self.began + ms(n);
        let (began, ended) = (at(began), ended.map(at));
        let work = Work { router: 0, uid, url: "http://e:1", began, ended, kv: false };
        self.reports.judge(&work, ms(0))
    }
}

/// Selectable from 0, withdrawn at 1000, quiet from 1500, read as that at 1500 and 2000, selectable again at 2500.
fn spell() -> Told {
    let mut told = Told::new();
    let busy = Entry {
        quiesced_for_ms: None,
        in_flight: InFlight { decode: 0, prefill: 1, ..InFlight::default() },
        ..quiet("a", 0, 0)
    };
    told.read(0, vec![row("a")]).unwrap();
    told.read(1000, vec![busy]).unwrap();
    told.read(1500, vec![quiet("a", 500, 0)]).unwrap();
    told.read(2000, vec![quiet("a", 1000, 500)]).unwrap();
    told.read(2500, vec![row("a")]).unwrap();
    told
}

#[test]
fn what_runs_or_begins_while_a_report_says_that_nothing_does_is_a_contradiction() {
    let told = spell();
    for (began, ended) in
        [(1400, Some(1600)), (1400, None), (500, Some(2600)), (1560, Some(1570)), (1999, Some(2600))]
    {
        assert!(told.work("a", began, ended).is_err(), "{began} {ended:?}");
    }
    for (began, ended) in [(100, 1100), (1020, 1500), (1050, 1550), (2001, 2600), (2600, 3000)] {
        assert_eq!(told.work("a", began, Some(ended)), Ok(Verdict::Sound), "{began} {ended}");
    }
}

#[test]
fn restored_and_withdrawn_between_two_readings_is_two_spells() {
    let mut told = spell();
    told.read(3000, vec![quiet("a", 300, 300)]).unwrap();
    told.read(3500, vec![quiet("a", 100, 100)]).unwrap();
    assert_eq!(told.work("a", 3200, Some(3300)), Ok(Verdict::Sound));
    assert!(told.work("a", 3460, Some(3470)).is_err());
}

#[test]
fn what_a_router_sent_before_it_knew_the_pod_is_its_namesakes() {
    let mut told = spell();
    told.read(3000, vec![quiet("b", 0, 0), quiet("a", 400, 400)].into_iter().rev().collect()).unwrap();
    assert_eq!(told.work("b", 2300, Some(2350)), Ok(Verdict::Namesake));
    assert_eq!(told.work("b", 2700, Some(2900)), Ok(Verdict::Between));
    assert!(told.work("b", 1700, Some(1800)).is_err(), "the namesake was quiet");
    assert!(Told::new().work("b", 100, Some(200)).is_err(), "nobody was known");
}

#[test]
fn rows_and_reports_that_contradict_themselves_are_found() {
    let bad = [
        Entry { selectable: true, ..quiet("a", 5, 5) },
        Entry { quiesced_for_ms: None, ..quiet("a", 5, 5) },
        quiet("a", 5, 6),
        Entry { last_dispatch_age_ms: Some(5), ..quiet("a", 90, 80) },
        Entry { uid: None, ..row("a") },
        Entry { in_flight: InFlight { decode: 1, ..InFlight::default() }, ..row("a") },
    ];
    for row in bad {
        assert!(Told::new().read(0, vec![row.clone()]).is_err(), "{row:?}");
    }
    assert!(Told::new().read(0, vec![row("a"), row("a")]).is_err(), "two rows of one UID");
    assert!(Told::new().read(0, vec![row("b"), row("a")]).is_err(), "not sorted");
    let mut told = spell();
    told.seq += 1;
    assert!(told.read(3000, vec![row("a")]).is_err(), "a report is missing");
}

#[test]
fn an_endpoint_leaves_the_report_only_after_its_retention() {
    assert!(spell().read(3000, Vec::new()).is_err(), "it was selectable");
    let mut told = spell();
    told.read(3000, vec![quiet("a", 100, 100)]).unwrap();
    assert!(told.read(3100, Vec::new()).is_err());
    let mut told = spell();
    told.read(18_000, vec![quiet("a", 14_990, 14_990)]).unwrap();
    told.read(18_100, Vec::new()).unwrap();
    let busy = Entry { quiesced_for_ms: None, ..quiet("a", 110, 110) };
    let busy = Entry { in_flight: InFlight { handoff: 1, ..InFlight::default() }, ..busy };
    let mut told = spell();
    told.read(3000, vec![quiet("a", 100, 100)]).unwrap();
    assert!(told.read(3010, vec![busy]).is_err(), "it had nothing and was not restored");
}

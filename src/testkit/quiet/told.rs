//! Everything that every router's reports said, by UID.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use super::row;
use crate::registry::report::{Entry, Report};
use crate::types::clock::Instant;

/// Two readings of one moment from its age differ by as much: ages are whole milliseconds.
const GRAIN: Duration = Duration::from_millis(2);
/// How long an endpoint that left stays after it carried nothing.
const RETENTION: Duration = Duration::from_secs(15);

/// How exact the reader's and the engines' clocks are.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// From the router's last word to a started leg's first byte at the engine, and from the end of a leg to the engine's
    /// notice of it.
    pub slack: Duration,
    /// How much earlier than it was the router may have marked the end of a leg.
    pub stale: Duration,
}

/// What all routers said.
#[derive(Debug)]
pub struct Reports {
    pub(super) limits: Limits,
    routers: Vec<Router>,
    /// Reports, rows, and rows that claimed that nothing is left.
    pub read: u64,
    pub rows: u64,
    pub quiesced: u64,
}

#[derive(Debug, Default)]
struct Router {
    boot: Option<(String, u64)>,
    seq: u64,
    /// When its last report was asked for.
    last: Option<Instant>,
    uids: HashMap<String, Told>,
}

/// What one router said of one UID.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) url: String,
    /// The first report with it; asked for before that: one without it.
    pub(super) first: Instant,
    pub(super) absent: Option<Instant>,
    /// Times without new requests, in order.
    pub(super) spells: Vec<Spell>,
    /// The newest row, while it is in the report.
    shown: Option<(Instant, Entry)>,
}

/// From a withdrawal to the restoration.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spell {
    pub(super) withdrawn: Instant,
    /// Nothing was left from the first of these to the second.
    pub(super) quiet: Option<(Instant, Instant)>,
    /// It was still so then.
    pub(super) until: Instant,
}

impl Reports {
    pub fn new(routers: usize, limits: Limits) -> Self {
        let routers = (0..routers).map(|_| Router::default()).collect();
        Self { limits, routers, read: 0, rows: 0, quiesced: 0 }
    }

    /// One report of one router, `asked` for and `got` at these times. Of one router they come in order, and all of them come.
    ///
    /// # Errors
    /// What no report may say.
    pub fn read(
        &mut self,
        router: usize,
        asked: Instant,
        got: Instant,
        report: &Report,
    ) -> Result<(), String> {
        let of = &mut self.routers[router];
        of.head(report).map_err(|wrong| format!("router {router}: {wrong}"))?;
        self.read += 1;
        let mut seen: HashSet<&str> = HashSet::new();
        for entry in &report.endpoints {
            let about = |wrong: String| format!("router {router}: {wrong}: {entry:?}");
            let others =
                report.endpoints.iter().filter(|other| other.url == entry.url && other.uid != entry.uid);
            let shared = others.into_iter().any(|other| other.in_flight.total() > 0);
            row::check(entry, shared, self.limits.stale).map_err(about)?;
            let uid = entry.uid.as_deref().ok_or_else(|| about("no UID".to_owned()))?;
            if !seen.insert(uid) {
                return Err(about("a second row of this UID".to_owned()));
            }
            self.rows += 1;
            self.quiesced += u64::from(entry.quiesced_for_ms.is_some());
            let absent = of.last;
            let told = of.uids.entry(uid.to_owned()).or_insert_with(|| Told {
                url: entry.url.clone(),
                first: got,
                absent,
                spells: Vec::new(),
                shown: None,
            });
            told.row(asked, got, entry, self.limits.stale).map_err(about)?;
        }
        for (uid, told) in &mut of.uids {
            if !seen.contains(uid.as_str()) {
                told.gone(got).map_err(|wrong| format!("router {router}: {uid}: {wrong}"))?;
            }
        }
        of.last = Some(asked);
        Ok(())
    }

    pub(super) fn told(&self, router: usize, uid: &str) -> Option<&Told> {
        self.routers[router].uids.get(uid)
    }

    pub(super) fn at<'a>(&'a self, router: usize, url: &'a str) -> impl Iterator<Item = (&'a str, &'a Told)> {
        let all = self.routers[router].uids.iter().filter(move |(_, told)| told.url == url);
        all.map(|(uid, told)| (uid.as_str(), told))
    }

    /// Every router's newest report was asked for after this.
    pub fn are_since(&self, at: Instant) -> bool {
        self.routers.iter().all(|router| router.last.is_some_and(|last| last > at))
    }

    /// The rows of the newest report of a router, by UID.
    pub fn newest(&self, router: usize) -> BTreeMap<&str, &Entry> {
        let rows = self.routers[router].uids.iter();
        rows.filter_map(|(uid, told)| Some((uid.as_str(), &told.shown.as_ref()?.1))).collect()
    }

    /// Forgets what was said of a UID of which nothing more will be asked.
    pub fn forget(&mut self, uid: &str) {
        for router in &mut self.routers {
            router.uids.remove(uid);
        }
    }
}

impl Router {
    fn head(&mut self, report: &Report) -> Result<(), String> {
        let boot = (report.router.instance.clone(), report.router.boot_generation);
        if *self.boot.get_or_insert_with(|| boot.clone()) != boot {
            return Err(format!("another boot: {boot:?}"));
        }
        let seq = std::mem::replace(&mut self.seq, report.router.seq);
        if report.router.seq != seq + 1 {
            return Err(format!("sequence {} after {seq}", report.router.seq));
        }
        let order: Vec<_> = report.endpoints.iter().map(|e| (&e.url, &e.role, &e.uid)).collect();
        if order.is_sorted() { Ok(()) } else { Err(format!("not sorted: {order:?}")) }
    }
}

impl Told {
    fn row(&mut self, asked: Instant, got: Instant, entry: &Entry, stale: Duration) -> Result<(), String> {
        if self.url != entry.url {
            return Err(format!("it was at {}", self.url));
        }
        let before = self.shown.replace((asked, entry.clone()));
        let Some(age) = entry.withdrawn_age_ms else { return Ok(()) };
        let ago = |age: u64| got.checked_sub(Duration::from_millis(age)).unwrap_or(got);
        let withdrawn = ago(age);
        let same = self.spells.last().is_some_and(|spell| {
            withdrawn.max(spell.withdrawn) - withdrawn.min(spell.withdrawn) <= GRAIN + (got - asked)
                && before.as_ref().is_some_and(|(_, row)| !row.selectable)
        });
        if !same {
            self.spells.push(Spell { withdrawn, quiet: None, until: asked });
        }
        let Some(spell) = self.spells.last_mut() else { return Ok(()) };
        spell.until = asked;
        match (entry.quiesced_for_ms, spell.quiet) {
            (Some(age), quiet) => {
                // No earlier than what it says, and no later than the report.
                let from = (ago(age) + stale).min(got);
                let from = quiet.map_or(from, |(before, _)| before);
                spell.quiet = Some((from, asked.max(from)));
                Ok(())
            }
            (None, Some(_)) if entry.in_flight.total() > 0 => {
                Err("it carries something again, and was not restored".to_owned())
            }
            (None, _) => Ok(()),
        }
    }

    /// It is in no report any more.
    fn gone(&mut self, now: Instant) -> Result<(), String> {
        let Some((at, row)) = self.shown.take() else { return Ok(()) };
        let quiet = row.quiesced_for_ms.map(|age| Duration::from_millis(age) + (now - at) + GRAIN);
        // Registered again it is another endpoint, whose first report is yet to come.
        if quiet.is_none_or(|quiet| quiet < RETENTION) {
            return Err(format!("it is gone too early, last seen {:?} ago as {row:?}", now - at));
        }
        Ok(())
    }
}

//! One stream of Pods: the watch, the list beside it, and what follows from the failures of each.
//!
//! * The first list is paged and asked for until there is one; after that a list is due every `relist`, on a connection of its
//!   own and with a short limit: a half-open connection that black-holes the watch must not hold it up.
//! * A watch that ends is opened again from where it was, or from the newest list if that is newer. One that is too old (410)
//!   waits for a new list. After a list that failed for want of a connection it is opened again too, once a list succeeds:
//!   the old one is kept until the new one is there.
//! * What a list changed and the watch does not tell within two seconds was missed: drift, counted, and a reason to open the
//!   watch again.
//! * A failure changes no endpoint (I9).

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::ask::{Asking, ask, of};
use super::backoff::{Backoff, jittered};
use super::client::Connect;
use super::failure::{Failure, Kind};
use super::list::{Listed, Read, Scope, list};
use super::suspects::Suspects;
use super::watch::{Event, Watch, next_event};
use crate::config::RelistRead;
use crate::discovery::pod::Identity;
use crate::discovery::source::{Reconciled, Source};
use crate::discovery::state::LatchStore;
use crate::metrics::DiscoveryMetrics;
use crate::registry::{Change, Handle, PodBatch, View};
use crate::types::clock::{self, Instant};

/// For each page of the first list, and for a whole later one.
const FIRST_LIST: Duration = Duration::from_secs(30);
const LIST: Duration = Duration::from_secs(5);
/// `relist_read: cached`: between two lists of the newest state.
const CONSISTENT: Duration = Duration::from_mins(5);
/// A watch that ends sooner, with nothing in it, counts as a failure.
const SHORT: Duration = Duration::from_secs(1);

/// What a stream needs.
#[derive(Debug)]
pub struct Stream {
    pub scope: Scope,
    pub source: Source,
    pub connect: Arc<dyn Connect>,
    pub changes: Handle,
    /// Where a reload of the configuration shows.
    pub view: View,
    pub relist: Duration,
    pub read: RelistRead,
    pub latches: Arc<LatchStore>,
}

/// A stream under way.
struct Running {
    stream: Stream,
    /// After failures of lists, and of watches: a list that works does not make a watch that fails again and again quicker.
    backoff: Backoff,
    watch_backoff: Backoff,
    lister: Option<Client>,
    watcher: Option<Client>,
    listing: Option<Asking<Listed>>,
    opening: Option<Asking<Watch>>,
    watch: Option<Watch>,
    /// The watch has told something.
    heard: bool,
    /// Version of the newest event or bookmark; 0 after a 410.
    position: u64,
    next_list: Instant,
    /// When a watch is opened; `None`: after the next list.
    next_watch: Option<Instant>,
    suspects: Suspects,
    consistent_due: Instant,
    /// The last list failed: nothing but the next list is asked for.
    list_down: bool,
    /// Open a new watch after the next list.
    reopen: bool,
    /// The last failures of lists and of watches that were written out.
    told: [Option<Kind>; 2],
}

/// What fails.
#[derive(Debug, Clone, Copy)]
enum What {
    List,
    Watch,
}

enum Next {
    Stop,
    Event(Result<Option<Event>, Failure>),
    List(Option<Client>, Result<Listed, Failure>),
    Opened(Option<Client>, Result<Watch, Failure>),
    Timer,
}

impl Stream {
    /// Until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let now = clock::now();
        let mut running = Running {
            stream: self,
            backoff: Backoff::default(),
            watch_backoff: Backoff::default(),
            lister: None,
            watcher: None,
            listing: None,
            opening: None,
            watch: None,
            heard: false,
            position: 0,
            next_list: now,
            next_watch: None,
            suspects: Suspects::default(),
            consistent_due: now,
            list_down: false,
            reopen: false,
            told: [None; 2],
        };
        while running.step(&stop).await {}
    }
}

impl Running {
    async fn step(&mut self, stop: &CancellationToken) -> bool {
        self.begin_what_is_due();
        let timer = self.timer();
        let next = tokio::select! {
            biased;
            () = stop.cancelled() => Next::Stop,
            // Events before lists: what is newer should be known first. Neither order is wrong.
            event = next_event(&mut self.watch) => Next::Event(event),
            (client, result) = of(&mut self.listing) => Next::List(client, result),
            (client, result) = of(&mut self.opening) => Next::Opened(client, result),
            () = sleep_until(timer) => Next::Timer,
        };
        match next {
            Next::Stop => return false,
            Next::Timer => {}
            Next::Event(Ok(Some(event))) => self.event(event).await,
            Next::Event(Ok(None)) => self.ended(),
            Next::Event(Err(failure)) => self.watch_failed(&failure),
            Next::List(client, result) => {
                self.listing = None;
                self.lister = client;
                match result {
                    Ok(pods) => self.listed(pods).await,
                    Err(failure) => self.list_failed(&failure).await,
                }
            }
            Next::Opened(client, result) => {
                self.opening = None;
                self.watcher = client;
                match result {
                    Ok(watch) => self.opened(watch),
                    Err(failure) => self.watch_failed(&failure),
                }
            }
        }
        true
    }

    fn timer(&self) -> Instant {
        let list = self.listing.is_none().then_some(self.next_list);
        let watch = self.next_watch.filter(|_| self.opening.is_none());
        let late = self.suspects.due();
        let far = clock::now() + Duration::from_hours(1);
        [list, watch, late].into_iter().flatten().min().unwrap_or(far)
    }

    fn begin_what_is_due(&mut self) {
        let now = clock::now();
        self.judge_suspects(now);
        if self.listing.is_none() && now >= self.next_list {
            self.begin_list(now);
        }
        if self.opening.is_none() && self.next_watch.is_some_and(|at| now >= at) {
            self.begin_watch();
        }
    }

    fn begin_list(&mut self, now: Instant) {
        let synced = self.stream.source.is_synced();
        let seen = self.position.max(self.stream.source.listed());
        let cached = self.stream.read == RelistRead::Cached && now < self.consistent_due;
        let (read, limit) = match (synced, cached) {
            (false, _) => (Read::First, FIRST_LIST),
            (true, true) => (Read::Cached(seen), LIST),
            (true, false) => (Read::Consistent, LIST),
        };
        if read == Read::Consistent {
            self.consistent_due = now + CONSISTENT;
        }
        let (kept, connect) = (self.lister.take(), Arc::clone(&self.stream.connect));
        let (scope, wanted) = (self.stream.scope.clone(), self.stream.source.wanted().to_vec());
        self.listing = Some(ask(kept, connect, move |client| async move {
            list(&client, &scope, &read, limit, &wanted).await
        }));
    }

    fn begin_watch(&mut self) {
        self.next_watch = None;
        let from = self.position.max(self.stream.source.listed());
        let (kept, connect) = (self.watcher.take(), Arc::clone(&self.stream.connect));
        let scope = self.stream.scope.clone();
        self.opening =
            Some(ask(kept, connect, move |client| async move { Watch::open(&client, &scope, from).await }));
    }

    fn opened(&mut self, watch: Watch) {
        self.reopen = false;
        debug!(namespace = self.stream.scope.shown(), selector = %self.stream.scope.selector, "watching Pods");
        self.watch = Some(watch);
        self.heard = false;
        self.each(DiscoveryMetrics::watch_opened);
    }

    async fn event(&mut self, event: Event) {
        if !matches!(event, Event::Error(_)) {
            self.heard = true;
            self.watch_backoff.reset();
            self.told[What::Watch as usize] = None;
            self.each(DiscoveryMetrics::watch_heard);
        }
        let now = clock::now();
        match event {
            Event::Changed(json) => {
                let (batch, identity) = self.stream.source.changed(&json, now);
                self.saw(&identity);
                self.send(batch).await;
            }
            Event::Deleted(identity) => {
                let batch = self.stream.source.deleted(&identity, now);
                self.saw(&identity);
                self.send(batch).await;
            }
            Event::Bookmark(version) => self.position = self.position.max(version.unwrap_or(0)),
            Event::Error(failure) => self.watch_failed(&failure),
        }
    }

    /// The watch has told this.
    fn saw(&mut self, identity: &Identity) {
        self.position = self.position.max(identity.version.unwrap_or(0));
        self.suspects.told(identity);
    }

    /// The server ended it, as it does every few minutes.
    fn ended(&mut self) {
        let watch = self.watch.take();
        let lasted = watch.map(|watch| clock::now().saturating_duration_since(watch.opened));
        let short = !self.heard && lasted.is_some_and(|lasted| lasted < SHORT);
        let wait = if short { self.watch_backoff.next(None, self.stream.relist) } else { Duration::ZERO };
        self.next_watch = Some(clock::now() + wait);
        self.each(|metrics| metrics.watch_ended("end"));
    }

    fn watch_failed(&mut self, failure: &Failure) {
        self.watch = None;
        self.each(|metrics| metrics.watch_ended(failure.kind.as_str()));
        self.tell(What::Watch, failure);
        let at = clock::now() + self.watch_backoff.next(failure.retry_after, self.stream.relist);
        if failure.kind.wants_new_client() {
            self.watcher = None;
        }
        if matches!(failure.kind, Kind::Expired | Kind::Invalid) {
            // What it would have told is lost, or cannot be read.
            self.position = 0;
            self.next_watch = None;
            self.next_list = self.next_list.min(at);
            self.consistent_due = clock::now();
        } else {
            self.next_watch = (!self.list_down && self.stream.source.is_synced()).then_some(at);
        }
    }

    async fn listed(&mut self, Listed { version, pods, bad }: Listed) {
        let now = clock::now();
        self.next_list = now + jittered(self.stream.relist);
        self.list_down = false;
        for service in &self.stream.view.load().services {
            self.stream.source.set_models(service.index, &service.config.models);
        }
        match self.stream.source.list(version, pods, &bad, now) {
            Reconciled::Discarded => {
                self.each(DiscoveryMetrics::list_discarded);
                debug!(version, newest = self.stream.source.listed(), "an old list is discarded");
            }
            Reconciled::Applied(batch, changed) => {
                self.backoff.reset();
                if self.told[What::List as usize].take().is_some() {
                    let (namespace, selector) = (self.stream.scope.shown(), &self.stream.scope.selector);
                    info!(namespace, selector, "the API server answers again");
                }
                self.each(DiscoveryMetrics::list_applied);
                self.suspects.listed(changed, now);
                self.send(batch).await;
            }
        }
        // None is open, or the one that is may hang on a server that did not answer lists.
        if self.opening.is_none() && (self.watch.is_none() || std::mem::take(&mut self.reopen)) {
            self.next_watch.get_or_insert(now);
        }
    }

    async fn list_failed(&mut self, failure: &Failure) {
        self.each(|metrics| metrics.list_failed(failure.kind.as_str()));
        // An API server that starts refuses everybody for a moment: only what it says twice is a refusal.
        let again = self.told[What::List as usize] == Some(failure.kind);
        self.tell(What::List, failure);
        let now = clock::now();
        self.next_list = now + self.backoff.next(failure.retry_after, self.stream.relist);
        self.consistent_due = now;
        self.list_down = true;
        self.next_watch = None;
        if let Some(status) = failure.kind.refusal()
            && again
            && !self.stream.source.is_synced()
        {
            let services = self.stream.source.services().map(|(service, _)| service).collect();
            let _ = self.stream.changes.send(Change::Refused(services, status)).await;
        }
        if failure.kind.wants_new_client() && self.watch.is_some() {
            // It may hang on the same dead server. Kept until the next one is there.
            self.watcher = None;
            self.reopen = true;
        }
    }

    /// What the watch did not tell in time it has missed.
    fn judge_suspects(&mut self, now: Instant) {
        let missed = self.suspects.missed(now);
        if missed > 0 {
            self.each(|metrics| metrics.drifted(missed as u64));
            let (namespace, selector) = (self.stream.scope.shown(), &self.stream.scope.selector);
            info!(namespace, selector, missed, "a list told what the watch had not");
            self.consistent_due = now;
            if self.watch.is_some() && self.opening.is_none() {
                self.next_watch = Some(now);
            }
        }
    }

    async fn send(&mut self, batch: PodBatch) {
        if batch.updates.is_empty() && batch.listed.is_empty() {
            return;
        }
        self.stream.latches.keep(self.stream.source.latches());
        let _ = self.stream.changes.send(Change::Pods(batch)).await;
    }

    fn each(&self, count: impl Fn(&DiscoveryMetrics)) {
        self.stream.source.services().for_each(|(_, metrics)| count(metrics));
    }

    /// Each kind of failure once, until the server answers again.
    fn tell(&mut self, what: What, failure: &Failure) {
        let told = &mut self.told[what as usize];
        let again = *told == Some(failure.kind);
        *told = Some(failure.kind);
        let what = if matches!(what, What::List) { "list" } else { "watch" };
        let (namespace, selector) = (self.stream.scope.shown(), &self.stream.scope.selector);
        if again || failure.kind == Kind::Expired {
            debug!(what, namespace, selector, kind = failure.kind.as_str(), %failure, "Pod discovery still fails");
            return;
        }
        let hint = match failure.kind {
            Kind::Forbidden => "the router's service account needs list and watch on pods there",
            Kind::Unauthorized => "its credentials are not accepted; they are read again",
            _ => "the endpoints known so far stay in use",
        };
        warn!(what, namespace, selector, kind = failure.kind.as_str(), %failure, hint, "Pod discovery fails");
    }
}

//! One rollout object: watched, and read again every `relist` beside that, as Pods are ([`super::run`]), each on a connection
//! of its own. What an older answer says is not followed (I8), and no failure changes anything.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::ask::{Asking, ask, of};
use super::backoff::{Backoff, jittered};
use super::client::Connect;
use super::failure::{Failure, Kind};
use super::list::{Scope, answer};
use super::watch::{Event, Watch, next_event};
use crate::discovery::ome;
use crate::discovery::pod::{Identity, identity};
use crate::metrics::SourceMetrics;
use crate::registry::{Change, Handle, Said};
use crate::types::clock::{self, Instant};

/// For one answer.
const LIST: Duration = Duration::from_secs(5);

/// What a stream needs.
#[derive(Debug)]
pub struct RolloutStream {
    pub scope: Scope,
    pub connect: Arc<dyn Connect>,
    pub changes: Handle,
    /// Positions of the services whose split it is.
    pub services: Vec<usize>,
    pub metrics: Vec<SourceMetrics>,
    pub relist: Duration,
}

/// The object as one answer has it; `None`: it is not there.
type Read = (u64, Option<Box<str>>);

struct Running {
    stream: RolloutStream,
    /// Version of the newest thing that was told of it.
    seen: u64,
    lister: Option<Client>,
    watcher: Option<Client>,
    listing: Option<Asking<Read>>,
    opening: Option<Asking<Watch>>,
    watch: Option<Watch>,
    /// Where a watch goes on; 0: from the newest list.
    position: u64,
    next_list: Instant,
    /// `None`: after the next list.
    next_watch: Option<Instant>,
    backoff: Backoff,
    watch_backoff: Backoff,
    /// The last failure of a list that was written out.
    told: Option<Kind>,
}

enum Next {
    Stop,
    Event(Result<Option<Event>, Failure>),
    List(Option<Client>, Result<Read, Failure>),
    Opened(Option<Client>, Result<Watch, Failure>),
    Timer,
}

impl RolloutStream {
    /// Until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut running = Running {
            stream: self,
            seen: 0,
            lister: None,
            watcher: None,
            listing: None,
            opening: None,
            watch: None,
            position: 0,
            next_list: clock::now(),
            next_watch: None,
            backoff: Backoff::default(),
            watch_backoff: Backoff::default(),
            told: None,
        };
        while running.step(&stop).await {}
    }
}

impl Running {
    async fn step(&mut self, stop: &CancellationToken) -> bool {
        let now = clock::now();
        if self.listing.is_none() && now >= self.next_list {
            self.begin_list();
        }
        if self.opening.is_none() && self.next_watch.is_some_and(|at| now >= at) {
            self.begin_watch();
        }
        let list = self.listing.is_none().then_some(self.next_list);
        let watch = self.next_watch.filter(|_| self.opening.is_none());
        let timer = list.into_iter().chain(watch).min().unwrap_or(now + self.stream.relist);
        let next = tokio::select! {
            biased;
            () = stop.cancelled() => Next::Stop,
            event = next_event(&mut self.watch) => Next::Event(event),
            (client, result) = of(&mut self.listing) => Next::List(client, result),
            (client, result) = of(&mut self.opening) => Next::Opened(client, result),
            () = sleep_until(timer) => Next::Timer,
        };
        match next {
            Next::Stop => return false,
            Next::Timer => {}
            Next::Event(Ok(Some(event))) => self.event(event).await,
            Next::Event(Ok(None)) => self.watch_over(None),
            Next::Event(Err(failure)) => self.watch_over(Some(&failure)),
            Next::List(client, result) => {
                (self.listing, self.lister) = (None, client);
                match result {
                    Ok(read) => self.listed(read).await,
                    Err(failure) => self.list_failed(&failure).await,
                }
            }
            Next::Opened(client, result) => {
                (self.opening, self.watcher) = (None, client);
                match result {
                    Ok(watch) => self.watch = Some(watch),
                    Err(failure) => self.watch_over(Some(&failure)),
                }
            }
        }
        true
    }

    fn begin_list(&mut self) {
        let (kept, connect) = (self.lister.take(), Arc::clone(&self.stream.connect));
        let scope = self.stream.scope.clone();
        self.listing = Some(ask(kept, connect, move |client| async move { read(&client, &scope).await }));
    }

    fn begin_watch(&mut self) {
        self.next_watch = None;
        let (kept, connect) = (self.watcher.take(), Arc::clone(&self.stream.connect));
        let (scope, from) = (self.stream.scope.clone(), self.position.max(self.seen));
        self.opening =
            Some(ask(kept, connect, move |client| async move { Watch::open(&client, &scope, from).await }));
    }

    async fn event(&mut self, event: Event) {
        self.watch_backoff.reset();
        match event {
            Event::Changed(json) => {
                let Identity { version, .. } = identity(&json);
                self.tell(version.unwrap_or(0), Some(&json)).await;
            }
            Event::Deleted(Identity { version, .. }) => self.tell(version.unwrap_or(0), None).await,
            Event::Bookmark(version) => self.position = self.position.max(version.unwrap_or(0)),
            Event::Error(failure) => self.watch_over(Some(&failure)),
        }
    }

    /// The watch ended, or could not be opened.
    fn watch_over(&mut self, failure: Option<&Failure>) {
        let lasted = self.watch.take().map(|watch| clock::now().saturating_duration_since(watch.opened));
        let short = lasted.is_none_or(|lasted| lasted < Duration::from_secs(1));
        let failed = failure.is_some() || short;
        let asked = failure.and_then(|failure| failure.retry_after);
        let wait = if failed { self.watch_backoff.next(asked, self.stream.relist) } else { Duration::ZERO };
        let at = clock::now() + wait;
        if failure.is_some_and(|failure| failure.kind.wants_new_client()) {
            self.watcher = None;
        }
        if failure.is_some_and(|failure| matches!(failure.kind, Kind::Expired | Kind::Invalid)) {
            // What it would have told is lost, or cannot be read: a list tells it.
            (self.position, self.next_watch) = (0, None);
            self.next_list = self.next_list.min(at);
        } else {
            self.next_watch = (self.seen > 0).then_some(at);
        }
    }

    async fn listed(&mut self, (version, object): Read) {
        self.backoff.reset();
        let now = clock::now();
        self.next_list = now + jittered(self.stream.relist);
        self.each(SourceMetrics::read);
        // A connection that hangs may be the watch's too: after a failure it is opened anew.
        let reopen = self.told.take().is_some();
        if reopen {
            info!(object = self.stream.scope.shown_object(), "the API server answers again");
        }
        let of_object = object.as_deref().and_then(|json| identity(json).version);
        self.tell(of_object.unwrap_or(version), object.as_deref()).await;
        if self.opening.is_none() && (self.watch.is_none() || reopen) {
            self.next_watch.get_or_insert(now);
        }
    }

    async fn list_failed(&mut self, failure: &Failure) {
        self.each(|metrics| metrics.failed(failure.kind.as_str()));
        // An API server that starts refuses everybody for a moment: only what it says twice counts.
        let again = self.told.replace(failure.kind) == Some(failure.kind);
        self.next_list = clock::now() + self.backoff.next(failure.retry_after, self.stream.relist);
        let (object, kind) = (self.stream.scope.shown_object(), failure.kind.as_str());
        if !again {
            warn!(object, kind, %failure, "an InferenceService cannot be read; weights stay as they are");
            return;
        }
        debug!(object, kind, %failure, "an InferenceService still cannot be read");
        let services = self.stream.services.clone();
        let change = match failure.kind {
            // The API has no such resource: OME is not installed, or another version of it.
            Kind::NotFound => Change::Sourced(services, Said::Missing, 0),
            kind => match kind.refusal() {
                Some(status) => Change::SourceRefused(services, status),
                None => return,
            },
        };
        let _ = self.stream.changes.send(change).await;
    }

    /// Passes on what the object says, unless something newer was told already.
    async fn tell(&mut self, version: u64, json: Option<&str>) {
        if version < self.seen {
            return debug!(
                object = self.stream.scope.shown_object(),
                version, "an older state is not followed"
            );
        }
        let again = version == self.seen && json.is_some();
        self.seen = version;
        self.position = self.position.max(version);
        if again {
            return;
        }
        let said = json.map_or(Said::Missing, ome::said);
        self.each(|metrics| metrics.said(word(&said)));
        let change = Change::Sourced(self.stream.services.clone(), said, version);
        let _ = self.stream.changes.send(change).await;
    }

    fn each(&self, count: impl Fn(&SourceMetrics)) {
        self.stream.metrics.iter().for_each(count);
    }
}

/// A metric label.
fn word(said: &Said) -> &'static str {
    match said {
        Said::Weights(_) => "weights",
        Said::Stable(_) => "stable",
        Said::Nothing => "nothing",
        Said::Missing => "missing",
        Said::Unusable(_) => "unusable",
    }
}

/// The object now.
async fn read(client: &Client, scope: &Scope) -> Result<Read, Failure> {
    #[derive(Deserialize)]
    struct List<'a> {
        metadata: Metadata,
        #[serde(borrow, default)]
        items: Option<Vec<&'a RawValue>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        resource_version: String,
    }
    let body = timeout(LIST, answer(client, scope, &scope.list_params()))
        .await
        .map_err(|_| Failure::new(Kind::Timeout, format!("no list within {LIST:?}")))??;
    let invalid = |why: String| Failure::new(Kind::Invalid, why);
    let list: List<'_> =
        serde_json::from_slice(&body).map_err(|e| invalid(format!("a list that cannot be read: {e}")))?;
    let version = list.metadata.resource_version.parse();
    let version = version.map_err(|_| invalid("a list without a resourceVersion".to_owned()))?;
    let named = |json: &&&RawValue| Some(identity(json.get()).name.as_str()) == scope.object.as_deref();
    let object = list.items.unwrap_or_default().iter().find(named).map(|json| json.get().into());
    Ok((version, object))
}

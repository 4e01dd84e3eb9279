//! The decode's half: ask the prefill's bootstrap server, take pages, let the prefill write into them, decode from them.
//!
//! What becomes of the pages is the point of it. A request that ends while its prefill may still write gives them back at
//! once (guard off: dirty) or when the write is over (guard on).

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::room::Meeting;
use super::rooms::Phase;
use super::{failed, timed_out};
use crate::engine::client;
use crate::engine::config::DuplicateRoom;
use crate::engine::core::{Core, Stage};
use crate::engine::job::{Failure, Ready, Sequence, pause};
use crate::engine::text::Kv;

const ROUTE: &str = "/route?prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1";

pub(super) async fn run(sequence: &Sequence) -> Result<Ready, Failure> {
    let core = &sequence.core;
    let meeting = &sequence.request.meetings[sequence.prompt];
    let Some(host) = meeting.host.clone() else {
        return Err(no_host(sequence).await);
    };
    let prealloc = core.stages.enter(Stage::Prealloc);
    if client::get(core, &host, meeting.port, ROUTE).await.is_err() {
        pause(core.config.waits.dead_bootstrap).await;
        core.counts.bootstrap_failed.add(1);
        return Err(failed(sequence, "handshake", "Aborted by AbortReq."));
    }
    let mut hold = take(core, sequence.tokens().div_ceil(core.config.page_size.max(1))).await;
    drop(prealloc);
    let _transfer = core.stages.enter(Stage::Transfer);
    core.counts.external_queries.add(sequence.tokens().into());
    let mut phase = hold.connect(&host, meeting);
    let over = async { phase.wait_for(Phase::is_over).await.map_or(Phase::Lost, |phase| phase.clone()) };
    let Ok(over) = timeout(core.config.waits.waiting, over).await else {
        core.counts.failed_transfers.add(1);
        return Err(timed_out(sequence));
    };
    finish(sequence, hold, over, &host).await
}

async fn finish(sequence: &Sequence, hold: PageHold, over: Phase, host: &str) -> Result<Ready, Failure> {
    let core = &sequence.core;
    let why = match over {
        Phase::Done { content, corrupted } => {
            core.counts.transfers.add(1);
            core.counts.external_hits.add(sequence.tokens().into());
            let kv = Kv { content, corrupted: corrupted || hold.dirty };
            return Ok(Ready { kv, params: None, hold: Some(hold) });
        }
        Phase::Failed(why) => why,
        _ => {
            pause(core.config.waits.lost_prefill).await;
            let port = sequence.request.meetings[sequence.prompt].port;
            format!("Lost connection with prefill instance (bootstrap_addr: {host}:{port})")
        }
    };
    core.counts.failed_transfers.add(1);
    Err(failed(sequence, "transfer", &why))
}

/// Without a host the real scheduler throws, and its process ends.
async fn no_host(sequence: &Sequence) -> Failure {
    let core = &sequence.core;
    core.counts.fatal_params.add(1);
    if core.config.fragile {
        core.die_in(core.config.waits.die);
        std::future::pending::<()>().await;
    }
    failed(sequence, "handshake", "no bootstrap host")
}

/// Waits until there are enough pages.
async fn take(core: &Arc<Core>, count: u32) -> PageHold {
    // More than there are in all would wait for ever; the real engine refuses such a prompt by its length.
    let count = count.min(core.config.pages);
    loop {
        let freed = core.sglang.freed.notified();
        let taken = core.sglang.pages.lock().take(count);
        if let Some(taken) = taken {
            let dirty = taken.dirty > 0;
            return PageHold { core: Arc::clone(core), pages: taken.pages, dirty, link: None };
        }
        freed.await;
    }
}

/// The connection over which a room is followed.
#[derive(Debug)]
struct Link {
    phase: watch::Receiver<Phase>,
    stop: CancellationToken,
    /// Pages that wait for the end of the write.
    deferred: Arc<Mutex<Option<Vec<u32>>>>,
}

/// A request's pages.
#[derive(Debug)]
pub(in crate::engine) struct PageHold {
    core: Arc<Core>,
    pages: Vec<u32>,
    dirty: bool,
    link: Option<Link>,
}

impl PageHold {
    /// Tells the prefill about the pages and follows what it does; that goes on after this hold is gone.
    fn connect(&mut self, host: &str, meeting: &Meeting) -> watch::Receiver<Phase> {
        let (sender, phase) = watch::channel(Phase::Waiting);
        let link = Link { phase: phase.clone(), stop: CancellationToken::new(), deferred: Arc::default() };
        let (core, stop, deferred) = (Arc::clone(&self.core), link.stop.clone(), Arc::clone(&link.deferred));
        let (host, port, room) = (host.to_owned(), meeting.port, meeting.room);
        let path = format!("/mock/kv/rooms/{room}");
        self.core.tasks.spawn_light(async move {
            tokio::select! {
                () = core.dead.cancelled() => {}
                () = stop.cancelled() => {}
                () = follow(&core, &host, port, &path, &sender) => {}
            }
            // Under the same lock as the hold's own end, so that it defers either before this or not at all.
            let mut deferred = deferred.lock();
            if !sender.borrow().is_over() {
                sender.send_replace(Phase::Lost);
            }
            if let Some(pages) = deferred.take() {
                core.sglang.pages.lock().settle(pages);
                core.sglang.freed.notify_waiters();
            }
        });
        self.link = Some(link);
        phase
    }
}

impl Drop for PageHold {
    fn drop(&mut self) {
        let pages = std::mem::take(&mut self.pages);
        let core = &self.core;
        if let Some(link) = &self.link {
            let mut deferred = link.deferred.lock();
            if link.phase.borrow().may_write() {
                if core.config.guard {
                    core.sglang.pages.lock().defer(pages.len());
                    *deferred = Some(pages);
                    return;
                }
                core.counts.dirtied.add(pages.len() as u64);
                core.sglang.pages.lock().give_back_dirty(pages);
                core.sglang.freed.notify_waiters();
                return;
            }
            link.stop.cancel();
        }
        core.sglang.pages.lock().give_back(pages);
        core.sglang.freed.notify_waiters();
    }
}

/// Follows a room until it is over or its prefill is gone.
async fn follow(core: &Arc<Core>, host: &str, port: u16, path: &str, phase: &watch::Sender<Phase>) {
    let mut lines = match client::post_lines(core, host, port, path).await {
        Ok(lines) => lines,
        Err(client::Error::Status(409)) => {
            core.counts.duplicate_rooms.add(1);
            if core.config.duplicate_room == DuplicateRoom::Hang {
                std::future::pending::<()>().await;
            }
            phase.send_replace(Phase::Failed("Duplicate or cancelled bootstrap room".to_owned()));
            return;
        }
        Err(_) => return,
    };
    while let Some(line) = lines.next().await {
        if let Some(next) = super::bootstrap::parse(&line) {
            phase.send_replace(next);
        }
    }
}

//! The prefill's half: wait for the decode, compute, write into the decode's pages, answer one token.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::rooms::{Phase, Seat};
use super::{duplicate, failed, timed_out};
use crate::engine::core::{Core, Stage};
use crate::engine::job::{Failure, Ready, Sequence, Turn, pause};

/// A seat in a room; dropping it is standing up.
#[derive(Debug)]
pub(super) struct Seated {
    core: Arc<Core>,
    room: u64,
    seat: Seat,
    pub(super) phase: watch::Receiver<Phase>,
}

impl Seated {
    pub(super) fn enter(core: &Arc<Core>, room: u64, seat: Seat) -> Option<Self> {
        let phase = core.sglang.rooms.lock().enter(room, seat).ok()?;
        Some(Self { core: Arc::clone(core), room, seat, phase })
    }

    fn advance(&self, phase: Phase) {
        self.core.sglang.rooms.lock().advance(self.room, phase);
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        let why = match self.seat {
            Seat::Prefill => "Aborted by AbortReq.",
            Seat::Decode => "Lost connection with decode instance",
        };
        self.core.sglang.rooms.lock().leave(self.room, self.seat, why);
    }
}

pub(super) async fn run(sequence: &Sequence) -> Result<Ready, Failure> {
    let core = &sequence.core;
    let room = sequence.request.meetings[sequence.prompt].room;
    let Some(seat) = Seated::enter(core, room, Seat::Prefill) else {
        return Err(duplicate(sequence).await);
    };
    let bootstrap = core.stages.enter(Stage::Bootstrap);
    let mut phase = seat.phase.clone();
    let met = phase.wait_for(|phase| *phase != Phase::Waiting);
    let late = timeout(core.config.waits.bootstrap, met).await.is_err();
    if late {
        core.counts.bootstrap_failed.add(1);
        return Err(timed_out(sequence));
    }
    drop(bootstrap);
    let turn = sequence.turn().await;
    // From here on nothing stops it: an abort of this request ends its answer, not the write.
    let write = Write {
        turn,
        seat,
        compute: sequence.prefill_time(),
        transfer: sequence.job.fault.transfer.unwrap_or(core.config.timing.transfer),
        content: sequence.content(),
    };
    let (written, outcome) = oneshot::channel();
    let task = Arc::clone(core);
    core.tasks.spawn_light(async move {
        tokio::select! {
            () = task.dead.cancelled() => {}
            result = write.run(&task) => drop(written.send(result)),
        }
    });
    match outcome.await {
        Ok(Ok(())) => {
            core.counts.prompt_tokens.add(sequence.tokens().into());
            Ok(Ready::local(sequence.content()))
        }
        Ok(Err(why)) => {
            core.counts.failed_transfers.add(1);
            Err(failed(sequence, "transfer", &why))
        }
        Err(_) => Err(failed(sequence, "transfer", "the engine is gone")),
    }
}

struct Write {
    turn: Turn,
    seat: Seated,
    compute: Duration,
    transfer: Duration,
    content: u64,
}

impl Write {
    async fn run(self, core: &Arc<Core>) -> Result<(), String> {
        pause(self.compute).await;
        drop(self.turn);
        let _inflight = core.stages.enter(Stage::Inflight);
        self.seat.advance(Phase::Writing);
        let moving = core.moves.begin(self.seat.room.to_string(), true);
        pause(self.transfer).await;
        drop(moving);
        self.seat.advance(Phase::Done { content: self.content, corrupted: false });
        match &*self.seat.phase.borrow() {
            Phase::Done { .. } => Ok(()),
            Phase::Failed(why) => Err(why.clone()),
            other => Err(format!("the room is {}", other.as_str())),
        }
    }
}

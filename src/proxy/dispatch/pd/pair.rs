//! Two SGLang legs on their way, and how they are ended early (pd.md, "Ending an SGLang pair early").
//!
//! An attempt that ends before the decode has its KV ends both legs, and how gently depends on the engine: without its own
//! guard, aborting a decode into which the prefill still writes gives the next user's request wrong KV. So such legs live on
//! without their client, holds and hand-off with them: see [`Pair::drop`].

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::super::answer::Answer;
use super::Side as Of;
use super::abort::{AGAIN, Abort};
use super::bodies::Rids;
use super::legs::{LegFuture, Prefilled, Start, decode_leg, prefill_leg};
use super::start::{Begun, Kept};
use crate::ledger::Handoff;
use crate::proxy::context::Worker;
use crate::proxy::relay::Ruling;
use crate::registry::{Endpoint, Service};
use crate::types::clock::Instant;

/// `cancel_decode_grace: auto` for an engine that is not known to have the guard.
const GRACE: Duration = Duration::from_secs(5);
/// How long a prefill's answer may go on once its decode is over.
const DRAIN: Duration = Duration::from_secs(4);

/// Dropping it before it is settled ends both legs, as gently as the engine needs.
pub(super) struct Pair {
    worker: Arc<Worker>,
    prefill: Side<Prefilled>,
    decode: Side<Begun>,
    /// How long both legs are kept for the prefill's sake when the attempt ends early.
    grace: Duration,
    /// The prefill has answered in full: it writes no more.
    answered: bool,
    /// The head of the decode's answer is here.
    decode_answered: Arc<AtomicBool>,
    /// The decode is over, in this pair or in its relay.
    decode_over: Arc<AtomicBool>,
    abort: Abort,
    /// The prefill keeps KV from the start of the attempt to the later of its answer and the decode's first token.
    handoff: Option<Handoff>,
}

/// One leg.
struct Side<T> {
    engine: Arc<Endpoint>,
    /// While it runs.
    leg: Option<LegFuture<T>>,
    /// After it ran out of time.
    kept: Option<Box<Kept>>,
    /// What the leg is to count as.
    ruling: Arc<Ruling>,
    /// How often its engine had been cut when it began.
    cuts: u32,
}

#[allow(clippy::large_enum_variant, reason = "as in `Begun`")]
pub(super) enum Event {
    Prefill(Prefilled),
    Decode(Begun),
    /// A drain cut this side.
    Cut(Of),
}

impl Pair {
    pub(super) fn start(
        worker: &Arc<Worker>,
        service: &Service,
        rids: Rids,
        deadline: Option<Instant>,
        mut prefill: Start,
        mut decode: Start,
    ) -> Self {
        let engines = [&prefill, &decode].map(|(leg, ..)| (Arc::clone(leg.endpoint()), leg.cuts()));
        let rulings: [Arc<Ruling>; 2] = Default::default();
        for ((leg, ..), ruling) in [&mut prefill, &mut decode].into_iter().zip(&rulings) {
            leg.ruled_by(Arc::clone(ruling));
        }
        let [(p, p_cuts), (d, d_cuts)] = engines;
        let [prefill_ruling, decode_ruling] = rulings;
        let auto = if d.kv_guard.load(Ordering::Relaxed) { Duration::ZERO } else { GRACE };
        let timeouts = &worker.shared.timeouts;
        let decode_over = Arc::new(AtomicBool::new(false));
        let handoff = Some(p.handoffs.begin());
        let prefill = prefill_leg(prefill, Arc::clone(timeouts), deadline, Arc::clone(&decode_over));
        let decode_answered = Arc::default();
        let decode = decode_leg(decode, Arc::clone(timeouts), deadline, Arc::clone(&decode_answered));
        Self {
            worker: Arc::clone(worker),
            prefill: Side::new(p, Box::pin(prefill), prefill_ruling, p_cuts),
            decode: Side::new(d, Box::pin(decode), decode_ruling, d_cuts),
            grace: service.config.upstream.cancel_decode_grace.unwrap_or(auto),
            answered: false,
            decode_answered,
            decode_over,
            abort: Abort::new(worker, rids),
            handoff,
        }
    }

    /// Prefill's engine, decode's engine.
    pub(super) fn ids(&self) -> (u64, u64) {
        (self.prefill.engine.id, self.decode.engine.id)
    }

    pub(super) fn prefill(&self) -> Arc<Endpoint> {
        Arc::clone(&self.prefill.engine)
    }

    /// The prefill's leg goes on: it may be in a wait that never ends.
    pub(super) fn waits_for_prefill(&self) -> bool {
        self.prefill.leg.is_some()
    }

    /// The decode failed because of the prefill.
    pub(super) fn blame_prefill(&self) {
        self.prefill.ruling.blame();
        self.prefill.engine.put_last(&"no bootstrap server");
    }

    /// The next leg to come to something. The prefill first: its error decides.
    pub(super) async fn next(&mut self) -> Event {
        poll_fn(|cx| {
            if let Poll::Ready(mut end) = self.prefill.poll(cx) {
                match &mut end {
                    Prefilled::Failed(_, kept) => self.prefill.kept = kept.take(),
                    Prefilled::Done | Prefilled::Rejected(..) => self.answered = true,
                }
                return Poll::Ready(Event::Prefill(end));
            }
            if let Poll::Ready(mut begun) = self.decode.poll(cx) {
                if let Begun::Failed(_, kept) = &mut begun {
                    self.decode.kept = kept.take();
                }
                return Poll::Ready(Event::Decode(begun));
            }
            self.cut().map_or(Poll::Pending, |side| Poll::Ready(Event::Cut(side)))
        })
        .await
    }

    /// Which side a drain has cut; a decode that is may have run the request, so it decides. Neither engine is to blame for
    /// what becomes of its leg from here on, and how the legs end is told by their pair's drop.
    fn cut(&self) -> Option<Of> {
        let (prefill, decode) = (self.prefill.is_cut(), self.decode.is_cut());
        if !(prefill || decode) {
            return None;
        }
        for (cut, engine) in [(prefill, &self.prefill.engine), (decode, &self.decode.engine)] {
            if cut {
                engine.leg_forced();
            }
        }
        self.prefill.ruling.cancel();
        self.decode.ruling.cancel();
        Some(if decode { Of::Decode } else { Of::Prefill })
    }

    /// Nothing of the decode's answer is here. It was sent its request when the prefill was.
    pub(super) fn is_decode_silent(&self) -> bool {
        !self.decode_answered.load(Ordering::Acquire)
    }

    /// The decode may be the one that hangs; it is not blamed for it.
    pub(super) fn put_decode_last(&self) {
        self.decode.engine.put_last(&"silent together with its prefill");
    }

    /// The decode has its KV. A prefill that has not answered yet is read to its end beside the stream; what becomes of it is
    /// its own affair. An error too large to be read whole settles nothing: dropping the pair ends the prefill.
    pub(super) fn settle(&mut self, mut answer: Answer) -> Answer {
        let Answer::Stream { head, leg, .. } = &mut answer else { return answer };
        if head.status.as_u16() >= 400 {
            return answer;
        }
        leg.abort_with(self.abort.clone());
        let handoff = self.handoff.take();
        if let Some(prefill) = self.prefill.leg.take() {
            let (end, ended) = oneshot::channel::<()>();
            leg.goes_beside(&self.prefill.engine, self.prefill.cuts, end);
            let over = Arc::clone(&self.decode_over);
            let engine = Arc::clone(&self.prefill.engine);
            self.worker.tracker.spawn_light(async move {
                let bound = async {
                    if ended.await.is_ok() {
                        engine.leg_forced();
                        return;
                    }
                    over.store(true, Ordering::Release);
                    sleep(DRAIN).await;
                };
                tokio::select! {
                    _ = prefill => {}
                    () = bound => {}
                }
                drop(handoff);
            });
        }
        answer
    }
}

impl Drop for Pair {
    /// The attempt is over before the decode had its KV: the client left, a leg failed, time ran out. With the engine's guard
    /// both legs end now. Without it they are kept until the prefill has answered or the decode has a token, at most for the
    /// grace. A prefill that was lost is not over: what it had begun to write may still arrive.
    fn drop(&mut self) {
        let (mut prefill, mut decode) = (self.prefill.take(), self.decode.take());
        if prefill.is_over() && decode.is_over() {
            return;
        }
        let (abort, handoff) = (self.abort.clone(), self.handoff.take());
        let grace = if self.answered { Duration::ZERO } else { self.grace };
        self.worker.tracker.spawn_light(async move {
            if !grace.is_zero() && !decode.is_over() {
                let _ = timeout(grace, kv_is_over(&mut prefill, &mut decode)).await;
            }
            tokio::join!(prefill.end(&abort), decode.end(&abort));
            drop(handoff);
        });
    }
}

/// The prefill's own complete answer, the decode's first token, or its end.
async fn kv_is_over(prefill: &mut Side<Prefilled>, decode: &mut Side<Begun>) {
    poll_fn(|cx| {
        match prefill.poll(cx) {
            Poll::Ready(Prefilled::Failed(_, kept)) => prefill.kept = kept,
            Poll::Ready(_) => return Poll::Ready(()),
            Poll::Pending => {}
        }
        match decode.poll(cx) {
            // Still to be ended: the connection says nothing in time.
            Poll::Ready(Begun::Good(Answer::Stream { conn, leg, .. })) => {
                decode.kept = Some(Box::new(Kept { conn, leg }));
                Poll::Ready(())
            }
            Poll::Ready(Begun::Failed(_, Some(kept))) => {
                decode.kept = Some(kept);
                Poll::Pending
            }
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
}

impl<T> Side<T> {
    fn new(engine: Arc<Endpoint>, leg: LegFuture<T>, ruling: Arc<Ruling>, cuts: u32) -> Self {
        Self { engine, leg: Some(leg), kept: None, ruling, cuts }
    }

    /// It runs, and what was open on its engine was cut after it began.
    fn is_cut(&self) -> bool {
        self.leg.is_some() && self.engine.cuts() != self.cuts
    }

    fn poll(&mut self, cx: &mut std::task::Context<'_>) -> Poll<T> {
        let Some(leg) = &mut self.leg else { return Poll::Pending };
        let polled = leg.as_mut().poll(cx);
        if polled.is_ready() {
            self.leg = None;
        }
        polled
    }

    fn is_over(&self) -> bool {
        self.leg.is_none() && self.kept.is_none()
    }

    fn take(&mut self) -> Self {
        Self {
            engine: Arc::clone(&self.engine),
            leg: self.leg.take(),
            kept: self.kept.take(),
            ruling: Arc::clone(&self.ruling),
            cuts: self.cuts,
        }
    }

    /// Ends it: an abort, a little time for it to work, another abort, and the socket is closed.
    async fn end(mut self, abort: &Abort) {
        if self.is_over() {
            return;
        }
        self.ruling.cancel();
        abort.send(&self.engine).await;
        let ended = async {
            match (&mut self.leg, &mut self.kept) {
                (Some(leg), _) => drop(leg.await),
                (None, Some(kept)) => drop(kept.conn.fill().await),
                (None, None) => {}
            }
        };
        if timeout(AGAIN, ended).await.is_err() {
            abort.send(&self.engine).await;
        }
    }
}

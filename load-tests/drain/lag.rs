//! How late this machine runs a task that is due: the clients, engines and readers of this process share its threads, and the
//! routers its processors. What the judge allows grows by the worst lateness around the work in question.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tandem::types::clock::{Instant, now};

const EVERY: Duration = Duration::from_millis(2);
/// Less than this is within the slack.
const NOTED: Duration = Duration::from_millis(10);
/// A lateness this long before or after work is of that work's time.
const AROUND: Duration = Duration::from_millis(500);
const KEPT: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, Default)]
pub(crate) struct Lag(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    /// When, and how late; the last minute.
    spans: VecDeque<(Instant, Duration)>,
    worst: Duration,
}

impl Lag {
    pub(crate) fn start() -> Self {
        let lag = Self::default();
        let mine = lag.clone();
        std::thread::spawn(move || {
            loop {
                let due = now() + EVERY;
                std::thread::sleep(EVERY);
                mine.note(now().saturating_duration_since(due));
            }
        });
        // One witness on a thread of its own, one among the tasks.
        let mine = lag.clone();
        tokio::spawn(async move {
            loop {
                let due = now() + EVERY;
                tokio::time::sleep(EVERY).await;
                mine.note(now().saturating_duration_since(due));
            }
        });
        lag
    }

    fn note(&self, late: Duration) {
        if late < NOTED {
            return;
        }
        let Noted { spans, worst } = &mut *self.0.lock();
        *worst = (*worst).max(late);
        spans.push_back((now(), late));
        while spans.front().is_some_and(|(at, _)| super::since(*at) > KEPT) {
            spans.pop_front();
        }
    }

    pub(crate) fn between(&self, from: Instant, to: Instant) -> Duration {
        let noted = self.0.lock();
        let near = noted.spans.iter().filter(|(at, late)| *at + AROUND >= from && *at <= to + AROUND + *late);
        near.map(|(_, late)| *late).max().unwrap_or_default()
    }

    pub(crate) fn worst(&self) -> Duration {
        self.0.lock().worst
    }
}

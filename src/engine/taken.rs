//! Reading the log of an engine under load: what is over is taken away, what runs stays.

use super::log::{Log, Seen};

impl Log {
    /// The requests that are over, oldest first; they and the closed connections are forgotten here. None is taken twice.
    pub fn take_ended(&self) -> Vec<Seen> {
        self.change(|records| {
            let (over, open) =
                std::mem::take(&mut records.requests).into_iter().partition(|seen| seen.ended.is_some());
            records.requests = open;
            records.conns.retain(|conn| conn.closed_at.is_none());
            Vec::from(over)
        })
    }
}

//! The test's side of trouble: what is lost on its way, what requests meet, what open watches do.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::event;
use super::fault::Fault;
use super::handle::FakeKube;
use super::log::RequestKind;
use super::state::Command;
use super::status::Status;
use super::store::Change;

/// What goes wrong with the next changes on their way to the watches. A LIST shows them all the same.
impl FakeKube {
    /// The next changes reach no watch, ever.
    pub fn lose_next(&self, changes: usize) {
        self.shared.write(|state| state.mischief.lose = changes);
    }

    /// Changes like these reach no watch, until [`Self::lose_nothing`].
    pub fn lose_where(&self, loses: impl Fn(&Change) -> bool + Send + Sync + 'static) {
        self.shared.write(|state| state.mischief.lose_where = Some(Arc::new(loses)));
    }

    /// Ends [`Self::lose_next`] and [`Self::lose_where`]; what is lost stays lost.
    pub fn lose_nothing(&self) {
        self.shared.write(|state| (state.mischief.lose, state.mischief.lose_where) = (0, None));
    }

    /// The next changes reach every watch twice.
    pub fn duplicate_next(&self, changes: usize) {
        self.shared.write(|state| state.mischief.duplicate = changes);
    }

    /// The next changes reach the watches so much later, and whatever follows them waits.
    pub fn delay_next(&self, changes: usize, by: Duration) {
        self.shared.write(|state| state.mischief.delay = Some((changes, by, false)));
    }

    /// The next changes reach the watches so much later, and whatever follows passes them.
    pub fn overtake_next(&self, changes: usize, by: Duration) {
        self.shared.write(|state| state.mischief.delay = Some((changes, by, true)));
    }

    /// The next changes reach the watches in reverse order, once all of them were made.
    pub fn reverse_next(&self, changes: usize) {
        self.shared.write(|state| state.mischief.reverse = changes);
    }

    /// An event that nothing stands behind, on every open watch, whatever its selector.
    pub fn inject(&self, kind: &str, object: &Value) {
        self.inject_bytes(event::line(kind, object));
    }

    /// Bytes on every open watch: garbage, half a line, a line without an end.
    pub fn inject_bytes(&self, bytes: impl Into<Bytes>) {
        self.command(&Command::Say(bytes.into()));
    }
}

/// Faults, on any replica; [`ReplicaHandle`](super::ReplicaHandle) has the same for one.
impl FakeKube {
    /// The next request of this kind meets this; further calls queue.
    pub fn push(&self, kind: RequestKind, fault: Fault) {
        self.shared.write(|state| state.faults.push((kind, None), fault));
    }

    /// The next requests of this kind meet this.
    pub fn push_n(&self, kind: RequestKind, fault: &Fault, times: usize) {
        (0..times).for_each(|_| self.push(kind, fault.clone()));
    }

    /// Every request of this kind meets this while nothing is queued; none ends it.
    pub fn always(&self, kind: RequestKind, fault: Option<Fault>) {
        self.shared.write(|state| state.faults.set((kind, None), fault));
    }

    /// Forgets every fault that is queued or set, on all replicas.
    pub fn clear_faults(&self) {
        self.shared.write(|state| state.faults.clear(None));
    }

    /// Queued faults that no request has met yet.
    pub fn faults_left(&self) -> usize {
        self.shared.read(|state| state.faults.left())
    }

    /// Every open watch breaks in the middle.
    pub fn cut_watches(&self) {
        self.command(&Command::Cut);
    }

    /// Every open watch breaks in the middle of a line.
    pub fn tear_watches(&self) {
        self.inject_bytes(r#"{"type":"MODIFIED","object":{"kind":"Pod","apiVer"#);
        self.cut_watches();
    }

    /// Every open watch ends as if its time were up.
    pub fn end_watches(&self) {
        self.command(&Command::End);
    }

    /// Every open watch gets an ERROR event with this code, and ends.
    pub fn fail_watches(&self, code: u16) {
        self.inject("ERROR", &Status::of_code(code).body());
        self.end_watches();
    }

    /// Every open watch falls silent for ever.
    pub fn silence_watches(&self) {
        self.command(&Command::Mute);
    }

    fn command(&self, command: &Command) {
        self.shared.write(|state| state.command(None, command));
    }
}

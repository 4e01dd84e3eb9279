//! A job's events as server-sent events, and the ticket that tells the job when its peer is gone.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::UnboundedReceiver;

use super::answer::{self, Choice, Piece, Shape};
use super::core::Core;
use super::job::{Event, Failure, Finish, Job};
use super::log::{Ended, Entry};
use super::script::{End, Fault};
use super::tap::Cut;

/// Between the last byte a script lets through and the cut, so that the byte gets out.
const FLUSH: Duration = Duration::from_millis(5);

/// A request's HTTP side. Dropped before its answer was complete, it tells the job that the peer left.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) core: Arc<Core>,
    pub(super) entry: Entry,
    pub(super) job: Option<Arc<Job>>,
    pub(super) cut: Cut,
    done: bool,
    /// Gone with the ticket.
    open: Arc<()>,
}

impl Ticket {
    pub(super) fn new(core: &Arc<Core>, entry: Entry, cut: Cut) -> Self {
        Self { core: Arc::clone(core), entry, job: None, cut, done: false, open: Arc::default() }
    }

    pub(super) fn done(&mut self) {
        self.done = true;
        self.entry.ended(Ended::Answered);
    }

    /// Ends the connection, or the engine, as a script says. `true`: nothing is answered any more.
    pub(super) fn end(&self, end: End) -> bool {
        match end {
            End::Reset | End::Close | End::Die => self.end_in(FLUSH, end),
            End::Hang => {}
            End::Status(_) | End::Error | End::Abort => return false,
        }
        true
    }

    /// Cuts the connection, or ends the engine, after this long; not once the answer is complete.
    pub(super) fn end_in(&self, wait: Duration, end: End) {
        let (cut, dead, open) = (self.cut.clone(), self.core.dead.clone(), Arc::downgrade(&self.open));
        self.core.tasks.spawn_light(async move {
            tokio::time::sleep(wait).await;
            match end {
                _ if open.strong_count() == 0 => {}
                End::Die => dead.cancel(),
                end => cut.cut(end == End::Reset),
            }
        });
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let how = match (self.core.dead.is_cancelled(), self.cut.now.is_cancelled()) {
            (true, _) => Ended::Died,
            (false, true) => Ended::Cut,
            (false, false) => Ended::PeerLeft,
        };
        self.entry.ended(how);
        if let Some(job) = &self.job {
            job.left.cancel();
        }
    }
}

/// All choices of one request as they grow.
#[derive(Debug)]
pub(super) struct Growing {
    pub(super) choices: Vec<Choice>,
}

impl Growing {
    pub(super) fn new(count: usize) -> Self {
        Self { choices: vec![Choice::default(); count] }
    }

    pub(super) fn add(&mut self, choice: usize, id: u32, text: &str, finish: Option<Finish>) {
        let Some(choice) = self.choices.get_mut(choice) else { return };
        // The end of an aborted choice is no token.
        if !text.is_empty() {
            choice.text.push_str(text);
            choice.ids.push(id);
        }
        choice.finish = choice.finish.or(finish);
    }

    pub(super) fn complete(&self) -> bool {
        self.choices.iter().all(|choice| choice.finish.is_some())
    }

    pub(super) fn made(&self) -> u64 {
        self.choices.iter().map(|choice| choice.ids.len() as u64).sum()
    }
}

/// The body of a streamed answer.
#[derive(Debug)]
pub(super) struct EventStream {
    ticket: Ticket,
    shape: Shape,
    events: UnboundedReceiver<Event>,
    /// Read already.
    first: Option<Event>,
    growing: Growing,
    opened: Vec<bool>,
    queue: VecDeque<Bytes>,
    fault: Fault,
    tokens: u32,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// What is queued goes out, then nothing.
    Closing,
    /// Silence.
    Silent,
    Over,
}

impl EventStream {
    pub(super) fn new(
        ticket: Ticket,
        shape: Shape,
        choices: usize,
        events: UnboundedReceiver<Event>,
        first: Option<Event>,
        fault: Fault,
    ) -> Self {
        Self {
            ticket,
            shape,
            events,
            first,
            growing: Growing::new(choices),
            opened: vec![false; choices],
            queue: VecDeque::new(),
            fault,
            tokens: 0,
            state: State::Open,
        }
    }

    /// Opens every choice before its first token, as vLLM does.
    pub(super) fn open_all(&mut self) {
        (0..self.opened.len()).for_each(|index| self.open(index));
    }

    fn open(&mut self, index: usize) {
        if !std::mem::replace(&mut self.opened[index], true)
            && let Some(role) = self.shape.role(index)
        {
            self.push(&format!("data: {}\n\n", role.text()));
        }
    }

    fn push(&mut self, event: &str) {
        self.queue.push_back(Bytes::copy_from_slice(event.as_bytes()));
    }

    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            if let Some(bytes) = self.queue.pop_front() {
                self.ticket.entry.first_event();
                return Poll::Ready(Some(Ok(bytes)));
            }
            match self.state {
                State::Closing => {
                    self.ticket.done();
                    self.state = State::Over;
                }
                State::Over => return Poll::Ready(None),
                State::Silent => return Poll::Pending,
                State::Open => {}
            }
            if self.state == State::Open {
                let event = match self.first.take() {
                    Some(event) => Poll::Ready(Some(event)),
                    None => self.events.poll_recv(cx),
                };
                match event {
                    Poll::Ready(Some(event)) => self.event(event),
                    // The engine under it is gone.
                    Poll::Ready(None) => {
                        return Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into())));
                    }
                    Poll::Pending => return Poll::Pending,
                }
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Params(_) => {}
            Event::Failed(failure) => self.fail(&failure),
            Event::Token { choice, id, text, finish } => self.token(choice, id, &text, finish),
        }
    }

    fn fail(&mut self, failure: &Failure) {
        self.push(&answer::error_event(self.shape.wire, failure));
        self.close();
    }

    fn close(&mut self) {
        self.push("data: [DONE]\n\n");
        self.state = State::Closing;
    }

    fn token(&mut self, index: usize, id: u32, text: &str, finish: Option<Finish>) {
        let aborted = finish == Some(Finish::Abort);
        if !aborted && self.fault.after == Some(self.tokens) && self.scripted() {
            return;
        }
        self.tokens += 1;
        if index >= self.opened.len() {
            return;
        }
        self.open(index);
        self.growing.add(index, id, text, finish);
        let last = self.growing.complete();
        let piece = Piece { index, text, finish, choice: &self.growing.choices[index], last };
        for chunk in self.shape.token(piece) {
            self.push(&format!("data: {}\n\n", chunk.text()));
        }
        if last {
            if let Some(usage) = self.shape.usage(self.growing.made()) {
                self.push(&format!("data: {}\n\n", usage.text()));
            }
            self.close();
        }
    }

    /// The scripted end of a stream. `false` where there is none.
    fn scripted(&mut self) -> bool {
        match self.fault.end {
            None | Some(End::Status(_)) => return false,
            Some(End::Error) => self.fail(&Failure::internal("Internal server error")),
            Some(End::Abort) => {
                self.fault.end = None;
                for index in 0..self.opened.len() {
                    self.token(index, 0, "", Some(Finish::Abort));
                }
            }
            Some(end) => {
                self.ticket.end(end);
                self.state = State::Silent;
            }
        }
        // The rest of the work is for nobody.
        if let Some(job) = self.ticket.job.as_ref().filter(|_| self.state == State::Closing) {
            job.left.cancel();
        }
        true
    }
}

//! Plays a script on one connection.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::log::Log;
use super::request::{BodyState, RecordedRequest};
use super::script::{Script, ScriptCell};
use super::step::{IntoSteps, Step};
use super::{Response, openai};
use crate::testkit::wire::body::BodyReader;
use crate::testkit::wire::head::{Framing, head_len};
use crate::testkit::wire::pipe::{Pipe, PipeEvent};
use crate::testkit::wire::{PeerEnd, Wire};
use crate::types::clock::now;

/// Why a connection is over, and how the engine is to let go of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    Close,
    Reset,
    PeerLeft,
}

/// Serves one connection until either side ends it; its number in the log is the next free one.
pub async fn serve_conn<IO: Wire>(io: IO, script: impl Into<ScriptCell>, log: Log) {
    let mut conn = Conn::new(io, script.into(), log);
    let exit = conn.serve().await;
    conn.finish(exit).await;
}

const NO_REQUEST: usize = usize::MAX;

pub(super) struct Conn<IO> {
    pipe: Pipe<IO>,
    cell: ScriptCell,
    /// The script as of the current request.
    script: Script,
    log: Log,
    id: usize,
    ordinal: usize,
    /// Index in the log of the request being served; shared with the pipe's observer.
    current: Arc<AtomicUsize>,
    body: BodyReader,
}

impl<IO> Drop for Conn<IO> {
    /// Also when the task is dropped with its runtime.
    fn drop(&mut self) {
        let stray = self.pipe.inbuf.to_vec();
        self.log.conn(self.id, |conn| {
            conn.closed_at = Some(now());
            conn.stray = stray;
        });
    }
}

impl<IO: Wire> Conn<IO> {
    pub(super) fn new(io: IO, cell: ScriptCell, log: Log) -> Self {
        let id = log.open();
        let script = cell.get();
        let current = Arc::new(AtomicUsize::new(NO_REQUEST));
        let mut pipe = Pipe::new(io);
        pipe.observe(observer(log.clone(), id, current.clone()));
        if let Some(size) = script.read_size {
            pipe.set_read_size(size);
        }
        let body = BodyReader::new(Framing::Empty);
        Self { pipe, cell, script, log, id, ordinal: 0, current, body }
    }

    /// Serves until the end; cancel-safe, so that a handle can end it from outside.
    pub(super) async fn serve(&mut self) -> Exit {
        tokio::time::sleep(self.script.accept_delay).await;
        match self.serve_all().await {
            Err(exit) => exit,
        }
    }

    /// Lets go of the connection.
    pub(super) async fn finish(mut self, exit: Exit) {
        // What has arrived is taken out of the kernel: bytes left unread would turn the FIN into a RST.
        self.pipe.fill_now().await;
        if exit == Exit::Reset {
            self.pipe.io().arm_reset();
        }
    }

    async fn serve_all(&mut self) -> Result<Infallible, Exit> {
        loop {
            let served = self.one_request().await;
            // Whatever of the body had come when it ended is part of the record.
            let absorbed = self.absorb();
            served?;
            absorbed?;
            self.current.store(NO_REQUEST, Ordering::Relaxed);
            self.ordinal += 1;
        }
    }

    async fn one_request(&mut self) -> Result<(), Exit> {
        self.script = self.cell.get();
        self.before_reading().await?;
        let head = self.head().await?;
        self.script = self.cell.get();
        let request = RecordedRequest::from_head(self.id, self.ordinal, &head, now());
        let index = self.admit(request.clone());
        if request.malformed.is_some() {
            return self.refuse().await;
        }
        let steps = if let Some(steps) = self.script.steps_at_head(&request) {
            steps
        } else {
            self.read_body().await?;
            self.script.steps_at_body(&self.log.get(index))
        };
        self.play(index, steps).await?;
        self.pipe.reading = true;
        self.read_body().await?;
        if request.wants_close() { Err(Exit::Close) } else { Ok(()) }
    }

    fn admit(&mut self, request: RecordedRequest) -> usize {
        self.body = BodyReader::new(request.framing);
        let index = self.log.push(request);
        self.current.store(index, Ordering::Relaxed);
        index
    }

    async fn before_reading(&mut self) -> Result<(), Exit> {
        match self.script.before_reading() {
            Some(Step::CloseBeforeReading) => Err(Exit::Close),
            Some(Step::ResetOnFirstByte) => {
                while self.pipe.inbuf.is_empty() && self.pipe.end.is_none() {
                    self.pipe.more().await;
                }
                Err(Exit::Reset)
            }
            _ => Ok(()),
        }
    }

    async fn head(&mut self) -> Result<Vec<u8>, Exit> {
        loop {
            if let Some(len) = head_len(&self.pipe.inbuf) {
                return Ok(self.pipe.inbuf.split_to(len).to_vec());
            }
            if self.pipe.end.is_some() {
                return Err(Exit::PeerLeft);
            }
            match self.script.keep_alive.filter(|_| self.pipe.inbuf.is_empty()) {
                Some(idle) => {
                    tokio::time::timeout(idle, self.pipe.more()).await.map_err(|_| Exit::Close)?;
                }
                None => self.pipe.more().await,
            }
        }
    }

    async fn read_body(&mut self) -> Result<(), Exit> {
        loop {
            if self.absorb().is_err() {
                return self.refuse().await;
            }
            if self.body.is_done() {
                return Ok(());
            }
            if self.pipe.end.is_some() {
                return Err(Exit::PeerLeft);
            }
            self.pipe.more().await;
        }
    }

    /// Moves what has come of the body into the record.
    fn absorb(&mut self) -> Result<(), Exit> {
        let index = self.current.load(Ordering::Relaxed);
        if index == NO_REQUEST {
            return Ok(());
        }
        let (body, input) = (&mut self.body, &mut self.pipe.inbuf);
        self.log.request(index, |request| take_body(request, body, input))
    }

    /// 400 if nothing was answered yet, and the end of the connection.
    async fn refuse(&mut self) -> Result<(), Exit> {
        let index = self.current.load(Ordering::Relaxed);
        let request = self.log.get(index);
        if request.response.written == 0 {
            let reason = request.malformed.unwrap_or_default();
            let answer = openai::error(400, &reason).connection_close();
            self.write(&answer.to_bytes()).await?;
        }
        Err(Exit::Close)
    }

    async fn play(&mut self, index: usize, steps: Vec<Step>) -> Result<(), Exit> {
        let steps = expand(steps);
        let last_write = steps.iter().rposition(Step::writes);
        for (n, step) in steps.into_iter().enumerate() {
            self.step(step).await?;
            self.absorb()?;
            if Some(n) == last_write {
                self.log.request(index, |request| request.response.done_at = Some(now()));
            }
        }
        Ok(())
    }

    async fn step(&mut self, step: Step) -> Result<(), Exit> {
        match step {
            Step::Sleep(duration) => self.sleep(duration).await,
            Step::Write(bytes) => {
                self.note_status(&bytes);
                self.write(&bytes).await
            }
            Step::Respond(response) => {
                let bytes = response.to_bytes();
                self.note_status(&bytes);
                self.write(&bytes).await
            }
            Step::WriteSplit { bytes, split, gap } => {
                self.note_status(&bytes);
                for piece in split.pieces(bytes.len()) {
                    let last = piece.end == bytes.len();
                    self.write(&bytes[piece]).await?;
                    if !last {
                        self.pause(gap).await?;
                    }
                }
                Ok(())
            }
            Step::Stall => self.stall().await,
            Step::Close | Step::CloseBeforeReading => Err(Exit::Close),
            Step::Reset | Step::ResetOnFirstByte => Err(Exit::Reset),
            Step::HalfClose => self.pipe.shutdown().await.map_err(|_| Exit::PeerLeft),
            Step::ReadBody => {
                self.pipe.reading = true;
                self.read_body().await
            }
            Step::ReadNoBody { keep_reading } => self.set_reading(keep_reading),
            Step::StopReading => self.set_reading(false),
            Step::ResumeReading => self.set_reading(true),
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "an arm of `step`")]
    fn set_reading(&mut self, reading: bool) -> Result<(), Exit> {
        self.pipe.reading = reading;
        Ok(())
    }

    fn until_end(&self) -> bool {
        !self.script.tolerate_fin
    }

    /// The final status that is about to be sent, where bytes begin with one.
    fn note_status(&self, bytes: &[u8]) {
        let line = bytes.strip_prefix(b"HTTP/1.1 ").or_else(|| bytes.strip_prefix(b"HTTP/1.0 "));
        let digits = line.and_then(|rest| rest.get(..3)).and_then(|d| std::str::from_utf8(d).ok());
        let status = digits.and_then(|d| d.parse::<u16>().ok()).filter(|status| *status >= 200);
        let index = self.current.load(Ordering::Relaxed);
        if status.is_some() && index != NO_REQUEST {
            self.log.request(index, |request| request.response.status = status);
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Exit> {
        self.pipe.write_all(bytes, self.until_end()).await.map_err(|_| Exit::PeerLeft)
    }

    async fn sleep(&mut self, duration: std::time::Duration) -> Result<(), Exit> {
        let slept = self.pipe.sleep(duration, self.until_end()).await;
        if slept { Ok(()) } else { Err(Exit::PeerLeft) }
    }

    /// A pause of zero still lets the others run, so that they see the pieces apart.
    async fn pause(&mut self, gap: std::time::Duration) -> Result<(), Exit> {
        if gap.is_zero() {
            tokio::task::yield_now().await;
            return Ok(());
        }
        self.sleep(gap).await
    }

    async fn stall(&mut self) -> Result<(), Exit> {
        loop {
            match self.pipe.end {
                Some((PeerEnd::Fin, _)) if self.script.tolerate_fin => std::future::pending().await,
                Some(_) => return Err(Exit::PeerLeft),
                None => self.pipe.more().await,
            }
            self.absorb()?;
        }
    }
}

fn take_body(
    request: &mut RecordedRequest,
    body: &mut BodyReader,
    input: &mut bytes::BytesMut,
) -> Result<(), Exit> {
    if request.body_state != BodyState::Partial {
        return Ok(());
    }
    if let Err(reason) = body.take(input, &mut request.raw_body, &mut request.body) {
        request.body_state = BodyState::Malformed;
        request.malformed = Some(reason);
        return Err(Exit::Close);
    }
    if body.is_done() {
        request.body_state = BodyState::Complete;
        request.body_at = Some(now());
    }
    Ok(())
}

fn observer(log: Log, id: usize, current: Arc<AtomicUsize>) -> impl Fn(PipeEvent) + Send {
    move |event| {
        let index = current.load(Ordering::Relaxed);
        match event {
            PipeEvent::Wrote(bytes) if index != NO_REQUEST => log.request(index, |request| {
                request.response.first_byte_at.get_or_insert_with(now);
                request.response.written += bytes as u64;
            }),
            PipeEvent::Wrote(_) => {}
            PipeEvent::Ended(how, at) => {
                log.conn(id, |conn| {
                    conn.peer_left.get_or_insert((how, at));
                    if how == PeerEnd::Rst {
                        conn.reset_at.get_or_insert(at);
                    }
                });
                if index != NO_REQUEST {
                    log.request(index, |request| {
                        request.peer_left.get_or_insert((how, at));
                    });
                }
            }
        }
    }
}

/// Makes the close that an answer implies a step of its own.
fn expand(steps: Vec<Step>) -> Vec<Step> {
    let closes = |step: &Step| matches!(step, Step::Respond(Response { close: true, .. }));
    let one = |step: Step| if closes(&step) { vec![step, Step::Close] } else { step.into_steps() };
    steps.into_iter().flat_map(one).collect()
}

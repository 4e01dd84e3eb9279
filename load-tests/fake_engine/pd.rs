//! The contract of prefill and decode, checked for each request: both legs come, belong together, and have the prompt.
//!
//! SGLang's legs meet in their room: neither is answered before the other is here. vLLM's prefill hands parameters out,
//! and a decode brings exactly those back, once. A request without either is somebody's relay of one leg. All is counted;
//! what breaks the contract is refused, and counted by what was wrong.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::oneshot;

use crate::common::{Ask, SMALL_ANSWER, carried};

/// How long a leg waits for the other one.
const MEETING: Duration = Duration::from_secs(10);

/// What a listener does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Prefill,
    Decode,
}

/// One listener. Several of a role are several engines, as far as routers see.
#[derive(Debug, Clone, Copy)]
pub struct Door {
    pub role: Role,
    /// Also where a prefill's rooms are, for SGLang.
    pub port: u16,
}

/// What of a request belongs to the contract. Routers may add fields and change their order.
#[derive(Deserialize)]
struct Leg<'a> {
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
    stream: Option<bool>,
    max_tokens: Option<u64>,
    bootstrap_host: Option<String>,
    bootstrap_port: Option<u16>,
    bootstrap_room: Option<u64>,
    kv_transfer_params: Option<Transfer>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    content: Cow<'a, str>,
}

/// Where the KV of a prompt is: what a decode has to be told in a prefill's own words.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Transfer {
    do_remote_decode: bool,
    do_remote_prefill: bool,
    remote_block_ids: Option<Vec<Vec<u64>>>,
    remote_engine_id: Option<String>,
    remote_request_id: Option<String>,
    remote_host: Option<String>,
    remote_port: Option<u16>,
    tp_size: Option<u64>,
}

/// A room: its number, and the prefill's port that the leg named.
type Room = (u64, u16);

/// What to answer.
#[derive(Debug)]
pub enum Reply {
    Ask(Ask),
    /// A vLLM prefill's whole answer.
    Handoff(String),
}

/// What was counted since the last report.
#[derive(Debug, Default, Serialize)]
struct Counts {
    one_leg: u64,
    sglang: u64,
    vllm: u64,
    breaches: BTreeMap<&'static str, u64>,
}

/// Pairs that are not complete, and the counts. One thread sees both legs of each.
#[derive(Debug, Default)]
pub struct Pairs {
    /// Legs that wait for the other one.
    rooms: RefCell<HashMap<Room, (Role, oneshot::Sender<()>)>>,
    handoffs: RefCell<HashMap<String, Transfer>>,
    counts: RefCell<Counts>,
    next: RefCell<u64>,
    /// Ports at which legs came since the last report.
    prefills: RefCell<BTreeSet<u16>>,
    decodes: RefCell<BTreeSet<u16>>,
}

impl Pairs {
    /// Takes one leg and returns when it may be answered.
    ///
    /// # Errors
    /// What broke the contract; it has been counted.
    pub async fn take(&self, door: Door, body: &[u8]) -> Result<Reply, &'static str> {
        let doors = if door.role == Role::Prefill { &self.prefills } else { &self.decodes };
        doors.borrow_mut().insert(door.port);
        let reply = self.check(door, body).await;
        if let Err(breach) = reply {
            *self.counts.borrow_mut().breaches.entry(breach).or_default() += 1;
        }
        reply
    }

    async fn check(&self, door: Door, body: &[u8]) -> Result<Reply, &'static str> {
        let leg: Leg = serde_json::from_slice(body).map_err(|_| "no chat request")?;
        let prompt = leg.messages.last().map_or("", |message| &message.content);
        let ask = carried(prompt).ok_or("another prompt")?;
        if leg.stream.unwrap_or(false) != (ask.events > 0) && !leg.is_prefill_of_vllm() {
            return Err("another stream flag");
        }
        let rooms = leg.bootstrap_port.filter(|_| leg.bootstrap_host.is_some());
        match (door.role, leg.bootstrap_room.zip(rooms), &leg.kv_transfer_params) {
            (Role::Decode, None, None) if leg.bootstrap_room.is_some() => Err("a room nowhere"),
            (Role::Decode, None, None) => {
                self.counts.borrow_mut().one_leg += 1;
                Ok(Reply::Ask(ask))
            }
            (Role::Prefill, Some((_, port)), None) if port != door.port => Err("another prefill's room"),
            (role, Some(room), None) => {
                self.meet(role, room).await?;
                // A prefill says the first token.
                let events = if role == Role::Prefill { ask.events.min(1) } else { ask.events };
                Ok(Reply::Ask(Ask { events, ..ask }))
            }
            (Role::Prefill, None, Some(_)) if leg.is_prefill_of_vllm() => Ok(self.hand_off(prompt.len())),
            (Role::Decode, None, Some(transfer)) => self.redeem(transfer).map(|()| Reply::Ask(ask)),
            _ => Err("fields of another leg"),
        }
    }

    async fn meet(&self, role: Role, room: Room) -> Result<(), &'static str> {
        let other = self.rooms.borrow_mut().remove(&room);
        if let Some((here, waiting)) = other {
            self.counts.borrow_mut().sglang += 1;
            return if here != role && waiting.send(()).is_ok() { Ok(()) } else { Err("a room twice") };
        }
        let (call, called) = oneshot::channel();
        self.rooms.borrow_mut().insert(room, (role, call));
        let Ok(met) = tokio::time::timeout(MEETING, called).await else {
            self.rooms.borrow_mut().remove(&room);
            return Err("alone in its room");
        };
        met.map_err(|_| "a room twice")
    }

    /// Parameters as NIXL gives them: a block for 16 tokens, a token for four characters.
    fn hand_off(&self, length: usize) -> Reply {
        let number = self.next.replace_with(|next| *next + 1);
        let id = format!("chatcmpl-{number:016x}");
        let transfer = Transfer {
            do_remote_prefill: true,
            remote_block_ids: Some(vec![(number..=number + length as u64 / 64).collect()]),
            remote_engine_id: Some("6f1c6a52-3a0e-4f5e-9a55-0c5d8c7f2b11".to_owned()),
            remote_request_id: Some(id.clone()),
            remote_host: Some("127.0.0.1".to_owned()),
            remote_port: Some(5600),
            tp_size: Some(1),
            ..Transfer::default()
        };
        let params = json!(transfer).to_string();
        self.handoffs.borrow_mut().insert(id, transfer);
        let front = SMALL_ANSWER.strip_suffix('}').unwrap_or_default();
        Reply::Handoff(format!(r#"{front},"kv_transfer_params":{params}}}"#))
    }

    fn redeem(&self, transfer: &Transfer) -> Result<(), &'static str> {
        let id = transfer.remote_request_id.as_deref().ok_or("parameters without an id")?;
        let given = self.handoffs.borrow_mut().remove(id).ok_or("parameters spent or unknown")?;
        if given != *transfer {
            return Err("parameters altered");
        }
        self.counts.borrow_mut().vllm += 1;
        Ok(())
    }

    /// The counts as JSON, with the pairs that are still open; counting starts anew.
    pub fn report(&self) -> String {
        let mut report = json!(self.counts.take());
        report["open"] = json!(self.rooms.borrow().len() + self.handoffs.borrow().len());
        report["prefills"] = json!(self.prefills.take().len());
        report["decodes"] = json!(self.decodes.take().len());
        self.handoffs.borrow_mut().clear();
        report.to_string()
    }
}

impl Leg<'_> {
    /// One token, no stream, and the KV is kept for somebody.
    fn is_prefill_of_vllm(&self) -> bool {
        let kept = self.kv_transfer_params.as_ref().is_some_and(|transfer| transfer.do_remote_decode);
        kept && self.stream != Some(true) && self.max_tokens == Some(1)
    }
}

#[cfg(test)]
#[path = "pd_tests.rs"]
mod tests;

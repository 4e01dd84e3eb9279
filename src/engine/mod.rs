//! Mock engines that find real faults: SGLang and vLLM as a router meets them, prefill, decode and plain, without a model.
//!
//! What they answer is shaped as recorded from the real engines; what they keep for each other (rooms, pages, leases) is
//! kept by the real engines' rules, and what a wrong router would silently damage in production is marked in the text and
//! counted here. Text is a function of the prompt's KV ([`expected`]), so a test can tell whose KV a decode used.
//!
//! * `config`, `script` — what it is, and faults on demand.
//! * `server`, `tap`, `log`, `taken` — connections, and everything received on them. `moves` — KV that left.
//! * `front`, `generate`, `request`, `prompt` — requests.
//! * `job`, `text`, `core` — work inside the engine and what it shares.
//! * `sglang`, `vllm` — how KV gets from prefill to decode.
//! * `answer`, `stream`, `body`, `json` — answers.
//! * `info`, `metrics`, `control` — what it says of itself.

mod answer;
mod body;
mod client;
mod config;
mod control;
mod core;
mod front;
mod generate;
mod info;
mod job;
mod json;
mod log;
mod metrics;
mod moves;
mod prompt;
mod request;
mod running;
mod script;
mod server;
mod sglang;
mod socket;
mod stream;
mod taken;
mod tap;
mod text;
mod vllm;

#[cfg(test)]
mod tests;

pub use config::{Connector, DuplicateRoom, EngineConfig, LoadFailure, Role, Timing, Waits, Wire};
pub use log::{Conn, Ended, Left, Log, Records, Seen};
pub use moves::{Move, Moves};
pub use running::{Running, State, start, unbound};
pub use script::{End, Fault, Rule, duration};
pub use socket::{Dialer, Socket};
pub use text::{MARK, expected};

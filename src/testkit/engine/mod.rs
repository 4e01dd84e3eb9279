//! A scripted engine that speaks HTTP/1.1 byte by byte.
//!
//! A [`Script`] turns each request into [`Step`]s; [`serve_conn`] plays them on any transport, so the same
//! script runs on TCP and on in-memory pipes under a paused clock. Requests are parsed here, strictly: one
//! that is malformed or ambiguously framed is recorded as such, answered 400 and ends the connection.
//! [`Log`] holds what was received, byte-exact, and when each peer left.
//!
//! A peer's FIN ends the script of its connection, as with the real engines' servers;
//! [`Script::tolerate_half_close`] goes on instead.
//!
//! ```ignore
//! let engine = Engine::start_tcp(Script::openai("m").on("/health", Response::text(503, "no"))).await;
//! let request = &engine.log.wait_for(1, Duration::from_secs(5)).await[0];
//! assert_eq!(request.body, sent);
//! ```

mod conn;
pub(in crate::testkit) mod gate;
mod handle;
mod log;
pub mod openai;
mod request;
mod response;
mod script;
mod step;

pub use conn::serve_conn;
pub use handle::{BlackHole, Engine, EngineHandle};
pub use log::{ConnRecord, Log};
pub use request::{BodyState, RecordedRequest, ResponseState};
pub use response::{Body, Response};
pub use script::{Script, ScriptCell};
pub use step::{IntoSteps, Step, informational};

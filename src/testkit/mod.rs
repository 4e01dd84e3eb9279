//! The rig that tests and examples stand on; compiled only for tests and under the feature `testing`.
//!
//! * [`engine`] — a scripted HTTP/1.1 engine: any byte, any split, any stall, reset or close; it records
//!   exactly what it received and when the peer left.
//! * [`client`] — clients that hide nothing: raw HTTP/1.1 bytes, and h2 with its frames.
//! * [`memory`] — named in-memory "hosts", so that a whole conversation runs on a paused clock.
//! * [`kube`] — a stateful Kubernetes API server for Pods, in memory or on loopback, with scripted faults.
//! * [`router`] — a whole router in the test's own runtime, and the invariants after every replay.
//! * [`quiet`] — what in-flight reports claim, held against engines' logs.
//! * [`wire`] — what both sides share: transports that can be reset, heads, framing, splits.
//! * [`upstream`] — the product's upstream client over scripted bytes.
//! * [`sse`], [`metrics`], [`eventually`], [`fixtures`], [`openai`] — assertions and inputs.
//!
//! Apart from [`upstream`], and from [`kube`] whose HTTP is hyper's, the kit parses HTTP itself and shares no code with the
//! product: a fault in one is not hidden by the same fault in the other. A broken rig panics, with the last thing seen in the message.

#![expect(clippy::unwrap_used, clippy::panic, reason = "test code: a broken rig must stop the test")]

pub mod client;
pub mod engine;
pub mod eventually;
pub mod fixtures;
mod front;
pub mod kube;
pub mod memory;
pub mod metrics;
pub mod openai;
pub mod quiet;
pub mod router;
pub mod sse;
pub mod task;
pub mod upstream;
pub mod wire;

#[cfg(test)]
mod tests;

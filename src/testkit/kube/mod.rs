//! A Kubernetes API server for Pods that remembers everything and can be told to misbehave.
//!
//! [`FakeKube`] is the truth: tests write Pods, and every change stays in one history, so that nothing made between a
//! LIST and a WATCH is lost unless a test loses it. [`ReplicaHandle`]s show that truth, each as far behind as it was
//! told. The protocol is that of a real server, `Status` bodies and label selectors on watches included. Faults are
//! scripted per kind of request ([`Fault`]) or done to the watches that are open.
//!
//! [`Entry`] is the way in: a `kube::Client` without sockets, which runs on a paused clock, or HTTP on loopback.
//!
//! ```ignore
//! let fake = FakeKube::new();
//! let uid = fake.create(PodSpec::new("d1").label("app", "llm").ip("192.0.2.1").port("http", 8000));
//! let pods: Api<Pod> = Api::namespaced(fake.client(), "default");
//! fake.push(RequestKind::List, Fault::throttled(5));
//! fake.lose_next(1);
//! fake.force_delete("default", "d1");
//! ```

mod answer;
mod connect;
mod discovery;
mod event;
mod fault;
mod front;
mod handle;
mod list;
mod log;
mod mischief;
mod namespaces;
mod observe;
mod options;
mod pod;
mod query;
mod replica;
mod reply;
mod selector;
mod server;
mod settings;
mod state;
mod status;
mod store;
mod told;
mod trouble;
mod watch;
mod writes;

#[cfg(test)]
mod tests;

pub use fault::Fault;
pub use front::Entry;
pub use handle::{FakeKube, Uid};
pub use log::{Recorded, RequestKind};
pub use pod::{PodSpec, set_ready};
pub use replica::ReplicaHandle;
pub use reply::Reply;
pub use server::{Credentials, FakeServer, write_token};
pub use settings::WatchList;
pub use store::{CREATED, Change, DELETED, FIRST_VERSION};
pub use told::Told;

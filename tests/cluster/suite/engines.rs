//! Engines of this process, one behind each Pod.

use tandem::testkit::engine::openai::chat_json;
use tandem::testkit::engine::{Engine, EngineHandle, Script};
use tandem::types::clock::Instant;

use super::pods::Blueprint;

/// Engines on ports of their own; each answers every chat at once.
pub struct Engines(pub Vec<EngineHandle>);

impl Engines {
    pub async fn start(n: usize) -> Self {
        let mut engines = Vec::new();
        for i in 0..n {
            engines.push(Engine::start_tcp(Script::always(chat_json(&format!("engine {i}")))).await);
        }
        Self(engines)
    }

    pub fn port(&self, i: usize) -> u16 {
        self.0[i].addr().port()
    }

    pub fn ports(&self) -> Vec<u16> {
        (0..self.0.len()).map(|i| self.port(i)).collect()
    }

    /// A Pod of this name for the engine.
    pub fn pod(&self, i: usize, name: &str) -> Blueprint {
        Blueprint::new(name, self.port(i))
    }

    /// One Pod for each engine: `p0`, `p1`…
    pub fn pods(&self) -> Vec<Blueprint> {
        (0..self.0.len()).map(|i| self.pod(i, &format!("p{i}"))).collect()
    }

    /// When each request of clients reached this engine.
    pub fn arrivals(&self, i: usize) -> Vec<Instant> {
        self.0[i].log.requests_to("/v1/chat/completions").iter().map(|request| request.head_at).collect()
    }

    pub fn count(&self, i: usize) -> usize {
        self.arrivals(i).len()
    }

    /// How many came after this.
    pub fn after(&self, i: usize, at: Instant) -> usize {
        self.arrivals(i).iter().filter(|arrival| **arrival > at).count()
    }
}

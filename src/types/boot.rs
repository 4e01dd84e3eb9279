//! Which process this is, for whoever compares what it says now with what it said before.

use super::clock;

/// One start of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boot {
    /// UID of its Pod where the environment has it (`POD_UID`), else random.
    pub instance: String,
    /// Wall clock at the start, milliseconds; never 0.
    pub generation: u64,
}

impl Boot {
    /// Of this process; called once for each router.
    pub fn now() -> Self {
        let pod = std::env::var("POD_UID").ok().filter(|uid| !uid.is_empty());
        Self { instance: pod.unwrap_or_else(random), generation: clock::wall_ms().max(1) }
    }
}

fn random() -> String {
    uuid::Builder::from_random_bytes(fastrand::u128(..).to_ne_bytes()).into_uuid().to_string()
}

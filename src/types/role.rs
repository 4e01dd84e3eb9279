//! What an endpoint does for a request.

/// The role of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Reads the prompt and hands the KV over.
    Prefill,
    /// Generates from the KV of a prefill.
    Decode,
    /// Serves whole requests alone.
    Mixed,
}

impl Role {
    pub const ALL: [Self; 3] = [Self::Prefill, Self::Decode, Self::Mixed];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Mixed => "mixed",
        }
    }
}

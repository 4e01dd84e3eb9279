//! What an engine can say of itself, by name. Words of a metric's label and of operators' details.

/// One thing that an engine may report. In the order in which contradictions are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fact {
    /// Which part of a request it takes.
    Role,
    /// What it was told to serve: a served name (SGLang) or where the weights are from (vLLM).
    Model,
    /// Version of the weights, as it was told to load them.
    ModelRevision,
    /// Of the engine itself.
    Version,
    /// What moves its KV.
    TransferBackend,
    /// Digest of everything that a decode compares before it pulls KV (vLLM's NIXL connector).
    KvCompatibility,
    /// Tokens of one page or block of KV.
    PageSize,
    KvCacheDtype,
}

impl Fact {
    pub const ALL: [Self; 8] = [
        Self::Role,
        Self::Model,
        Self::ModelRevision,
        Self::Version,
        Self::TransferBackend,
        Self::KvCompatibility,
        Self::PageSize,
        Self::KvCacheDtype,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Role => "role",
            Self::Model => "model",
            Self::ModelRevision => "model_revision",
            Self::Version => "version",
            Self::TransferBackend => "transfer_backend",
            Self::KvCompatibility => "kv_compatibility",
            Self::PageSize => "page_size",
            Self::KvCacheDtype => "kv_cache_dtype",
        }
    }
}

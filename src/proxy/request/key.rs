//! The top-level body keys that the router knows. All others are skipped and forwarded untouched (I6).
//!
//! A key is here for one of two reasons: the router acts on it (now, or when it makes a prefill body), or it belongs
//! to the router and clients may not set it (I11). A second member of the same known key is refused: engines take the
//! last, other parsers the first, so router and engine could act on different values.

macro_rules! keys {
    ($($variant:ident $name:literal $owned:literal,)*) => {
        /// A known top-level key.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Key {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl Key {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The key of exactly this (unescaped) spelling.
            #[inline]
            pub fn find(name: &[u8]) -> Option<Self> {
                $(if name == $name.as_bytes() { return Some(Self::$variant); })*
                None
            }

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Belongs to the router: a client's value is removed before the body is forwarded (I11).
            pub fn is_owned(self) -> bool {
                match self { $(Self::$variant => $owned,)* }
            }
        }
    };
}

keys! {
    Model "model" false,
    Stream "stream" false,
    StreamOptions "stream_options" false,
    N "n" false,
    BestOf "best_of" false,
    UseBeamSearch "use_beam_search" false,
    MaxTokens "max_tokens" false,
    MaxCompletionTokens "max_completion_tokens" false,
    MaxOutputTokens "max_output_tokens" false,
    MinTokens "min_tokens" false,
    MinCompletionTokens "min_completion_tokens" false,
    SamplingParams "sampling_params" false,
    Prompt "prompt" false,
    Messages "messages" false,
    Input "input" false,
    Text "text" false,
    InputIds "input_ids" false,
    Priority "priority" false,
    User "user" false,
    UserId "user_id" false,
    SessionId "session_id" false,
    SessionParams "session_params" false,
    Rid "rid" false,
    BootstrapHost "bootstrap_host" true,
    BootstrapPort "bootstrap_port" true,
    BootstrapRoom "bootstrap_room" true,
    BootstrapPairKey "bootstrap_pair_key" true,
    KvTransferParams "kv_transfer_params" true,
    RoutedDpRank "routed_dp_rank" true,
    DisaggPrefillDpRank "disagg_prefill_dp_rank" true,
    DataParallelRank "data_parallel_rank" true,
}

/// Longest known key, bytes.
const LONGEST: usize = 22;

impl Key {
    /// The key that this text between two quotes spells, escapes resolved (`mod\u0065l` is `model`).
    #[inline]
    pub fn from_raw(raw: &[u8]) -> Option<Self> {
        if !raw.contains(&b'\\') {
            return Self::find(raw);
        }
        Self::from_escaped(raw)
    }

    /// Rare, so `serde_json` may do it; bounded, because every character of a known key takes at most six bytes.
    #[cold]
    fn from_escaped(raw: &[u8]) -> Option<Self> {
        if raw.len() > 6 * LONGEST {
            return None;
        }
        let quoted = [b"\"", raw, b"\""].concat();
        // An error is a lone surrogate, which no known key contains.
        let name: String = serde_json::from_slice(&quoted).ok()?;
        Self::find(name.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_by_its_name_and_by_any_escaped_spelling() {
        for &key in Key::ALL {
            let name = key.as_str();
            assert!(name.len() <= LONGEST);
            assert_eq!(Key::from_raw(name.as_bytes()), Some(key));
            let all = name.bytes().map(|b| format!("\\u{b:04X}")).collect::<Vec<_>>().concat();
            assert_eq!(Key::from_raw(all.as_bytes()), Some(key));
        }
        assert_eq!(Key::from_raw(b"mod\\u0065l"), Some(Key::Model));
    }

    #[test]
    fn near_misses_are_unknown() {
        for raw in [
            "",
            "Model",
            "model ",
            "models",
            "mode",
            "mod\\u0045l",
            "model\\ud83d",
            "\\\\u006dodel",
            "n\\u0000",
        ] {
            assert_eq!(Key::from_raw(raw.as_bytes()), None, "{raw}");
        }
        assert_eq!(Key::from_raw(&b"\\u006d".repeat(1 << 20)), None);
    }
}

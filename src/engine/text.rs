//! Text as a pure function of the KV that the decode really got.
//!
//! The "KV" of a prompt is one number, its hash with the seed. A prefill computes it, the hand-over carries it, and every
//! word a decode says comes from what arrived: with another prompt's KV it says other words, exactly like the real
//! engines, which answer such a request with 200. A test knows the right words from [`expected`].

/// In every word that was made from pages or blocks that somebody else may have written into.
pub const MARK: &str = "[corrupted]";

const WORDS: [&str; 64] = [
    "able", "acid", "arch", "away", "bake", "bell", "bird", "blue", "boat", "born", "calm", "cave", "clay",
    "coal", "cold", "cook", "dawn", "deep", "desk", "dust", "east", "edge", "farm", "fish", "foam", "fold",
    "gate", "glow", "gold", "hand", "hill", "idle", "iron", "jade", "keen", "kite", "lake", "leaf", "lime",
    "loud", "mild", "mint", "moon", "nest", "noon", "oak", "open", "path", "pine", "quay", "rain", "reed",
    "rose", "sail", "salt", "seed", "silk", "snow", "star", "tide", "vine", "warm", "wave", "wind",
];

/// What stands for the KV of one prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kv {
    pub(super) content: u64,
    pub(super) corrupted: bool,
}

impl Kv {
    pub(super) fn clean(content: u64) -> Self {
        Self { content, corrupted: false }
    }

    pub(super) fn corrupt(self) -> Self {
        Self { corrupted: true, ..self }
    }

    /// Output token `at` of sample `sample`: its id and its text.
    pub(super) fn token(self, sample: u32, at: u32) -> (u32, String) {
        let content = if self.corrupted { !self.content } else { self.content };
        let hash = mix(content ^ mix((u64::from(sample) << 32) | u64::from(at)));
        let id = (hash % WORDS.len() as u64) as u32;
        let word = WORDS[id as usize];
        (1000 + id, if self.corrupted { format!(" {MARK}{word}") } else { format!(" {word}") })
    }
}

/// The KV of a prompt: the parts in order, each with its kind and its length in the hash.
pub(super) fn content<'a>(seed: u64, parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut hash = mix(seed ^ 0x9e37_79b9_7f4a_7c15);
    for part in parts {
        for &byte in part {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        hash = mix(hash ^ part.len() as u64);
    }
    hash
}

/// The first `tokens` words that any right answer to this request body begins with (first prompt, first sample). `None`
/// where the body has no prompt.
pub fn expected(seed: u64, body: &[u8], tokens: u32) -> Option<String> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    let prompts = super::prompt::any(&body, seed)?;
    let kv = Kv::clean(prompts.first()?.content);
    Some((0..tokens).map(|at| kv.token(0, at).1).collect())
}

/// The finaliser of `splitmix64`.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(kv: Kv) -> String {
        (0..12).map(|at| kv.token(0, at).1).collect()
    }

    #[test]
    fn text_depends_on_prompt_seed_and_damage_and_on_nothing_else() {
        let a = Kv::clean(content(1, [b"hello".as_slice()]));
        assert_eq!(said(a), said(Kv::clean(content(1, [b"hello".as_slice()]))));
        assert_ne!(said(a), said(Kv::clean(content(1, [b"hellp".as_slice()]))));
        assert_ne!(said(a), said(Kv::clean(content(2, [b"hello".as_slice()]))));
        assert_ne!(content(1, [b"ab".as_slice(), b"c"]), content(1, [b"a".as_slice(), b"bc"]));
        assert!(!said(a).contains(MARK));
        assert_eq!(said(a.corrupt()).matches(MARK).count(), 12);
    }
}

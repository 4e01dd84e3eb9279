//! Where to cut bytes into separate writes.

use std::ops::Range;

/// How one buffer becomes several writes, each with its own flush.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Split {
    /// One write.
    Whole,
    EveryByte,
    /// Pieces of this many bytes, the last one shorter.
    Every(usize),
    /// Cuts at these offsets; those outside the buffer are ignored.
    At(Vec<usize>),
    /// Pieces of 1 to `max` bytes, the same for the same seed.
    Random {
        seed: u64,
        max: usize,
    },
}

impl Split {
    /// The pieces of a buffer of `len` bytes: in order, none empty, together the whole.
    pub fn pieces(&self, len: usize) -> Vec<Range<usize>> {
        let mut cuts = self.cuts(len);
        cuts.push(len);
        cuts.sort_unstable();
        let mut from = 0;
        let mut pieces = Vec::with_capacity(cuts.len());
        for cut in cuts {
            if cut > from && cut <= len {
                pieces.push(from..cut);
                from = cut;
            }
        }
        pieces
    }

    fn cuts(&self, len: usize) -> Vec<usize> {
        match self {
            Self::Whole => Vec::new(),
            Self::EveryByte => (1..len).collect(),
            Self::Every(size) => (1..len).step_by((*size).max(1)).map(|at| at - 1 + size.max(&1)).collect(),
            Self::At(offsets) => offsets.clone(),
            Self::Random { seed, max } => random_cuts(*seed, (*max).max(1), len),
        }
    }
}

fn random_cuts(seed: u64, max: usize, len: usize) -> Vec<usize> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut cuts = Vec::new();
    let mut at = 0;
    while at < len {
        at += random.usize(1..=max);
        cuts.push(at);
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_buffer_in_order() {
        let splits = [
            Split::Whole,
            Split::EveryByte,
            Split::Every(3),
            Split::At(vec![7, 2, 0, 99, 2]),
            Split::Random { seed: 1, max: 4 },
        ];
        for split in splits {
            for len in [0, 1, 2, 10] {
                let joined: Vec<usize> = split.pieces(len).into_iter().flatten().collect();
                assert_eq!(joined, (0..len).collect::<Vec<_>>(), "{split:?} of {len}");
            }
        }
        assert_eq!(Split::Every(3).pieces(7), [0..3, 3..6, 6..7]);
        assert_eq!(Split::At(vec![4, 2]).pieces(5), [0..2, 2..4, 4..5]);
    }

    #[test]
    fn one_seed_gives_one_split() {
        let split = |seed| Split::Random { seed, max: 5 }.pieces(200);
        assert_eq!(split(7), split(7));
        assert_ne!(split(7), split(8));
    }
}

//! The hot loop of the JSON skipper: the stretch of a string in which nothing happens.
//!
//! A prompt is nearly all such stretches, so their speed is the speed of the peek. Short ones (keys, roles, text
//! between two `\n`) end within two words; long ones go by blocks that the compiler turns into vector compares. Two
//! block tests, because one signed comparison catches control characters and non-ASCII bytes at once: only text that
//! is not ASCII pays for the second.

/// With 64 bytes the compiler ORs whole vectors and tests once; with 32 it gathers a mask per compare, at half the
/// speed.
const BLOCK: usize = 64;

/// How far to go by words before blocks are worth their start.
const SHORT: usize = 32;

/// The first position from `at` that is a quote, a backslash or a control character (or the end of `text`).
/// Sets `seen_high` if it may have passed a byte above 0x7f: then, and only then, the string needs a UTF-8 check.
#[inline]
pub(super) fn skip(text: &[u8], mut at: usize, seen_high: &mut bool) -> usize {
    let mut words = SHORT / 8;
    loop {
        for _ in 0..words {
            let Some(word) = text.get(at..).and_then(|rest| rest.first_chunk::<8>()) else {
                return skip_bytes(text, at, seen_high);
            };
            let word = u64::from_le_bytes(*word);
            *seen_high |= word & repeat(0x80) != 0;
            let hits = special(word);
            if hits != 0 {
                return at + (hits.trailing_zeros() / 8) as usize;
            }
            at += 8;
        }
        at = skip_blocks(text, at, seen_high);
        words = BLOCK / 8; // the hit is in the block that was not plain
    }
}

/// Passes whole blocks without a special byte.
#[inline]
fn skip_blocks(text: &[u8], mut at: usize, seen_high: &mut bool) -> usize {
    while let Some(block) = text.get(at..).and_then(|rest| rest.first_chunk::<BLOCK>()) {
        if !is_plain_ascii(block) {
            if !is_plain(block) {
                break;
            }
            *seen_high = true;
        }
        at += BLOCK;
    }
    at
}

#[inline]
fn is_plain_ascii(block: &[u8; BLOCK]) -> bool {
    let mut odd = 0;
    for &b in block {
        odd |= u8::from(b.cast_signed() < 0x20) | u8::from(b == b'"') | u8::from(b == b'\\');
    }
    odd == 0
}

#[inline]
fn is_plain(block: &[u8; BLOCK]) -> bool {
    let mut odd = 0;
    for &b in block {
        odd |= u8::from(b < 0x20) | u8::from(b == b'"') | u8::from(b == b'\\');
    }
    odd == 0
}

/// The last few bytes of a body.
#[cold]
fn skip_bytes(text: &[u8], mut at: usize, seen_high: &mut bool) -> usize {
    while let Some(&b) = text.get(at) {
        if b < 0x20 || b == b'"' || b == b'\\' {
            break;
        }
        *seen_high |= b >= 0x80;
        at += 1;
    }
    at
}

const fn repeat(b: u8) -> u64 {
    u64::from_ne_bytes([b; 8])
}

/// The top bit of every byte that is special; the lowest one is exact, higher ones may be borrow artefacts of it.
#[inline]
fn special(word: u64) -> u64 {
    let below_space = word.wrapping_sub(repeat(0x20)) & !word;
    let quote = word ^ repeat(b'"');
    let quote = quote.wrapping_sub(repeat(1)) & !quote;
    let backslash = word ^ repeat(b'\\');
    let backslash = backslash.wrapping_sub(repeat(1)) & !backslash;
    (below_space | quote | backslash) & repeat(0x80)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naive(text: &[u8], at: usize) -> usize {
        (at..text.len()).find(|&i| matches!(text[i], 0..0x20 | b'"' | b'\\')).unwrap_or(text.len())
    }

    #[test]
    fn every_byte_at_every_offset_is_found_as_by_a_plain_loop() {
        for len in [0, 1, 7, 8, 9, 15, 16, 17, 31, 40, 48, 49, 80, 97] {
            for pos in 0..len {
                for b in 0..=255u8 {
                    let mut text = vec![b'a'; len];
                    text[pos] = b;
                    let mut high = false;
                    assert_eq!(skip(&text, 0, &mut high), naive(&text, 0), "byte {b} at {pos} of {len}");
                    assert!(b < 0x80 || high, "byte {b} at {pos} of {len} passed unseen");
                }
            }
        }
    }

    #[test]
    fn a_hit_behind_high_and_borrowing_bytes_is_exact() {
        let text = [0x80, 0xff, 0x21, 0x23, 0x5b, 0x5d, 0x20, 0x22, 0x22, 0x00];
        assert_eq!(skip(&text, 0, &mut false), 7);
    }
}

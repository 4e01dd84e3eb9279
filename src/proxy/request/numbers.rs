//! The other hot loop of the JSON skipper: lists of small whole numbers, which prompts in tokens and the block ids of a
//! prefill's answer are nearly nothing but.
//!
//! A number at a time through the grammar takes twenty instructions a byte. Here a word of eight bytes tells how long the
//! number is, and what is not plainly a number, a comma and another number is left to the grammar.

/// What one step looks at: a number of at most seven digits, its comma, a space and the next number's first digit.
const WINDOW: usize = 16;

/// `at` is the first digit of a value in a list. The first digit of the last value from there to which nothing but whole
/// numbers, commas and at most one space behind each leads; often the list's last one, sometimes `at` itself.
#[inline]
pub(super) fn skip(text: &[u8], mut at: usize) -> usize {
    while let Some(window) = text.get(at..).and_then(|rest| rest.first_chunk::<WINDOW>())
        && let Some(step) = step(window)
    {
        at += step;
    }
    at
}

/// From the first digit of one number to the first of the next.
#[inline]
fn step(window: &[u8; WINDOW]) -> Option<usize> {
    let digits = digits(u64::from_le_bytes(*window.first_chunk::<8>()?));
    // `01` is no number, and whoever says so is the grammar.
    if digits == 8 || (window[0] == b'0' && digits > 1) || window[digits] != b',' {
        return None;
    }
    let next = digits + 1 + usize::from(window[digits + 1] == b' ');
    window[next].is_ascii_digit().then_some(next)
}

/// How many of the eight bytes, from the lowest, are digits.
#[inline]
fn digits(word: u64) -> usize {
    let value = word ^ repeat(b'0');
    // Above 9 is what carries into the top bit, or has it already.
    let other = (((value & repeat(0x7f)) + repeat(0x7f - 9)) | value) & repeat(0x80);
    (other.trailing_zeros() / 8) as usize
}

const fn repeat(b: u8) -> u64 {
    u64::from_ne_bytes([b; 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_told_from_every_other_byte_at_every_place() {
        for place in 0..8 {
            for b in 0..=255u8 {
                let mut word = *b"90123456";
                word[place] = b;
                let expected = word.iter().position(|b| !b.is_ascii_digit()).unwrap_or(8);
                assert_eq!(digits(u64::from_le_bytes(word)), expected, "{b} at {place}");
            }
        }
    }

    #[test]
    fn it_stops_at_the_last_value_that_is_plainly_reached() {
        let end = "]                "; // room for the last window
        for (list, stop) in [
            ("1,22,333", "333"),
            ("1, 22, 4444444, 0", "0"),
            ("0,0,01", "01"),
            ("01,2", "01,2"),
            ("1,2 ,3", "2 ,3"),
            ("1,  2", "1,  2"),
            ("1,-2", "1,-2"),
            ("1,2.5,3", "2.5,3"),
            ("7,12345678,1", "12345678,1"),
            ("1,\"2\"", "1,\"2\""),
            ("1,2e3,4", "2e3,4"),
            ("1,2,]", "2,]"),
        ] {
            let text = format!("{list}{end}");
            let at = skip(text.as_bytes(), 0);
            assert_eq!(&text[at..text.len() - end.len()], stop, "{list}");
        }
        assert_eq!(skip(b"1,2,3]", 0), 0, "the last bytes of a body go by the grammar");
    }
}

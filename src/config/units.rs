//! Values with a unit, read and written: durations, sizes, shares.
//!
//! A bare number is refused where its unit would be a guess (`timeout: 10`: seconds or milliseconds?), except `0`.
//! Writing picks the largest unit that loses nothing, so what is printed reads back as the same value.

use std::time::Duration;

/// What is wrong with a value, and what would be right; the reader adds where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    pub message: String,
    pub allowed: String,
}

impl Wrong {
    pub fn new(message: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self { message: message.into(), allowed: allowed.into() }
    }
}

const DURATION: &str = "a whole number with ms, s, m or h, such as 500ms, 10s or 1m30s; 0 without a unit";
const SIZE: &str = "bytes, or a whole number with KiB, MiB, GiB or TiB, such as 64MiB";
const SHARE: &str = "0% to 100% (such as 20%), or 0.0 to 1.0";
/// Longest duration: 365 days. Longer ones are slips, and far instants overflow arithmetic.
const LONGEST_MS: u64 = 365 * 24 * 3_600_000;

/// Reads `10s`, `500ms`, `1m30s`, `0`. Units, longest first, may be combined.
///
/// # Errors
/// On anything else, and above 365 days.
pub fn duration(text: &str) -> Result<Duration, Wrong> {
    let wrong = |message: &str| Wrong::new(message, DURATION);
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.contains('.') {
        return Err(wrong("a duration has no decimals; use a smaller unit"));
    }
    let (mut rest, mut total, mut before) = (text, 0u64, u64::MAX);
    loop {
        let (number, unit, after) = number_and_unit(rest).ok_or_else(|| wrong("not a duration"))?;
        let factor = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "" => return Err(wrong("a duration needs a unit")),
            _ => return Err(wrong("not a unit of time")),
        };
        if factor >= before {
            return Err(wrong("each unit at most once, the longest first"));
        }
        let part = number.checked_mul(factor).ok_or_else(|| wrong("longer than 365 days"))?;
        total = total.saturating_add(part);
        if total > LONGEST_MS {
            return Err(wrong("longer than 365 days"));
        }
        if after.is_empty() {
            return Ok(Duration::from_millis(total));
        }
        (rest, before) = (after, factor);
    }
}

/// Like [`duration`], with `0` for "no limit".
///
/// # Errors
/// As [`duration`].
pub(super) fn limit(text: &str) -> Result<Option<Duration>, Wrong> {
    duration(text).map(|d| if d.is_zero() { None } else { Some(d) })
}

/// Like [`duration`], for what makes no sense without any.
///
/// # Errors
/// As [`duration`], and on `0`.
pub(super) fn positive(text: &str) -> Result<Duration, Wrong> {
    let wrong = || Wrong::new("must be more than 0", DURATION.trim_end_matches("; 0 without a unit"));
    duration(text).and_then(|d| if d.is_zero() { Err(wrong()) } else { Ok(d) })
}

/// Like [`duration`], within bounds, both included.
pub(super) fn between(least: Duration, most: Duration) -> impl Fn(&str) -> Result<Duration, Wrong> {
    move |text| {
        let allowed = || format!("{} to {}", show_duration(least), show_duration(most));
        let found = duration(text)
            .map_err(|wrong| Wrong::new(wrong.message, format!("{DURATION}; {}", allowed())))?;
        if (least..=most).contains(&found) { Ok(found) } else { Err(Wrong::new("out of range", allowed())) }
    }
}

/// Writes a duration that reads back. Below a millisecond it is cut off: no timer is finer than that.
pub(super) fn show_duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    let unit = [(3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    match unit.iter().find(|(factor, _)| ms.is_multiple_of(*factor)) {
        Some((factor, unit)) if ms > 0 => format!("{}{unit}", ms / factor),
        _ => "0".to_owned(),
    }
}

/// Reads `64MiB` or plain bytes.
///
/// # Errors
/// On other units (decimal ones are ambiguous), decimals, and sizes above 2^64.
pub(super) fn size(text: &str) -> Result<u64, Wrong> {
    let (number, unit, after) = number_and_unit(text).ok_or_else(|| Wrong::new("not a size", SIZE))?;
    let shift = match unit {
        "" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return Err(Wrong::new("not a unit of size", SIZE)),
    };
    if !after.is_empty() {
        return Err(Wrong::new("not a size", SIZE));
    }
    number.checked_mul(1 << shift).ok_or_else(|| Wrong::new("does not fit 64 bits", SIZE))
}

/// Writes a size that reads back.
pub(super) fn show_size(bytes: u64) -> String {
    let unit = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match unit.iter().find(|(shift, _)| bytes.trailing_zeros() >= *shift) {
        Some((shift, unit)) if bytes > 0 => format!("{}{unit}", bytes >> shift),
        _ => bytes.to_string(),
    }
}

/// Reads `20%` or `0.2` as 0.2. A bare number above 1 is refused rather than taken for a percentage.
///
/// # Errors
/// Outside 0 to 1, and on anything that is not a plain decimal number.
pub(super) fn share(text: &str) -> Result<f64, Wrong> {
    let (number, whole) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let plain = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let value = plain.then(|| number.parse::<f64>().ok()).flatten();
    match value {
        Some(value) if (0.0..=whole).contains(&value) => Ok(value / whole),
        Some(_) => Err(Wrong::new("more than everything", SHARE)),
        None => Err(Wrong::new("not a share", SHARE)),
    }
}

/// Writes a share as a percentage that [`share`] reads back exactly, else as a plain number.
pub(super) fn show_share(share: f64) -> String {
    (0..12)
        .map(|digits| format!("{:.digits$}%", share * 100.0))
        .find(|text| self::share(text).is_ok_and(|back| back.to_bits() == share.to_bits()))
        .unwrap_or_else(|| format!("{share}"))
}

/// Splits leading digits, then letters, off `text`. `None` without a digit in front or when the number overflows.
fn number_and_unit(text: &str) -> Option<(u64, &str, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
    let (unit, after) = rest.split_at(letters);
    Some((number.parse().ok()?, unit, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_duration_is_a_number_and_a_unit_or_zero() {
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(limit("0"), Ok(None));
        assert_eq!(limit("0s"), Ok(None));
        for bad in
            ["", "10", "10 s", "s", "1.5s", "-1s", "1d", "10S", "30s1m", "1s1s", "1m30", "9000h", "+1s"]
        {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert!(duration("18446744073709551615h").is_err());
        let second = |n| Duration::from_secs(n);
        let bounded = between(second(1), second(60));
        assert_eq!((bounded("1s"), bounded("1m")), (Ok(second(1)), Ok(second(60))));
        assert_eq!(bounded("999ms"), Err(Wrong::new("out of range", "1s to 1m")));
        assert!(bounded("61s").is_err() && bounded("1").is_err());
    }

    #[test]
    fn a_size_takes_binary_units_only() {
        assert_eq!(size("64MiB"), Ok(64 << 20));
        assert_eq!(size("4096"), Ok(4096));
        for bad in ["", "64MB", "64M", "64mib", "1.5GiB", "-1", "MiB", "1KiB1", "99999999TiB"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_share_above_one_needs_a_percent_sign() {
        assert_eq!(share("20%"), Ok(0.2));
        assert_eq!(share("0.25"), Ok(0.25));
        assert_eq!(share("1"), Ok(1.0));
        for bad in ["", "%", "20", "101%", "-1%", "1e-1", "nan", "inf%", "."] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn every_printed_duration_reads_back(ms in 0..=LONGEST_MS, round in 0u32..4) {
            let ms = ms / [1, 1_000, 60_000, 3_600_000][round as usize] * [1, 1_000, 60_000, 3_600_000][round as usize];
            let d = Duration::from_millis(ms);
            prop_assert_eq!(duration(&show_duration(d)), Ok(d));
        }

        #[test]
        fn every_printed_size_reads_back(bytes: u64, shift in 0u32..50) {
            let bytes = bytes >> shift << shift;
            prop_assert_eq!(size(&show_size(bytes)), Ok(bytes));
        }

        #[test]
        fn every_printed_share_reads_back(share in 0.0f64..=1.0) {
            prop_assert_eq!(super::share(&show_share(share)), Ok(share));
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = (duration(&text), size(&text), super::share(&text));
        }
    }
}

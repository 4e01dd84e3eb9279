//! RFC 3339 timestamps in UTC with milliseconds, without a calendar crate.
//!
//! The date comes from the days since the epoch by the civil-from-days algorithm (Howard Hinnant, "chrono-compatible
//! low-level date algorithms"): the year starts in March, so that the leap day is its last, and eras of 400 years
//! repeat exactly. The text of the current second is kept: a busy thread computes it once a second.

/// `2026-11-29T20:38:00.` of the second it was made for.
#[derive(Debug, Default)]
pub(super) struct Stamp {
    second: Option<u64>,
    text: [u8; 20],
}

impl Stamp {
    /// Appends the 24 bytes of `ms`, milliseconds since the Unix epoch. Beyond the year 9999 the year is cut to its
    /// last four digits.
    pub(super) fn write(&mut self, out: &mut Vec<u8>, ms: u64) {
        let second = ms / 1000;
        if self.second != Some(second) {
            self.text = second_text(second);
            self.second = Some(second);
        }
        let mut tail = *b"000Z";
        digits(&mut tail[..3], ms % 1000);
        out.extend_from_slice(&self.text);
        out.extend_from_slice(&tail);
    }
}

fn second_text(second: u64) -> [u8; 20] {
    let (year, month, day) = civil_from_days(second / 86_400);
    let of_day = second % 86_400;
    let mut text = *b"0000-00-00T00:00:00.";
    digits(&mut text[0..4], year);
    digits(&mut text[5..7], month);
    digits(&mut text[8..10], day);
    digits(&mut text[11..13], of_day / 3600);
    digits(&mut text[14..16], of_day / 60 % 60);
    digits(&mut text[17..19], of_day % 60);
    text
}

/// Decimal digits of `value`, right-aligned and zero-filled.
fn digits(to: &mut [u8], mut value: u64) {
    for byte in to.iter_mut().rev() {
        *byte = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468; // days from 0000-03-01 to 1970-01-01
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(ms: u64) -> String {
        let mut out = Vec::new();
        Stamp::default().write(&mut out, ms);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn known_instants_have_their_dates() {
        for (ms, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_078_099_199_001, "2004-02-29T23:59:59.001Z"),
            (1_764_430_000_123, "2025-11-29T15:26:40.123Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(text(ms), expected);
        }
    }

    #[test]
    fn every_day_of_five_centuries_follows_the_one_before() {
        let leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..182_622 {
            assert_eq!(civil_from_days(days), (year, month, day));
            let last = match month {
                2 => 28 + u64::from(leap(year)),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > last {
                (day, month) = (1, month + 1);
            }
            if month > 12 {
                (month, year) = (1, year + 1);
            }
        }
    }

    #[test]
    fn the_kept_second_is_not_used_for_another() {
        let mut stamp = Stamp::default();
        let mut out = Vec::new();
        for ms in [1_999, 2_000, 1_000] {
            stamp.write(&mut out, ms);
        }
        let expected = "1970-01-01T00:00:01.999Z1970-01-01T00:00:02.000Z1970-01-01T00:00:01.000Z";
        assert_eq!(out, expected.as_bytes());
    }
}

//! What a drain annotation says: `REASON; deadline=TIME; force`.
//!
//! ```text
//! scale-down
//! new disk; deadline=2026-12-01T10:30:00Z
//! node repair; deadline=2026-12-01T10:30:00Z; force
//! ```
//!
//! The annotation's presence is what drains; nothing in its value can undo that. A part that cannot be read is told as part of
//! the reason, and forces nothing.

use std::fmt;

use jiff::Timestamp;

/// Most characters of a reason that are kept.
pub const REASON: usize = 200;

/// One drain, as asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrainOrder {
    /// In the words of who asked; may be empty.
    pub reason: String,
    /// By then it should carry nothing: wall clock, milliseconds since the Unix epoch.
    pub deadline_ms: Option<u64>,
    /// What is open at the deadline is cut. Never without a deadline.
    pub force: bool,
}

impl DrainOrder {
    /// Reads the value of an annotation.
    pub fn parse(text: &str) -> Self {
        let (mut words, mut order) = (Vec::new(), Self::default());
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let deadline = part.strip_prefix("deadline=").and_then(instant);
            match part {
                "force" => order.force = true,
                _ if deadline.is_some() => order.deadline_ms = deadline,
                other => words.push(other),
            }
        }
        if order.force && order.deadline_ms.is_none() {
            order.force = false;
            words.push("force without a deadline: nothing is cut");
        }
        order.reason = words.join("; ").chars().take(REASON).collect();
        order
    }
}

/// RFC 3339, with an offset.
pub fn instant(text: &str) -> Option<u64> {
    let at: Timestamp = text.trim().parse().ok()?;
    u64::try_from(at.as_millisecond()).ok()
}

/// Milliseconds since the Unix epoch as RFC 3339, UTC. Beyond the year 9999: the last moment of it.
pub fn rfc3339(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.unwrap_or(Timestamp::MAX).to_string()
}

/// As [`DrainOrder::parse`] reads it.
impl fmt::Display for DrainOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        if let Some(deadline) = self.deadline_ms {
            let gap = if self.reason.is_empty() { "" } else { "; " };
            write!(f, "{gap}deadline={}", rfc3339(deadline))?;
            if self.force {
                f.write_str("; force")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: &str = "2026-12-01T10:30:00Z";
    const MS: u64 = 1_796_121_000_000;

    fn order(reason: &str, deadline_ms: Option<u64>, force: bool) -> DrainOrder {
        DrainOrder { reason: reason.to_owned(), deadline_ms, force }
    }

    #[test]
    fn what_is_written_is_read() {
        for (text, read) in [
            ("", order("", None, false)),
            ("scale-down", order("scale-down", None, false)),
            ("a: b, c=d", order("a: b, c=d", None, false)),
            (&format!("new disk; deadline={AT}"), order("new disk", Some(MS), false)),
            (&format!("new disk; deadline={AT}; force"), order("new disk", Some(MS), true)),
            (&format!("deadline={AT}; force"), order("", Some(MS), true)),
        ] {
            assert_eq!(DrainOrder::parse(text), read);
            assert_eq!(read.to_string(), text);
        }
        let zoned = DrainOrder::parse("x ;force;  deadline=2026-12-01T11:30:00.000+01:00 ;; y");
        assert_eq!(zoned, order("x; y", Some(MS), true));
    }

    #[test]
    fn what_cannot_be_read_forces_nothing_and_is_told() {
        for text in [
            "deadline=tomorrow",
            "deadline=",
            "deadline=1969-01-01T00:00:00Z",
            "deadline=2026-12-01",
            "Force",
        ] {
            assert_eq!(DrainOrder::parse(text), order(text, None, false));
        }
        let forced = DrainOrder::parse("x; force; deadline=soon");
        assert_eq!(forced, order("x; deadline=soon; force without a deadline: nothing is cut", None, false));
        assert_eq!(DrainOrder::parse(&"ä".repeat(1000)).reason.chars().count(), REASON);
    }

    #[test]
    fn no_number_is_too_large_to_be_written() {
        assert!(rfc3339(u64::MAX).starts_with("9999-12-"));
    }
}

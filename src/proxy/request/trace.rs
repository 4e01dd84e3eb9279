//! W3C Trace Context (<https://www.w3.org/TR/trace-context/>, §3.2) across the two legs of a pair: both stay in the client's
//! trace, each with a span id of its own in place of the client's, so that a trace tells the prefill's spans from the decode's.
//! `tracestate` and `baggage` pass untouched, and so does a `traceparent` that is not valid: what to make of it is the engine's
//! affair.

use http::HeaderMap;

use crate::registry::Role;

/// The header's name.
pub(super) const HEADER: &str = "traceparent";

/// Where the trace id and the parent's span id are in the header's value.
const TRACE: std::ops::Range<usize> = 3..35;
const SPAN: std::ops::Range<usize> = 36..52;
/// Length of a version 00 value.
const LEN: usize = 55;

/// A span id as it is written, 16 hexadecimal digits.
pub type SpanId = [u8; 16];

/// The ids of one attempt: the client's trace, and a new span for each leg.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spans {
    trace: [u8; 32],
    prefill: SpanId,
    decode: SpanId,
}

impl Spans {
    /// `None` unless there is exactly one `traceparent`, and it is valid.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(HEADER).iter();
        let (value, None) = (values.next()?.as_bytes(), values.next()) else { return None };
        let trace = is_valid(value).then(|| value[TRACE].try_into().ok())??;
        Some(Self { trace, prefill: span(), decode: span() })
    }

    /// The leg's span, where the leg is one of two.
    pub fn for_leg(&self, role: Role) -> Option<&SpanId> {
        match role {
            Role::Prefill => Some(&self.prefill),
            Role::Decode => Some(&self.decode),
            Role::Mixed => None,
        }
    }

    /// Trace, prefill's span, decode's span.
    pub fn as_text(&self) -> [&str; 3] {
        [&self.trace[..], &self.prefill, &self.decode].map(|id| std::str::from_utf8(id).unwrap_or_default())
    }
}

/// The pieces of a valid value with its parent replaced.
pub(super) fn child<'a>(value: &'a [u8], span: &'a SpanId) -> [&'a [u8]; 3] {
    [&value[..SPAN.start], span, &value[SPAN.end..]]
}

/// §3.2.2: version `ff` is invalid, version 00 has nothing after the flags, a later one may; ids of zeros only are invalid.
fn is_valid(value: &[u8]) -> bool {
    let hex = |part: &[u8]| part.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let id = |part: &[u8]| hex(part) && part.iter().any(|b| *b != b'0');
    value.len() >= LEN
        && [2, 35, 52].iter().all(|at| value[*at] == b'-')
        && hex(&value[..2])
        && &value[..2] != b"ff"
        && id(&value[TRACE])
        && id(&value[SPAN])
        && hex(&value[53..LEN])
        && (value.len() == LEN || (&value[..2] != b"00" && value[LEN] == b'-'))
}

fn span() -> SpanId {
    super::id::hex(fastrand::u64(1..))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(values: &[&str]) -> HeaderMap {
        values
            .iter()
            .map(|v| (http::HeaderName::from_static(HEADER), HeaderValue::from_str(v).unwrap()))
            .collect()
    }

    #[test]
    fn each_attempt_and_each_leg_has_a_span_of_its_own_in_the_clients_trace() {
        let (one, two) = (Spans::of(&headers(&[VALID])).unwrap(), Spans::of(&headers(&[VALID])).unwrap());
        assert_ne!(one, two);
        let [trace, prefill, decode] = one.as_text();
        assert_eq!(trace, &VALID[TRACE]);
        assert!(prefill != decode && ![prefill, decode].contains(&&VALID[SPAN]));
        assert_eq!((prefill.len(), decode.len()), (16, 16));
        assert_eq!(one.for_leg(Role::Mixed), None);
        let sent = child(VALID.as_bytes(), one.for_leg(Role::Prefill).unwrap()).concat();
        assert_eq!(sent, VALID.replace(&VALID[SPAN], prefill).into_bytes());
    }

    #[test]
    fn only_a_valid_value_is_continued() {
        for (value, valid) in [
            (VALID.to_owned(), true),
            (VALID.replace("-01", "-00"), true),
            (VALID.replacen("00", "cc", 1), true),
            (VALID.replacen("00", "cc", 1) + "-more", true),
            (VALID.replacen("00", "cc", 1) + "more", false),
            (VALID.replacen("00", "ff", 1), false),
            (VALID.to_owned() + "-00", false),
            (VALID.to_uppercase(), false),
            (VALID.replace(&VALID[TRACE], &"0".repeat(32)), false),
            (VALID.replace(&VALID[SPAN], &"0".repeat(16)), false),
            (VALID.replace('-', "_"), false),
            (VALID[..54].to_owned(), false),
            (String::new(), false),
            (format!("{}g", &VALID[..54]), false),
        ] {
            assert_eq!(Spans::of(&headers(&[&value])).is_some(), valid, "{value}");
        }
        assert_eq!(Spans::of(&headers(&[VALID, VALID])), None, "two are none");
        assert_eq!(Spans::of(&headers(&[])), None);
    }
}

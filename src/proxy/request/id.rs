//! The request id: one per client request, the same in the response, the log, the error body and the upstream head.
//!
//! A client's own id is taken only in a narrow alphabet, because it goes into logs and headers as it is; anything
//! else is replaced, not refused. Minted ids are UUIDv7: they sort by time and need no coordination. They are labels,
//! not secrets, so a fast thread-local generator is enough.

use http::HeaderValue;
use http::header::HeaderMap;

use crate::types::clock;

/// The header that carries it, both ways.
pub const HEADER: &str = "x-request-id";

/// A number as 16 hexadecimal digits.
pub fn hex(mut number: u64) -> [u8; 16] {
    let mut text = [0; 16];
    for digit in text.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 15) as usize];
        number >>= 4;
    }
    text
}

/// Longest client id that is taken, bytes.
const MAX: usize = 128;

/// A request id: 1 to 128 of `A-Z a-z 0-9 . _ -`. Clones share one buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// The client's id if it sent exactly one and it is fit to be shown, else a new one.
    pub fn of(headers: &HeaderMap) -> Self {
        if !headers.contains_key(HEADER) {
            return Self::mint();
        }
        let mut values = headers.get_all(HEADER).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => Self::accept(value.as_bytes()).unwrap_or_else(Self::mint),
            _ => Self::mint(),
        }
    }

    /// Takes an id of the right alphabet and length. A copy: a slice would keep the whole request head alive.
    pub fn accept(id: &[u8]) -> Option<Self> {
        let fit = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if id.is_empty() || id.len() > MAX || !id.iter().all(fit) {
            return None;
        }
        HeaderValue::from_bytes(id).ok().map(Self)
    }

    /// A new UUIDv7.
    pub fn mint() -> Self {
        let random = fastrand::u128(..).to_ne_bytes();
        let random = random.first_chunk().copied().unwrap_or([0; 10]);
        let id = uuid::Builder::from_unix_timestamp_millis(clock::wall_ms(), &random).into_uuid();
        let text = id.hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer()).to_owned();
        // Hexadecimal digits and hyphens always are a header value.
        Self(HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("invalid")))
    }

    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    /// For a response head.
    pub fn header_value(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ids: &[&[u8]]) -> RequestId {
        let mut headers = HeaderMap::new();
        for id in ids {
            headers.append(HEADER, HeaderValue::from_bytes(id).unwrap());
        }
        RequestId::of(&headers)
    }

    #[test]
    fn a_fit_client_id_is_kept() {
        for id in ["a", "Req_1.2-3", &"x".repeat(128)] {
            assert_eq!(of(&[id.as_bytes()]).as_str(), id);
        }
    }

    #[test]
    fn an_unfit_doubled_or_missing_id_is_replaced_by_a_uuid_v7() {
        let long = "x".repeat(129);
        let bad: [&[&[u8]]; 7] =
            [&[], &[b""], &[long.as_bytes()], &[b"a b"], &[b"a,b"], &["模".as_bytes()], &[b"a", b"b"]];
        for ids in bad {
            let id = uuid::Uuid::parse_str(of(ids).as_str()).unwrap();
            assert_eq!(id.get_version_num(), 7, "{ids:?}");
            assert_eq!(id.get_variant(), uuid::Variant::RFC4122);
        }
    }

    #[test]
    fn minted_ids_differ_and_carry_the_time() {
        let ids: std::collections::HashSet<String> =
            (0..1000).map(|_| RequestId::mint().to_string()).collect();
        assert_eq!(ids.len(), 1000);
        let id = uuid::Uuid::parse_str(ids.iter().next().unwrap()).unwrap();
        let (secs, _) = id.get_timestamp().unwrap().to_unix();
        assert!(secs.abs_diff(clock::wall_ms() / 1000) < 5);
    }
}

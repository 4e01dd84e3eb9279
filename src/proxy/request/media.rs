//! Content types, as far as a route must tell them apart.

/// `application/json` or any `type/subtype+json`, with any parameters.
pub(crate) fn is_json(value: &[u8]) -> bool {
    let essence = essence(value);
    if essence.eq_ignore_ascii_case(b"application/json") {
        return true;
    }
    let mut halves = essence.splitn(2, |b| *b == b'/');
    let (Some(kind), Some(sub)) = (halves.next(), halves.next()) else { return false };
    let suffixed = sub.len() > 5 && sub[sub.len() - 5..].eq_ignore_ascii_case(b"+json");
    suffixed && is_token(kind) && is_token(sub)
}

/// `multipart/form-data` with a boundary.
pub(super) fn is_multipart(value: &[u8]) -> bool {
    const BOUNDARY: &[u8] = b"boundary=";
    let boundary = |param: &[u8]| {
        param
            .trim_ascii()
            .split_at_checked(BOUNDARY.len())
            .is_some_and(|(k, v)| k.eq_ignore_ascii_case(BOUNDARY) && !v.is_empty())
    };
    essence(value).eq_ignore_ascii_case(b"multipart/form-data")
        && value.split(|b| *b == b';').skip(1).any(boundary)
}

/// Whether this is a stream of server-sent events.
pub(crate) fn is_event_stream(value: &[u8]) -> bool {
    essence(value).eq_ignore_ascii_case(b"text/event-stream")
}

fn essence(value: &[u8]) -> &[u8] {
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    value[..end].trim_ascii()
}

fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_types_are_told_from_others() {
        for ok in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/json ;x",
            "application/vnd.api+json",
        ] {
            assert!(is_json(ok.as_bytes()), "{ok}");
        }
        for bad in [
            "",
            "text/plain",
            "application/jsonx",
            "json",
            "application/",
            "+json",
            "a b/c+json",
            "/x+json",
            "a/b/c+json",
        ] {
            assert!(!is_json(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn multipart_needs_a_boundary() {
        assert!(is_multipart(b"multipart/form-data; boundary=x"));
        assert!(is_multipart(b"Multipart/Form-Data;charset=utf-8; Boundary=\"x y\""));
        assert!(!is_multipart(b"multipart/form-data"));
        assert!(!is_multipart(b"multipart/form-data; boundary="));
        assert!(!is_multipart(b"application/json; boundary=x"));
    }
}

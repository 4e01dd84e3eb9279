//! Host names: `host[:port]`, nothing more, and the same name wherever a request states one.

use http::{Uri, Version};

/// Why a host is refused.
pub(super) type Why = &'static str;

/// A valid `host[:port]`.
#[derive(Debug, Clone, Copy)]
struct HostPort<'a> {
    host: &'a [u8],
    port: Option<u16>,
}

/// Judges the `Host` headers of a request together with its target's authority (absolute form, or h2's `:authority`).
/// HTTP/1.1 demands the header whatever the target (RFC 9112 §3.2), HTTP/2 one of the two, HTTP/1.0 neither.
pub(super) fn check(uri: &Uri, hosts: usize, host: Option<&[u8]>, version: Version) -> Result<(), Why> {
    if hosts > 1 {
        return Err("more than one Host header");
    }
    let header = match host {
        Some(host) => Some(parse(host).ok_or("the Host header is not host[:port]")?),
        None => None,
    };
    let authority = uri.authority();
    if header.is_none()
        && (version == Version::HTTP_11 || (version == Version::HTTP_2 && authority.is_none()))
    {
        return Err("the Host header is missing");
    }
    let Some(authority) = authority else { return Ok(()) };
    let target = parse(authority.as_str().as_bytes()).ok_or("the target's authority is not host[:port]")?;
    if !matches!(uri.scheme_str(), None | Some("http" | "https")) {
        return Err("the target's scheme is not http or https");
    }
    match header {
        Some(header) if !same(header, target, uri.scheme_str()) => {
            Err("the Host header and the target differ")
        }
        _ => Ok(()),
    }
}

fn same(a: HostPort<'_>, b: HostPort<'_>, scheme: Option<&str>) -> bool {
    let default = match scheme {
        Some("http") => Some(80),
        Some("https") => Some(443),
        _ => None,
    };
    a.host.eq_ignore_ascii_case(b.host) && a.port.or(default) == b.port.or(default)
}

/// Letters, digits, `-._~` or a bracketed IPv6 address; then an optional port. An empty port is the default one.
fn parse(text: &[u8]) -> Option<HostPort<'_>> {
    let end = if text.first() == Some(&b'[') {
        memchr::memchr(b']', text)? + 1
    } else {
        memchr::memchr(b':', text).unwrap_or(text.len())
    };
    let (host, port) = text.split_at_checked(end)?;
    let valid = match host {
        [] => false,
        [b'[', inner @ .., b']'] => std::str::from_utf8(inner).ok()?.parse::<std::net::Ipv6Addr>().is_ok(),
        name => name.iter().all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(b)),
    };
    let port = match port {
        [] | [b':'] => None,
        [b':', digits @ ..] => Some(parse_port(digits)?),
        _ => return None,
    };
    valid.then_some(HostPort { host, port })
}

fn parse_port(digits: &[u8]) -> Option<u16> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_taken() {
        for ok in
            ["a", "tandem.svc:8080", "10.0.0.1:1", "[::1]", "[fe80::1]:65535", "my_pod.ns", "a:", "A-1.~b"]
        {
            assert!(parse(ok.as_bytes()).is_some(), "{ok}");
        }
    }

    #[test]
    fn everything_else_is_no_host() {
        for bad in [
            "",
            ":80",
            "a b",
            "a/b",
            "u@a",
            "u:p@a",
            "a:b",
            "a:65536",
            "a:+1",
            "a:1:2",
            "[::1",
            "[::1]x",
            "[]",
            "[a]",
            "::1",
            "a,b",
            "a%2e",
            "a?x",
            "a#x",
            "數",
            "a\\b",
            "http://a",
            "[fe80::1%25eth0]",
            "a:080808080",
        ] {
            assert!(parse(bad.as_bytes()).is_none(), "{bad}");
        }
    }
}

//! Endpoint URLs: one spelling per endpoint, so that two spellings cannot become two endpoints.
//!
//! Only origins are accepted, `http://host:port`. What a URL could carry besides (credentials, a path, a query)
//! would be dropped silently by a relay that keeps the client's path, so it is refused instead.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::router::StaticEndpoint;
use super::units::Wrong;

const URL: &str =
    "http://HOST:PORT with nothing after the port, such as http://10.0.0.7:8000 or http://[fd00::7]:8000";

impl StaticEndpoint {
    /// Reads an endpoint URL: host in lower case, IP addresses in their canonical spelling, port 80 when absent, one
    /// trailing slash dropped.
    ///
    /// # Errors
    /// On `https`, a missing scheme, user information, a path, a query, a fragment, or a host that is none.
    pub fn parse(url: &str) -> Result<Self, Wrong> {
        let rest = without_scheme(url)?;
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if let Some(message) = surplus(authority) {
            return Err(wrong(message));
        }
        let (host, port) = split_port(authority)?;
        let host = normal_host(host)?;
        Ok(Self { host, port, bootstrap_port: None, revision: String::new(), token: String::new() })
    }
}

impl fmt::Display for StaticEndpoint {
    /// The origin: `http://host:port`, the port always written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}", self.host, self.port)
    }
}

fn wrong(message: &str) -> Wrong {
    Wrong::new(message, URL)
}

fn without_scheme(url: &str) -> Result<&str, Wrong> {
    let (scheme, rest) =
        url.split_once("://").ok_or_else(|| wrong("no scheme; write http:// in front of the host"))?;
    match scheme.to_ascii_lowercase().as_str() {
        "http" => Ok(rest),
        "https" => Err(wrong("https to engines is not supported by this version")),
        _ => Err(wrong("unknown scheme")),
    }
}

fn surplus(authority: &str) -> Option<&'static str> {
    let first = authority.find(['@', '/', '?', '#', '\\'])?;
    Some(match authority.as_bytes()[first] {
        b'@' => "user information is not allowed; use upstream.authorization",
        b'?' => "a query is not allowed",
        b'#' => "a fragment is not allowed",
        _ if authority.contains('@') => "user information is not allowed; use upstream.authorization",
        _ => "a path is not allowed; requests keep the path the client sent",
    })
}

fn split_port(authority: &str) -> Result<(&str, u16), Wrong> {
    let after_host = match authority.strip_prefix('[') {
        Some(rest) => rest.find(']').map(|end| end + 2).ok_or_else(|| wrong("`[` without `]`"))?,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(after_host);
    if port.is_empty() {
        return Ok((host, 80));
    }
    let digits = port.strip_prefix(':').ok_or_else(|| wrong("something other than a port after the host"))?;
    if digits.contains(':') && !host.starts_with('[') {
        return Err(wrong("an IPv6 address needs brackets"));
    }
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    match digits.parse::<u16>() {
        Ok(port) if plain && port > 0 => Ok((host, port)),
        _ => Err(wrong("not a port; a port is 1 to 65535")),
    }
}

fn normal_host(host: &str) -> Result<String, Wrong> {
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let address: Ipv6Addr = address.parse().map_err(|_| wrong("not an IPv6 address"))?;
        return Ok(format!("[{address}]"));
    }
    let host = host.to_ascii_lowercase();
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    // A name whose last label is a number is an IPv4 address to every resolver, in octal and hexadecimal too.
    if last.starts_with("0x") || last.bytes().all(|b| b.is_ascii_digit()) && !last.is_empty() {
        let address: Ipv4Addr = host.parse().map_err(|_| wrong("not an IPv4 address"))?;
        return Ok(address.to_string());
    }
    if is_name(&host) { Ok(host) } else { Err(wrong("not a host name or address")) }
}

/// Labels of letters, digits, `-` and `_`, 1 to 63 each, 253 together. One dot at the end makes a name absolute and
/// is kept: inside a cluster it decides whether search domains are tried.
fn is_name(host: &str) -> bool {
    let letters = |label: &str| label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    let relative = host.strip_suffix('.').unwrap_or(host);
    host.len() <= 253 && relative.split('.').all(|label| (1..=63).contains(&label.len()) && letters(label))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spelled(url: &str) -> String {
        StaticEndpoint::parse(url).map_or_else(|w| w.message, |e| e.to_string())
    }

    #[test]
    fn every_spelling_of_an_endpoint_becomes_one() {
        for url in [
            "http://engine-0.ns.svc",
            "http://ENGINE-0.ns.svc/",
            "HTTP://engine-0.ns.SVC:80",
            "http://engine-0.ns.svc:080/",
        ] {
            assert_eq!(spelled(url), "http://engine-0.ns.svc:80", "{url}");
        }
        for url in ["http://[FD00::0:7]:8000", "http://[fd00:0:0:0:0:0:0:7]:8000/"] {
            assert_eq!(spelled(url), "http://[fd00::7]:8000", "{url}");
        }
        assert_eq!(spelled("http://192.0.2.5:8000"), "http://192.0.2.5:8000");
        assert_eq!(spelled("http://engine.:1"), "http://engine.:1");
    }

    #[test]
    fn what_a_relay_would_drop_is_refused() {
        for (url, says) in [
            ("https://h:1", "https"),
            ("h:1", "scheme"),
            ("192.0.2.5:8000", "scheme"),
            ("grpc://h:1", "scheme"),
            ("http://u:p@h:1", "user information"),
            ("http://u:p/q@h:1", "user information"),
            ("http://h:1/v1", "path"),
            ("http://h:1//", "path"),
            ("http://h:1?x", "query"),
            ("http://h:1#x", "fragment"),
            ("http://fd00::7:8000", "brackets"),
            ("http://[fd00::7]x", "after the host"),
            ("http://[fd00::7", "`]`"),
            ("http://[::1%25eth0]:1", "IPv6"),
        ] {
            assert!(spelled(url).contains(says), "{url}: {}", spelled(url));
        }
    }

    #[test]
    fn hosts_and_ports_that_are_none_are_refused() {
        for url in [
            "http://",
            "http:///",
            "http://:80",
            "http://h:",
            "http://h:0",
            "http://h:65536",
            "http://h:+80",
            "http://a b",
            "http://h..x",
            "http://300.1.1.1",
            "http://1",
            "http://0x7f.1",
            "http://010.0.0.1",
            "http://ü",
            "http://h\t:1",
            "http://a.0x1",
            "http://.",
            "http://h:80:80",
        ] {
            assert!(StaticEndpoint::parse(url).is_err(), "{url}");
        }
    }

    proptest! {
        #[test]
        fn the_normal_form_is_stable_and_nothing_panics(url in "(http://)?[a-zA-Z0-9.:\\[\\]@/?#é-]{0,40}") {
            if let Ok(endpoint) = StaticEndpoint::parse(&url) {
                prop_assert_eq!(StaticEndpoint::parse(&endpoint.to_string()), Ok(endpoint));
            }
        }
    }
}

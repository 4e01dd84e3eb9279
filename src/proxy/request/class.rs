//! What each header name means to the router: the one table behind the head rules and both header filters.
//!
//! Sorted by length, so that a name is compared with two or three candidates at most. `docs/request-rules.md` is the
//! same table for users.

/// What a header means here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// End to end: forwarded as it is.
    Pass,
    Connection,
    /// About one connection only (RFC 9110 §7.6.1), or about upgrades, which are never proxied.
    Hop,
    Host,
    ContentLength,
    TransferEncoding,
    ContentType,
    ContentEncoding,
    Expect,
    /// `Range` and the conditionals: they could turn an engine's answer into a 206, 304 or 412.
    Conditional,
    /// Steers engines or a gateway's choice of one: the router's own business (I11).
    Owned,
    /// `Authorization` and its vendor spellings: by configuration.
    Credential,
    /// Credentials of the hop or the platform in front: never forwarded.
    PlatformCredential,
    Cookie,
    ForwardedFor,
    /// Other claims about the client, replaced or removed: clients can write anything there.
    Claim,
    RequestId,
}

/// The class of a lower-case name.
pub(super) fn class(name: &str) -> Class {
    match name.len() {
        0..=1 => Class::Pass,
        2..=10 => short(name),
        11..=16 => medium(name),
        _ => long(name),
    }
}

fn short(name: &str) -> Class {
    match (name.len(), name) {
        (2, "te") | (7, "trailer" | "upgrade") | (10, "keep-alive") => Class::Hop,
        (4, "host") => Class::Host,
        (5, "range") | (8, "if-match" | "if-range") => Class::Conditional,
        (6, "cookie") => Class::Cookie,
        (6, "expect") => Class::Expect,
        (7, "api-key") | (9, "x-api-key") => Class::Credential,
        (9, "forwarded" | "x-real-ip") => Class::Claim,
        (10, "connection") => Class::Connection,
        _ => prefixed(name),
    }
}

fn medium(name: &str) -> Class {
    match (name.len(), name) {
        (12, "content-type") => Class::ContentType,
        (12, "x-request-id") => Class::RequestId,
        (13, "authorization") => Class::Credential,
        (13, "if-none-match") => Class::Conditional,
        (14, "content-length") => Class::ContentLength,
        (14, "http2-settings") | (16, "proxy-connection") => Class::Hop,
        (15, "x-forwarded-for") => Class::ForwardedFor,
        (16, "content-encoding") => Class::ContentEncoding,
        (16, "x-forwarded-host" | "x-forwarded-port") => Class::Claim,
        _ => prefixed(name),
    }
}

fn long(name: &str) -> Class {
    match (name.len(), name) {
        (17, "transfer-encoding") => Class::TransferEncoding,
        (17, "if-modified-since") | (19, "if-unmodified-since") => Class::Conditional,
        (17, "x-forwarded-proto") | (18, "x-forwarded-server" | "x-forwarded-prefix") => Class::Claim,
        (18, "proxy-authenticate") => Class::Hop,
        (19, "proxy-authorization") | (26, "x-serverless-authorization") => Class::PlatformCredential,
        (17, "x-smg-routing-key")
        | (20, "x-data-parallel-rank")
        | (21, "x-prefiller-host-port" | "x-encoder-hosts-ports")
        | (25, "x-data-parallel-host-port")
        | (27, "x-kv-cache-source-host-port") => Class::Owned,
        _ => prefixed(name),
    }
}

fn prefixed(name: &str) -> Class {
    const OWNED: [&str; 3] = ["x-tandem-", "x-override-", "x-gateway-destination-endpoint"];
    if name.starts_with("x-") && OWNED.iter().any(|prefix| name.starts_with(prefix)) {
        Class::Owned
    } else {
        Class::Pass
    }
}

/// The class that a reader sees which folds `_` into `-`, as CGI-like servers do; `None` for a name without `_`.
#[inline]
pub(super) fn folded(name: &str) -> Option<Class> {
    memchr::memchr(b'_', name.as_bytes())?;
    Some(class(&name.replace('_', "-")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_header_is_found_at_the_length_it_is_filed_under() {
        use Class::*;
        for (expected, names) in [
            (Connection, "connection"),
            (Hop, "te trailer upgrade keep-alive http2-settings proxy-connection proxy-authenticate"),
            (Host, "host"),
            (ContentLength, "content-length"),
            (TransferEncoding, "transfer-encoding"),
            (ContentType, "content-type"),
            (ContentEncoding, "content-encoding"),
            (Expect, "expect"),
            (Conditional, "range if-match if-range if-none-match if-modified-since if-unmodified-since"),
            (
                Owned,
                "x-override-rid x-override-bootstrap-room x-override-priority x-tandem-anything x-smg-routing-key",
            ),
            (
                Owned,
                "x-prefiller-host-port x-encoder-hosts-ports x-data-parallel-host-port x-data-parallel-rank",
            ),
            (
                Owned,
                "x-kv-cache-source-host-port x-gateway-destination-endpoint x-gateway-destination-endpoint-subset",
            ),
            (Credential, "authorization x-api-key api-key"),
            (PlatformCredential, "proxy-authorization x-serverless-authorization"),
            (Cookie, "cookie"),
            (ForwardedFor, "x-forwarded-for"),
            (
                Claim,
                "forwarded x-real-ip x-forwarded-host x-forwarded-port x-forwarded-proto x-forwarded-server",
            ),
            (Claim, "x-forwarded-prefix"),
            (RequestId, "x-request-id"),
            (
                Pass,
                "accept accept-encoding user-agent traceparent tracestate baggage via x-session-id x-vllm-priority",
            ),
            (Pass, "openai-organization anthropic-version x x-tandem x-stainless-lang date"),
        ] {
            for name in names.split(' ') {
                assert_eq!(class(name), expected, "{name}");
            }
        }
    }

    #[test]
    fn underscores_fold_into_the_name_they_imitate() {
        assert_eq!(folded("transfer_encoding"), Some(Class::TransferEncoding));
        assert_eq!(folded("x_forwarded-for"), Some(Class::ForwardedFor));
        assert_eq!(folded("my_header"), Some(Class::Pass));
        assert_eq!(folded("transfer-encoding"), None);
    }
}

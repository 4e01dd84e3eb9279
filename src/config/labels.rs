//! What Kubernetes calls things: labels, namespaces, container ports; and the keys that carry facts of a Pod. By its own
//! rules of syntax: what it would refuse can be on no Pod.

use super::discovery::{EligibleKey, Port};
use super::units::Wrong;
use super::words::count;

const KEY: &str = "NAME or PREFIX/NAME: a name of 1 to 63 of A-Z, a-z, 0-9, `-`, `_`, `.`, a prefix of lower-case \
                   letters, digits, `-`, `.` (253 at most), a letter or digit at both ends of each";
const VALUE: &str = "at most 63 of A-Z, a-z, 0-9, `-`, `_`, `.`, a letter or digit at both ends";
const NAMESPACE: &str = "1 to 63 of a-z, 0-9, `-`, a letter or digit at both ends";
const OBJECT: &str = "1 to 253 of a-z, 0-9, `-`, `.`, a letter or digit at both ends";
const PORT: &str = "1 to 65535, or the name of a container port: 1 to 15 of a-z, 0-9, `-`, with a letter in it, no `-` at \
                    an end or beside another";

/// Key of a label, and of an annotation.
pub(super) fn key(text: &str) -> Result<String, Wrong> {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    if is_name(name) && prefix.is_none_or(is_domain) {
        return Ok(text.to_owned());
    }
    Err(Wrong::new("not a label key", KEY))
}

/// Value of a label; may be empty.
pub(super) fn value(text: &str) -> Result<String, Wrong> {
    if text.is_empty() || is_name(text) {
        Ok(text.to_owned())
    } else {
        Err(Wrong::new("not a label value", VALUE))
    }
}

/// A value that says something.
pub(super) fn word(text: &str) -> Result<String, Wrong> {
    if is_name(text) {
        return Ok(text.to_owned());
    }
    Err(Wrong::new("not a value of a label", VALUE.replace("at most", "1 to")))
}

/// `KEY=VALUE`, or `KEY`.
pub(super) fn eligible(text: &str) -> Result<EligibleKey, Wrong> {
    let read = || {
        let (key, value) = text.split_once('=').map_or((text, None), |(key, value)| (key, Some(value)));
        Ok(EligibleKey { key: self::key(key)?, value: value.map(word).transpose()? })
    };
    read().map_err(|wrong: Wrong| {
        Wrong::new(wrong.message, format!("KEY or KEY=VALUE, KEY {KEY}; VALUE {VALUE}"))
    })
}

/// `auto`: the key of the dialect; `off`: none; else what `parse` reads.
pub(super) fn or_preset<T: Clone>(
    preset: Option<T>,
    parse: impl Fn(&str) -> Result<T, Wrong>,
) -> impl Fn(&str) -> Result<Option<T>, Wrong> {
    move |text| match text {
        "auto" => Ok(preset.clone()),
        "off" => Ok(None),
        key => parse(key)
            .map(Some)
            .map_err(|wrong| Wrong::new(wrong.message, format!("auto, off, {}", wrong.allowed))),
    }
}

pub(super) fn namespace(text: &str) -> Result<String, Wrong> {
    if text.len() <= 63 && is_domain_part(text) {
        Ok(text.to_owned())
    } else {
        Err(Wrong::new("not a namespace", NAMESPACE))
    }
}

/// Name of an object (RFC 1123 subdomain).
pub(super) fn object(text: &str) -> Result<String, Wrong> {
    if is_domain(text) { Ok(text.to_owned()) } else { Err(Wrong::new("not the name of an object", OBJECT)) }
}

/// A port's number, or its name in the Pod.
pub(super) fn port(text: &str) -> Result<Port, Wrong> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        let number = count(1, u16::MAX.into())(text).map(Port::Number);
        return number.map_err(|wrong| Wrong::new(wrong.message, PORT));
    }
    let is_name = text.len() <= 15
        && is_domain_part(text)
        && !text.contains("--")
        && text.bytes().any(|b| b.is_ascii_lowercase());
    if is_name { Ok(Port::Name(text.to_owned())) } else { Err(Wrong::new("not a port", PORT)) }
}

/// 1 to 63 letters, digits, `-`, `_`, `.`; a letter or digit at both ends.
fn is_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    (1..=63).contains(&text.len()) && text.bytes().all(inner) && has_ends(text, u8::is_ascii_alphanumeric)
}

fn is_domain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_domain_part)
}

fn is_domain_part(text: &str) -> bool {
    let outer = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.bytes().all(|b| outer(&b) || b == b'-') && has_ends(text, outer)
}

fn has_ends(text: &str, outer: impl Fn(&u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(&outer) && bytes.last().is_some_and(&outer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each<T>(parse: impl Fn(&str) -> Result<T, Wrong>, good: &[&str], bad: &[&str]) {
        for (texts, is_good) in [(good, true), (bad, false)] {
            for text in texts {
                assert_eq!(parse(text).is_ok(), is_good, "{text}");
            }
        }
    }

    #[test]
    fn labels_are_what_kubernetes_takes() {
        let (name, prefix) = ("n".repeat(63), format!("{}.{}", "p".repeat(126), "p".repeat(126)));
        each(
            key,
            &["app", "A_b.c-1", "ome.io/x", "0/0", &name, &format!("{prefix}/{name}")],
            &[
                "", "/", "a/", "/a", "a/b/c", "-a", "a-", "a b", "é", "A.io/x", "a..b/x", "a_b/x", "-a.io/x",
                "a=b",
            ],
        );
        each(key, &[], &[&format!("{name}n"), &format!("p{prefix}/a")]);
        each(value, &["", "x", "1.0", "A_b", &name], &["-x", "x.", "a b", "a/b", "é", &format!("{name}n")]);
        each(word, &["x"], &["", "x-"]);
        each(
            namespace,
            &["a", "0", "team-1", &name],
            &["", "A", "a.b", "a_b", "-a", "a-", &format!("{name}n")],
        );
    }

    #[test]
    fn a_port_is_a_number_or_a_name() {
        each(
            port,
            &["1", "65535", "http", "8-a", "a23456789012345"],
            &["", "0", "65536", "+1", "8-8", "-a", "a-", "a--b", "A", "a_b", "a234567890123456"],
        );
        assert_eq!((port("080"), port("h2")), (Ok(Port::Number(80)), Ok(Port::Name("h2".to_owned()))));
    }

    #[test]
    fn the_mark_is_a_key_with_or_without_a_value() {
        let mark = |key: &str, value: Option<&str>| {
            Ok(EligibleKey { key: key.to_owned(), value: value.map(str::to_owned) })
        };
        assert_eq!(eligible("a.b/c=true"), mark("a.b/c", Some("true")));
        assert_eq!(eligible("a.b/c"), mark("a.b/c", None));
        each(eligible, &[], &["", "=", "a=", "=a", "a=b=c", "a= b"]);
        let preset = or_preset(eligible("p").ok(), eligible);
        assert_eq!((preset("auto"), preset("off")), (eligible("p").map(Some), Ok(None)));
        assert!(preset("a=").is_err_and(|wrong| wrong.allowed.starts_with("auto, off, KEY or KEY=VALUE")));
    }
}

//! Values without a unit: addresses, paths, counts, names, choices. Each function reads one kind and says what it
//! would have accepted.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::discovery::{Dialect, IpFamily, Mode, Probe, RelistRead};
use super::router::{Authorization, EngineKind, LogFormat, LogSink, ModelMatch, Policy, VllmConnector};
use super::split::{CohortsBy, LABEL, is_label};
use super::units::Wrong;

/// Longest model name, bytes; it stands in log lines and metric labels.
const LONGEST_MODEL: usize = 256;

/// The words of a choice, and what each means. One table reads and prints it.
pub(super) type Choice<T> = &'static [(&'static str, T)];

pub(super) const LOG_FORMAT: Choice<LogFormat> = &[("json", LogFormat::Json), ("text", LogFormat::Text)];
pub(super) const ENGINE_KIND: Choice<EngineKind> = &[
    (EngineKind::Plain.as_str(), EngineKind::Plain),
    (EngineKind::Sglang.as_str(), EngineKind::Sglang),
    (EngineKind::Vllm(VllmConnector::Nixl).as_str(), EngineKind::Vllm(VllmConnector::Nixl)),
];
pub(super) const CONNECTOR: Choice<VllmConnector> =
    &[("nixl", VllmConnector::Nixl), ("store", VllmConnector::Store)];
pub(super) const MODEL_MATCH: Choice<ModelMatch> =
    &[("auto", ModelMatch::Auto), ("any", ModelMatch::Any), ("listed", ModelMatch::Listed)];
pub(super) const POLICY: Choice<Policy> = &[
    ("round_robin", Policy::RoundRobin),
    ("least_in_flight", Policy::LeastInFlight),
    ("power_of_two", Policy::PowerOfTwo),
];
pub(super) const COHORTS_BY: Choice<CohortsBy> =
    &[("token", CohortsBy::Token), ("revision", CohortsBy::Revision)];
pub(super) const COHORTS_GUARD: Choice<bool> = &[("on", true), ("off", false)];
pub(super) const AUTHORIZATION: Choice<Authorization> =
    &[("auto", Authorization::Auto), ("pass", Authorization::Pass), ("strip", Authorization::Strip)];
pub(super) const DIALECT: Choice<Dialect> = &[
    ("tandem", Dialect::Tandem),
    ("gpustack", Dialect::Gpustack),
    ("ome", Dialect::Ome),
    ("infera", Dialect::Infera),
    ("llm-d", Dialect::LlmD),
    ("sglang", Dialect::Sglang),
    ("vllm", Dialect::Vllm),
];
pub(super) const RELIST_READ: Choice<RelistRead> =
    &[("consistent", RelistRead::Consistent), ("cached", RelistRead::Cached)];
pub(super) const IP_FAMILY: Choice<IpFamily> =
    &[("primary", IpFamily::Primary), ("ipv4", IpFamily::V4), ("ipv6", IpFamily::V6)];
pub(super) const PROBE: Choice<Probe> = &[("off", Probe::Off), ("models", Probe::Models)];
pub(super) const MODE: Choice<Mode> =
    &[("required", Mode::Required), ("off", Mode::Off), ("observed", Mode::Observed)];
const BOOLEAN: Choice<bool> = &[("true", true), ("false", false)];
const LEVELS: Choice<&str> =
    &[("error", "error"), ("warn", "warn"), ("info", "info"), ("debug", "debug"), ("trace", "trace")];

pub(super) fn choice<T: Clone>(table: Choice<T>) -> impl Fn(&str) -> Result<T, Wrong> {
    move |text| {
        let found = table.iter().find(|(word, _)| *word == text);
        found.map(|(_, value)| value.clone()).ok_or_else(|| {
            let words: Vec<&str> = table.iter().map(|(word, _)| *word).collect();
            Wrong::new("not one of the choices", words.join(", "))
        })
    }
}

/// The word for a value of a choice.
pub(super) fn word<T: PartialEq>(table: Choice<T>, value: &T) -> &'static str {
    table.iter().find(|(_, other)| other == value).map_or("", |(word, _)| word)
}

pub(super) fn boolean(text: &str) -> Result<bool, Wrong> {
    choice(BOOLEAN)(text)
}

pub(super) fn level(text: &str) -> Result<String, Wrong> {
    choice(LEVELS)(text).map(str::to_owned)
}

pub(super) fn engine_kind(text: &str) -> Result<EngineKind, Wrong> {
    choice(ENGINE_KIND)(text)
}

pub(super) fn authorization(text: &str) -> Result<Authorization, Wrong> {
    choice(AUTHORIZATION)(text)
        .map_err(|wrong| Wrong::new(wrong.message, format!("{}, {{from_secret: PATH}}", wrong.allowed)))
}

pub(super) fn address(text: &str) -> Result<SocketAddr, Wrong> {
    let allowed = "IP:PORT, such as 0.0.0.0:8080, 127.0.0.1:8080 or [::]:8080";
    text.parse().map_err(|_| Wrong::new("not an address to listen on", allowed))
}

pub(super) fn path(text: &str) -> Result<PathBuf, Wrong> {
    if text.is_empty() { Err(Wrong::new("is empty", "a path")) } else { Ok(PathBuf::from(text)) }
}

/// `off`, `stdout`, or a path. A path needs a slash: `sdtout` must not become a file of that name.
pub(super) fn sink(text: &str) -> Result<LogSink, Wrong> {
    match text {
        "off" => Ok(LogSink::Off),
        "stdout" => Ok(LogSink::Stdout),
        path if path.contains('/') => Ok(LogSink::File(PathBuf::from(path))),
        _ => Err(Wrong::new("not a place for log lines", "off, stdout, or a path with a `/` in it")),
    }
}

/// A whole number within bounds, both included.
pub(super) fn count<T: TryFrom<u64>>(least: u64, most: u64) -> impl Fn(&str) -> Result<T, Wrong> {
    move |text| {
        let wrong = |message: &str| Wrong::new(message, format!("a whole number, {least} to {most}"));
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(wrong("not a whole number"));
        }
        let number = text.parse::<u64>().ok().filter(|n| (least..=most).contains(n));
        number.and_then(|n| T::try_from(n).ok()).ok_or_else(|| wrong("out of range"))
    }
}

/// The name of a request header, in lower case.
pub(super) fn header(text: &str) -> Result<String, Wrong> {
    let name = http::HeaderName::try_from(text);
    let name =
        name.map_err(|_| Wrong::new("not a header name", "letters, digits and `-`, such as x-session-id"))?;
    Ok(name.as_str().to_owned())
}

/// A revision, a pairing token, or the name of a field: what stands in labels, logs and documents.
pub(super) fn label(text: &str) -> Result<String, Wrong> {
    if is_label(text) { Ok(text.to_owned()) } else { Err(Wrong::new("not a word", LABEL)) }
}

/// `auto` as `None`, else what `parse` reads.
pub(super) fn auto<T>(parse: impl Fn(&str) -> Result<T, Wrong>) -> impl Fn(&str) -> Result<Option<T>, Wrong> {
    move |text| {
        if text == "auto" {
            return Ok(None);
        }
        parse(text)
            .map(Some)
            .map_err(|wrong| Wrong::new(wrong.message, format!("auto, or {}", wrong.allowed)))
    }
}

/// Further attempts: 0 or less is none.
pub(super) fn attempts(text: &str) -> Result<u32, Wrong> {
    let below_zero = text.strip_prefix('-').is_some_and(|rest| rest.parse::<u64>().is_ok());
    if below_zero { Ok(0) } else { count(0, 10)(text) }
}

/// Service names: they are label values and parts of admin paths.
pub(super) fn service_name(text: &str) -> Result<String, Wrong> {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
    let outer = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    if bytes.len() <= 63 && bytes.iter().all(|b| inner(*b)) && outer(bytes.first()) && outer(bytes.last()) {
        return Ok(text.to_owned());
    }
    let allowed = "1 to 63 of a-z, 0-9, `.`, `_`, `-`, a letter or digit at both ends";
    Err(Wrong::new("not a service name", allowed))
}

/// What is only handed on: not empty, one line.
pub(super) fn plain(text: &str) -> Result<String, Wrong> {
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err(Wrong::new("not a name", "text without control characters"));
    }
    Ok(text.to_owned())
}

pub(super) fn model_name(text: &str) -> Result<String, Wrong> {
    if text.is_empty() || text.len() > LONGEST_MODEL || text.chars().any(char::is_control) {
        return Err(Wrong::new("not a model name", "1 to 256 bytes without control characters"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_sink_is_not_taken_for_a_file() {
        assert!(sink("sdtout").is_err() && sink("").is_err());
        assert_eq!(sink("./sdtout"), Ok(LogSink::File("./sdtout".into())));
    }

    #[test]
    fn counts_are_digits_within_bounds() {
        let parse = count::<u32>(1, 10);
        assert_eq!(parse("10"), Ok(10));
        for bad in ["", "0", "11", "+1", "0x1", "1.0", "99999999999999999999"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!((attempts("-3"), attempts("0")), (Ok(0), Ok(0)));
        assert!(attempts("-").is_err() && attempts("--1").is_err() && attempts("11").is_err());
    }

    #[test]
    fn service_names_fit_a_label() {
        for good in ["a", "0", "mistral-7b_v0.2", &"a".repeat(63)] {
            assert!(service_name(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a b", "ä", &"a".repeat(64)] {
            assert!(service_name(bad).is_err(), "{bad}");
        }
    }
}

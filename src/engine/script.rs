//! Faults on demand, per request or per process.
//!
//! One small language for all: `status=503`, `delay=200ms,after=3,reset`, … A request names its own in the header
//! `x-mock`; a router may forward that to both legs, so a part can be for one role, `prefill:status=500; decode:delay=1s`, or
//! for one engine by the host it advertises: `@p0:reset`. A retry elsewhere then meets a sound one.
//! The control endpoint and `--script` take the same words as a [`Rule`] for requests to come.

use std::time::Duration;

use super::config::Role;

/// What happens to one request. Where `after` is given the end comes in the stream, after so many tokens, else before
/// the answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fault {
    /// Before anything else.
    pub delay: Option<Duration>,
    /// In place of the engine's own [`Timing`](super::Timing).
    pub ttft: Option<Duration>,
    pub token: Option<Duration>,
    pub transfer: Option<Duration>,
    pub after: Option<u32>,
    /// The end comes so long after the work began, whatever is done then, unless the answer is complete.
    pub at: Option<Duration>,
    /// The end comes only to a request that is not the first of its connection.
    pub reused: bool,
    pub end: Option<End>,
    /// A prefill that answers without its KV parameters.
    pub no_kv: bool,
    /// The engine fails the request where its KV would be ready.
    pub fail: bool,
}

/// How it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// This status, in place of the engine's answer; never with `after`.
    Status(u16),
    /// A TCP reset.
    Reset,
    /// The connection is closed, in the middle of what was being said.
    Close,
    /// Silence.
    Hang,
    /// The whole engine is gone at once, as by `kill -9`.
    Die,
    /// The engine's own error, in-stream where a stream has begun.
    Error,
    /// `finish_reason: "abort"`.
    Abort,
}

/// A fault for requests to come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// How many requests; `u32::MAX` for all.
    pub times: u32,
    pub fault: Fault,
}

impl Rule {
    /// `[TIMES*]WORDS`, such as `3*status=503`; without a number every request.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (times, words) = match text.split_once('*') {
            Some((times, words)) => {
                let bad = || format!("`{times}` is no number of times");
                (times.trim().parse().map_err(|_| bad())?, words)
            }
            None => (u32::MAX, text),
        };
        Ok(Self { times, fault: Fault::parse(words)? })
    }
}

impl Fault {
    /// Comma-separated words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut fault = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            fault.word(word)?;
        }
        if fault.after.is_some() && matches!(fault.end, None | Some(End::Status(_))) {
            return Err("`after` needs one of reset, close, hang, die, error, abort".to_owned());
        }
        if fault.at.is_some() && !matches!(fault.end, Some(End::Reset | End::Close | End::Die)) {
            return Err("`at` needs one of reset, close, die".to_owned());
        }
        Ok(fault)
    }

    fn word(&mut self, word: &str) -> Result<(), String> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let time = || duration(value).ok_or_else(|| format!("`{word}`: no time such as 250ms or 2s"));
        let number = || value.parse::<u32>().map_err(|_| format!("`{word}`: no number"));
        match (name, value) {
            ("delay", _) => self.delay = Some(time()?),
            ("ttft", _) => self.ttft = Some(time()?),
            ("token", _) => self.token = Some(time()?),
            ("transfer", _) => self.transfer = Some(time()?),
            ("after", _) => self.after = Some(number()?),
            ("at", _) => self.at = Some(time()?),
            ("reused", "") => self.reused = true,
            ("status", _) => {
                let status = number()?;
                let known = u16::try_from(status).ok().filter(|status| (200..600).contains(status));
                self.end = Some(End::Status(known.ok_or_else(|| format!("`{word}`: no status"))?));
            }
            ("reset", "") => self.end = Some(End::Reset),
            ("close", "") => self.end = Some(End::Close),
            ("hang", "") => self.end = Some(End::Hang),
            ("die", "") => self.end = Some(End::Die),
            ("error", "") => self.end = Some(End::Error),
            ("abort", "") => self.end = Some(End::Abort),
            ("no-kv", "") => self.no_kv = true,
            ("fail", "") => self.fail = true,
            _ => return Err(format!("`{word}` is no word of a script")),
        }
        Ok(())
    }
}

/// The part of an `x-mock` header that is for this engine.
pub(super) fn for_engine(header: &str, role: Role, host: &str) -> Result<Fault, String> {
    let mut words = Vec::new();
    for part in header.split(';') {
        let (who, what) = part.split_once(':').map_or(("", part), |(who, what)| (who.trim(), what));
        match who {
            "" => words.push(what),
            "plain" | "prefill" | "decode" if who == role.as_str() => words.push(what),
            "plain" | "prefill" | "decode" => {}
            other if other.starts_with('@') => words.extend((&other[1..] == host).then_some(what)),
            other => return Err(format!("`{other}` is no role")),
        }
    }
    Fault::parse(&words.join(","))
}

/// `250ms`, `2s`, `1.5s`.
pub fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 0.001),
        None => (text.strip_suffix('s')?, 1.0),
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_gives_each_role_its_part() {
        let header = "delay=1s; prefill:status=500; decode: after=2 , reset; @a:token=1s";
        let for_role = |header, role| for_engine(header, role, "a");
        let prefill = for_role(header, Role::Prefill).unwrap();
        assert_eq!((prefill.delay, prefill.end), (Some(Duration::from_secs(1)), Some(End::Status(500))));
        let decode = for_role(header, Role::Decode).unwrap();
        assert_eq!((decode.after, decode.end), (Some(2), Some(End::Reset)));
        assert_eq!(for_role(header, Role::Plain).unwrap().end, None);
        assert_eq!(for_role(header, Role::Plain).unwrap().token, Some(Duration::from_secs(1)));
        assert_eq!(for_engine(header, Role::Plain, "b").unwrap().token, None);
    }

    #[test]
    fn words_that_mean_nothing_are_refused() {
        for bad in [
            "statuss=500",
            "status=abc",
            "status=99",
            "delay=5",
            "after=2",
            "after=2,status=500",
            "reset=1",
            "at=1s,hang",
        ] {
            assert!(Fault::parse(bad).is_err(), "{bad}");
        }
        assert!(for_engine("router:reset", Role::Plain, "a").is_err());
        assert!(Rule::parse("x*reset").is_err());
        assert_eq!(Rule::parse("3*reset").map(|rule| rule.times), Ok(3));
        assert_eq!(Rule::parse("hang").map(|rule| rule.times), Ok(u32::MAX));
    }
}

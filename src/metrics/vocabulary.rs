//! The bounded words that label values may be, as their owners define them.
//!
//! The planes that own these lists (route, error table, retry table, drain) hand them in as text, so that this
//! module imports none of them.
//!
//! The `prometheus` crate finds a child by hashing its label values one after the other *without* a separator:
//! `("ab", "c")` and `("a", "bc")` are one child. [`Vocabulary::check`] and the order of labels in `names`
//! (bounded words first, free text last) make such a pair impossible: a word may continue another only after `_`,
//! and nothing that follows a word starts with `_`.

use prometheus::{Error, Result};

/// Every list of words used as label values. The position of a route is its index in [`super::ServiceMetrics`].
#[derive(Debug, Clone, Copy)]
pub struct Vocabulary {
    /// Front-door routes, by index; includes one word for paths that are no route.
    pub routes: &'static [&'static str],
    /// Codes of the one error table.
    pub error_codes: &'static [&'static str],
    /// Why a further attempt was made.
    pub retry_reasons: &'static [&'static str],
    /// Shutdown phases, in order; the first is the one the process starts in.
    pub phases: &'static [&'static str],
}

impl Vocabulary {
    /// Refuses words that are empty, double, not `[a-z0-9_]`, or that could make two label sets one series.
    pub(super) fn check(&self) -> Result<()> {
        [self.routes, self.error_codes, self.retry_reasons, self.phases].into_iter().try_for_each(check_list)
    }
}

fn check_list(words: &[&str]) -> Result<()> {
    for (i, word) in words.iter().enumerate() {
        let plain = word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if !plain || word.is_empty() || word.starts_with('_') {
            return Err(Error::Msg(format!("label word {word:?} is not [a-z0-9][a-z0-9_]*")));
        }
        for (j, other) in words.iter().enumerate() {
            let rest = other.strip_prefix(word);
            if i != j && rest.is_some_and(|rest| !rest.starts_with('_')) {
                return Err(Error::Msg(format!("label words {word:?} and {other:?} can be confused")));
            }
        }
    }
    Ok(())
}

/// Free text after bounded words: must not look like the continuation of a word.
pub(super) fn check_service(name: &str) -> Result<()> {
    if name.is_empty() || name.starts_with('_') {
        return Err(Error::Msg(format!("service name {name:?} is empty or starts with `_`")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::outcome::{LegOutcome, Outcome};

    #[test]
    fn words_that_hash_alike_are_refused() {
        assert!(check_list(&["chat", "chats"]).is_err());
        assert!(check_list(&["chat", "chat"]).is_err());
        assert!(check_list(&["_chat"]).is_err());
        assert!(check_list(&["a-b"]).is_err());
        assert!(check_list(&["connect", "connect_timeout", "completions", "chat_completions"]).is_ok());
        assert!(check_service("_x").is_err());
    }

    #[test]
    fn outcomes_cannot_be_confused() {
        assert!(check_list(&Outcome::ALL.map(Outcome::as_str)).is_ok());
        assert!(check_list(&LegOutcome::ALL.map(LegOutcome::as_str)).is_ok());
    }
}

//! What an engine said of itself, in its own words. What it did not say is not known, and contradicts nothing.

use crate::types::fact::Fact;

/// Longest value that is kept, bytes; the rest of a longer one does not count.
const LONGEST: usize = 200;

/// The values of one engine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineFacts {
    values: [Option<Box<str>>; Fact::ALL.len()],
    /// A question had no answer: what it would have said may come yet.
    pub incomplete: bool,
}

impl EngineFacts {
    pub fn get(&self, fact: Fact) -> Option<&str> {
        self.values[fact as usize].as_deref()
    }

    /// Nothing in it: not known.
    pub fn set(&mut self, fact: Fact, value: &str) {
        let value = value.trim();
        let end = value.floor_char_boundary(LONGEST);
        self.values[fact as usize] = Some(&value[..end]).filter(|value| !value.is_empty()).map(Box::from);
    }

    /// With what was known before, where a question had no answer this time.
    pub(super) fn over(mut self, before: Option<&Self>) -> Self {
        if let Some(before) = before.filter(|_| self.incomplete) {
            for (value, old) in self.values.iter_mut().zip(&before.values) {
                *value = value.take().or_else(|| old.clone());
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_kept_short_and_an_empty_one_is_none() {
        let mut facts = EngineFacts::default();
        facts.set(Fact::Model, &"é".repeat(150));
        assert_eq!(facts.get(Fact::Model).map(str::len), Some(200));
        facts.set(Fact::Model, " ");
        assert_eq!((facts.get(Fact::Model), facts.get(Fact::Role)), (None, None));
    }

    #[test]
    fn what_was_known_stays_only_while_a_question_has_no_answer() {
        let mut before = EngineFacts::default();
        before.set(Fact::PageSize, "1");
        before.set(Fact::Version, "0.5.22");
        let mut now = EngineFacts::default();
        now.set(Fact::Version, "0.5.23");
        assert_eq!(now.clone().over(Some(&before)), now);
        now.incomplete = true;
        let both = now.over(Some(&before));
        assert_eq!((both.get(Fact::PageSize), both.get(Fact::Version)), (Some("1"), Some("0.5.23")));
    }
}

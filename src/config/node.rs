//! A YAML document as a tree in which every key and value knows its line and column.
//!
//! Scalars keep the text as written (`off`, `0x10`, `1.0`), because what they mean is for the key to decide: YAML's
//! own guesses (is `off` a boolean?) never reach us. Duplicate keys survive parsing, so that all of them are
//! reported with both places instead of ending the reading at the first.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Location, NonFiniteFloatPolicy, Spanned};

use super::problem::{Place, Problem};

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// Nothing, `~` or `null`.
    Null,
    /// The text as written, without quotes.
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) place: Place,
    pub(super) node: Node,
}

impl Node {
    pub(super) fn scalar(place: Place, text: &str) -> Self {
        Self { place, value: Value::Scalar(text.to_owned()) }
    }

    pub(super) fn empty_map(place: Place) -> Self {
        Self { place, value: Value::Map(Vec::new()) }
    }

    /// The value under `key`, the first where a key is given twice. `None` if this is not a mapping.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        let Value::Map(entries) = &self.value else { return None };
        entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }

    pub(super) fn items(&self) -> &[Node] {
        if let Value::List(items) = &self.value { items } else { &[] }
    }

    /// Puts `node` at a dotted path, creating the mappings on the way.
    pub(super) fn put(&mut self, path: &str, node: Node) {
        let Value::Map(entries) = &mut self.value else { return };
        let (head, rest) = path.split_once('.').map_or((path, None), |(head, rest)| (head, Some(rest)));
        let place = node.place.clone();
        let Some(rest) = rest else {
            entries.retain(|entry| entry.key != head);
            entries.push(Entry { key: head.to_owned(), place, node });
            return;
        };
        let at = entries.iter().position(|entry| entry.key == head).unwrap_or_else(|| {
            let section = Node::empty_map(place.clone());
            entries.push(Entry { key: head.to_owned(), place, node: section });
            entries.len() - 1
        });
        entries[at].node.put(rest, node);
    }
}

/// Reads one YAML document. An empty one is an empty mapping.
///
/// # Errors
/// The first syntax error, with its place; nothing after it can be trusted.
pub(super) fn parse(name: &str, text: &str) -> Result<Node, Problem> {
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        with_snippet: false,
    };
    let path: Arc<str> = name.into();
    match serde_saphyr::from_str_with_options::<Option<Spanned<Raw>>>(text, options) {
        Ok(Some(raw)) => Ok(Located { path, text }.node(raw)),
        Ok(None) => Ok(Node::empty_map(Place::File { path, line: 1, column: 1 })),
        Err(error) => Err(syntax_problem(path, &error)),
    }
}

fn syntax_problem(path: Arc<str>, error: &serde_saphyr::Error) -> Problem {
    let text = match error {
        serde_saphyr::Error::MultipleDocuments { .. } => "more than one document".to_owned(),
        other => other.to_string(),
    };
    let message = text.lines().next().unwrap_or_default();
    let message = message.split(" at line ").next().unwrap_or_default(); // the place says it
    let at = match error.location() {
        Some(at) => Place::File { path, line: at.line(), column: at.column() },
        None => Place::Document(path),
    };
    Problem::new(at, "", format!("not valid YAML: {message}"))
}

/// What the deserialiser hands over. Typed scalars are read again from the text at their span.
enum Raw {
    Null,
    Text(String),
    Typed(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

struct Located<'a> {
    path: Arc<str>,
    text: &'a str,
}

impl Located<'_> {
    fn node(&self, raw: Spanned<Raw>) -> Node {
        let place = self.place(raw.referenced);
        let value = match raw.value {
            Raw::Null => Value::Null,
            Raw::Text(text) => Value::Scalar(text),
            Raw::Typed(fallback) => Value::Scalar(self.written(raw.defined).unwrap_or(fallback)),
            Raw::List(items) => Value::List(items.into_iter().map(|item| self.node(item)).collect()),
            Raw::Map(entries) => Value::Map(entries.into_iter().map(|(k, v)| self.entry(k, v)).collect()),
        };
        Node { place, value }
    }

    fn entry(&self, key: Spanned<String>, value: Spanned<Raw>) -> Entry {
        Entry { place: self.place(key.referenced), key: key.value, node: self.node(value) }
    }

    fn place(&self, at: Location) -> Place {
        Place::File { path: Arc::clone(&self.path), line: at.line(), column: at.column() }
    }

    /// The characters of a plain scalar, before anything interpreted them.
    fn written(&self, at: Location) -> Option<String> {
        let from = usize::try_from(at.span().byte_offset()?).ok()?;
        let len = usize::try_from(at.span().byte_len()?).ok()?;
        let text = self.text.get(from..from.checked_add(len)?)?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        Raw::deserialize(deserializer)
    }

    fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Text(text.to_owned()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Typed(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Typed(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Typed(value.to_string()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Raw, E> {
        Ok(Raw::Typed(value.to_string()))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Raw, E> {
        Ok(Raw::Typed(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        Ok(Raw::Typed(value.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: u64, column: u64) -> Place {
        Place::File { path: "f".into(), line, column }
    }

    fn text_of(yaml: &str, key: &str) -> Value {
        parse("f", yaml).ok().and_then(|n| n.get(key).map(|n| n.value.clone())).unwrap_or(Value::Null)
    }

    #[test]
    fn keys_and_values_know_their_line_and_column() {
        let root = parse("f", "a: 1\nb:\n  - c: two\n").ok();
        let Some(Node { value: Value::Map(entries), .. }) = root else { panic!("a mapping") };
        assert_eq!((&entries[0].place, &entries[0].node.place), (&at(1, 1), &at(1, 4)));
        assert_eq!(entries[1].node.items()[0].get("c"), Some(&Node::scalar(at(3, 8), "two")));
    }

    #[test]
    fn scalars_keep_the_text_as_written() {
        for written in
            ["off", "0x10", "1.50", "20%", "1_000", "007", "64MiB", ".inf", "no", "99999999999999999999"]
        {
            assert_eq!(text_of(&format!("k: {written} # note\n"), "k"), Value::Scalar(written.into()));
        }
        assert_eq!(text_of("k: \"1\"\n", "k"), Value::Scalar("1".into()));
        assert_eq!(text_of("a: &x 0x10\nk: *x\n", "k"), Value::Scalar("0x10".into()));
        assert_eq!(text_of("k: ~\n", "k"), Value::Null);
    }

    #[test]
    fn both_of_two_equal_keys_survive() {
        let root = parse("f", "a: 1\na: 2\n").ok();
        let Some(Node { value: Value::Map(entries), .. }) = root else { panic!("a mapping") };
        assert_eq!(entries.iter().map(|e| &e.place).collect::<Vec<_>>(), [&at(1, 1), &at(2, 1)]);
    }

    #[test]
    fn nothing_and_comments_only_are_an_empty_mapping() {
        for empty in ["", "\n", "# only a comment\n", "---\n"] {
            assert_eq!(parse("f", empty).map(|n| n.value), Ok(Value::Map(Vec::new())), "{empty:?}");
        }
    }

    #[test]
    fn a_second_document_is_refused() {
        let problem = parse("f", "a: 1\n---\nb: 2\n").err().map(|p| p.to_string());
        assert_eq!(problem.as_deref(), Some("f:3:1: not valid YAML: more than one document"));
    }

    #[test]
    fn broken_yaml_is_one_problem_with_its_place() {
        let problem = parse("f", "a: [1, 2\nb: 3\n").err().map(|p| p.to_string()).unwrap_or_default();
        assert!(problem.starts_with("f:2:") && problem.contains("not valid YAML"), "{problem}");
    }
}

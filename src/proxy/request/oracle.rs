//! What [`peek`](super::peek) and [`splice`](super::splice) must do, said a second time with `serde_json`.
//!
//! Tests and the fuzz target call [`check`] on any bytes at all. Raw texts are compared, not values, so a changed
//! digit, escape or space inside a value shows. `serde_json`'s skipper has no nesting limit, so the limit is counted
//! here.

#![expect(clippy::panic, reason = "a checker for tests")]

use std::fmt;

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::key::Key;
use super::peek::{Count, Peek, PeekError, peek};
use super::scan::{MAX_DEPTH, Wrong};
use super::splice::{Segments, Splice, without_owned};

/// The members of an object as raw text, in order, duplicates kept.
#[derive(Debug, Clone, PartialEq)]
struct Members(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Members;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut all = vec![];
                while let Some((key, value)) = map.next_entry::<Box<RawValue>, Box<RawValue>>()? {
                    all.push((key.get().to_owned(), value.get().to_owned()));
                }
                Ok(Members(all))
            }
        }
        deserializer.deserialize_map(All)
    }
}

fn members(body: &[u8]) -> Option<Members> {
    let text = std::str::from_utf8(body).ok()?;
    let members = serde_json::from_str(text).ok()?;
    (depth(body) <= MAX_DEPTH).then_some(members)
}

/// Nesting of a well-formed text.
fn depth(body: &[u8]) -> u32 {
    let (mut open, mut most, mut quoted, mut escaped) = (0u32, 0, false, false);
    for b in body {
        match b {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => {
                open += 1;
                most = most.max(open);
            }
            b'}' | b']' if !quoted => open = open.saturating_sub(1),
            _ => {}
        }
    }
    most
}

fn known(raw_key: &str) -> Option<Key> {
    let name: String = serde_json::from_str(raw_key).ok()?;
    Key::ALL.iter().copied().find(|key| key.as_str() == name)
}

/// Checks everything that must hold of one body; panics with the body where it does not.
pub fn check(body: &[u8]) {
    let told = peek(body);
    let shown = String::from_utf8_lossy(body);
    match (&told, members(body)) {
        (Err(PeekError::Duplicate { key, .. }), Some(Members(all))) => {
            let count = all.iter().filter(|(k, _)| known(k) == Some(*key)).count();
            assert!(count > 1, "no second {key:?} in {shown}");
        }
        (Err(PeekError::Type { key, .. }), Some(Members(all))) => {
            // Another member of the same key may have its type: the first mistake in the text is the one reported.
            let wrong = all.iter().any(|(k, v)| known(k) == Some(*key) && !fits(*key, v));
            assert!(wrong, "{key:?} has its type in {shown}");
        }
        // Found before the place where the text goes wrong.
        (Err(PeekError::Duplicate { .. } | PeekError::Type { .. }), None) => {}
        (Err(error), Some(_)) => panic!("refused ({error}): {shown}"),
        (Err(error), None) => check_error(body, *error),
        (Ok(_), None) => panic!("accepted: {shown}"),
        (Ok(peek), Some(all)) => {
            check_facts(body, peek, &all);
            check_edits(body, peek, &all);
        }
    }
}

fn fits(key: Key, value: &str) -> bool {
    match key {
        Key::Model => serde_json::from_str::<Option<String>>(value).is_ok(),
        Key::Stream => matches!(value, "true" | "false" | "null"),
        _ => true,
    }
}

/// An error points into the body, and its text is made without it.
fn check_error(body: &[u8], error: PeekError) {
    assert!(error.to_string().is_ascii());
    match error {
        PeekError::Malformed(fault) => {
            assert!(fault.at <= body.len());
            assert_eq!(fault.wrong == Wrong::End, fault.at == body.len(), "{error}");
        }
        PeekError::NotAnObject { at, found } => assert_eq!(body.get(at), Some(&found)),
        _ => {}
    }
}

fn check_facts(body: &[u8], peek: &Peek, Members(all): &Members) {
    let found: Vec<_> =
        all.iter().filter_map(|(k, v)| known(k).map(|key| (key, k.as_bytes(), v.as_bytes()))).collect();
    let told: Vec<_> = peek.members.iter().map(|m| (m.key, m.name.of(body), m.value.of(body))).collect();
    assert_eq!(told, found);
    let value = |key| found.iter().find(|(k, ..)| *k == key).map_or("null", |(_, _, v)| str(v));
    let model: Option<String> = serde_json::from_str(value(Key::Model)).unwrap_or_default();
    assert_eq!(peek.model.as_deref(), model.as_deref());
    assert_eq!(peek.stream, value(Key::Stream) == "true");
    for (key, count) in [(Key::N, peek.n), (Key::BestOf, peek.best_of)] {
        let expected = match (value(key), serde_json::from_str::<u64>(value(key))) {
            ("null", _) => Count::Absent,
            (text, Ok(n)) if !text.starts_with('-') => Count::Is(n),
            _ => Count::Odd,
        };
        assert_eq!(count, expected);
    }
}

fn str(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// Some edits, chosen by the body itself: each known member is kept, removed or replaced, and some are appended.
fn check_edits(body: &[u8], peek: &Peek, all: &Members) {
    const BY: &[u8] = b"[1, \"new\\u0000\"]";
    let bytes = Bytes::copy_from_slice(body);
    let mut chance = fastrand::Rng::with_seed(body.iter().fold(7, |h, b| h.wrapping_mul(31) ^ u64::from(*b)));
    let mut splice = Splice::new(&bytes, peek);
    let mut expected = all.clone();
    let (mut first, mut last) = (peek.close, 0);
    let mut edits: Vec<_> = peek.members.iter().map(|m| (*m, chance.u8(..3))).collect();
    chance.shuffle(&mut edits);
    for (member, what) in &edits {
        let place = expected.0.iter_mut().find(|(k, _)| known(k) == Some(member.key));
        match (what, place) {
            (1, Some(_)) => {
                splice.remove(member);
                expected.0.retain(|(k, _)| known(k) != Some(member.key));
            }
            (2, Some((_, value))) => {
                splice.replace(member, Bytes::from_static(BY));
                str(BY).clone_into(value);
            }
            _ => continue,
        }
        first = first.min(member.before);
        last = last.max(member.after + 1);
    }
    for name in ["\"tandem-a\"", "\"tandem-b\""].into_iter().take(chance.usize(..3)) {
        splice.append(Bytes::from(format!("{name}:{}", str(BY))));
        expected.0.push((name.to_owned(), str(BY).to_owned()));
        last = peek.close;
    }
    let out = splice.finish();
    assert_eq!(members(&out.to_vec()).as_ref(), Some(&expected), "edited {}", str(body));
    check_pieces(&bytes, &out, first, last);
    check_values(body, &out, &edits);
    check_owned(&bytes, peek, all);
}

/// Untouched before the first and behind the last edit; what stands between are the body's own bytes, not copies.
fn check_pieces(body: &Bytes, out: &Segments, first: usize, last: usize) {
    let all = out.to_vec();
    assert_eq!(all.len(), out.len());
    assert!(all.starts_with(&body[..first]));
    assert!(all.ends_with(&body[last.max(first)..]));
    let (start, mut at) = (body.as_ptr() as usize, body.as_ptr() as usize);
    for piece in out.iter().filter(|p| (start..start + body.len()).contains(&(p.as_ptr() as usize))) {
        assert!(piece.as_ptr() as usize >= at, "pieces in order");
        at = piece.as_ptr() as usize + piece.len();
    }
}

/// The same edits on values, wherever the body is one (`1e400` and lone surrogates are not).
fn check_values(body: &[u8], out: &Segments, edits: &[(super::peek::Member, u8)]) {
    let Ok(Value::Object(mut object)) = serde_json::from_slice(body) else { return };
    for (member, what) in edits {
        match what {
            1 => drop(object.remove(member.key.as_str())),
            2 => drop(object.insert(member.key.as_str().to_owned(), serde_json::json!([1, "new\0"]))),
            _ => {}
        }
    }
    let Ok(Value::Object(mut edited)) = serde_json::from_slice(&out.to_vec()) else {
        panic!("no longer a value: {}", str(body));
    };
    edited.retain(|k, _| !k.starts_with("tandem-"));
    object.retain(|k, _| !k.starts_with("tandem-"));
    assert_eq!(edited, object);
}

fn check_owned(body: &Bytes, peek: &Peek, Members(all): &Members) {
    let mut kept = all.clone();
    kept.retain(|(k, _)| !known(k).is_some_and(Key::is_owned));
    assert_eq!(members(&without_owned(body, peek).to_vec()), Some(Members(kept)));
}

//! LIST: one version of the truth, in pages.

use std::ops::Bound;
use std::time::Duration;

use serde_json::{Value, json};

use super::options::{At, ListOptions};
use super::state::{Shared, State};
use super::status::Status;
use super::store::{Key, Object};

/// How long a server waits for a version it has not seen.
pub(super) const FRESH_LIMIT: Duration = Duration::from_secs(3);

/// Where a page starts: the version of the list, and the last item of the page before.
#[derive(Debug)]
struct Token {
    /// None: whatever the version is by then.
    version: Option<u64>,
    last: Key,
}

impl Token {
    /// Opaque to whoever does not look closely: hex of `version/namespace/name`.
    fn encode(&self) -> String {
        let version = self.version.map_or("-1".to_owned(), |v| v.to_string());
        let plain = format!("{version}/{}/{}", self.last.ns, self.last.name);
        let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
        plain.bytes().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
    }

    fn decode(token: &str) -> Option<Self> {
        let byte = |at| u8::from_str_radix(token.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..token.len()).step_by(2).map(byte).collect();
        let plain = String::from_utf8(bytes?).ok()?;
        let (version, key) = plain.split_once('/')?;
        let (ns, name) = key.split_once('/')?;
        let version = if version == "-1" { None } else { Some(version.parse().ok()?) };
        Some(Self { version, last: Key::new(ns, name) })
    }
}

/// Answers a LIST; waits when it has to.
pub(super) async fn list(shared: &Shared, replica: usize, options: &ListOptions) -> Result<Value, Status> {
    let token = options.token.as_deref().map(|token| {
        Token::decode(token)
            .ok_or_else(|| Status::bad_request("continue key is not valid: not a token of ours"))
    });
    let token = token.transpose()?;
    if let (None, At::NotOlderThan(wanted) | At::Exactly(wanted)) = (&token, options.at) {
        fresh(shared, replica, wanted).await?;
    }
    shared.read(|state| {
        let version = version(state, replica, options, token.as_ref())?;
        Ok(page(state, version, token.map(|t| t.last), options))
    })
}

/// Waits until the replica has seen this version.
pub(super) async fn fresh(shared: &Shared, replica: usize, wanted: u64) -> Result<(), Status> {
    if shared.until(FRESH_LIMIT, |state| state.visible(replica) >= wanted).await {
        return Ok(());
    }
    Err(Status::too_large_version(wanted, shared.read(|state| state.visible(replica))))
}

fn version(
    state: &State,
    replica: usize,
    options: &ListOptions,
    token: Option<&Token>,
) -> Result<u64, Status> {
    let oldest = state.oldest_list(replica);
    match (token, options.at) {
        (Some(Token { version: Some(version), last }), _) if *version < oldest => {
            let fresh = Token { version: None, last: last.clone() };
            Err(Status::expired_continue(&fresh.encode()))
        }
        (Some(Token { version: Some(version), .. }), _) => Ok(*version),
        (None, At::Exactly(version)) if version < oldest => {
            Err(Status::expired("The resourceVersion for the provided list is too old."))
        }
        (None, At::Exactly(version)) => Ok(version),
        (None, At::Newest) if state.settings.consistent_reads => Ok(state.store.version()),
        _ => Ok(state.visible(replica)),
    }
}

fn page(state: &State, version: u64, after: Option<Key>, options: &ListOptions) -> Value {
    let objects = state.store.at(version);
    let start = after.map_or(Bound::Unbounded, Bound::Excluded);
    let mut selected =
        objects.range((start, Bound::Unbounded)).filter(|(key, object)| options.filter.matches(key, object));
    let items: Vec<(&Key, &Object)> = selected.by_ref().take(options.limit.unwrap_or(usize::MAX)).collect();
    let remaining = selected.count();
    let mut metadata = json!({ "resourceVersion": version.to_string() });
    if let (1.., Some((last, _))) = (remaining, items.last()) {
        let next = Token { version: Some(version), last: (*last).clone() };
        metadata["continue"] = next.encode().into();
        if options.filter.is_plain() {
            metadata["remainingItemCount"] = remaining.into();
        }
    } else if state.settings.empty_continue {
        metadata["continue"] = "".into();
    }
    let items: Vec<Value> = items.into_iter().map(|(_, object)| bare(object)).collect();
    json!({ "kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items })
}

/// The items of a list do not say what they are.
fn bare(object: &Object) -> Value {
    let mut object = Value::clone(object);
    if let Some(fields) = object.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    object
}

//! What the two legs are sent: the client's bytes and a closed list of edits, none of which changes the rendered prompt
//! (a decode with the KV of another prompt answers 200 with nonsense). Splices only; both legs share the client's
//! buffer.

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::config::VllmConnector;
use crate::proxy::dispatch::run::EngineId;
use crate::proxy::request::key::Key;
use crate::proxy::request::peek::{self, Count, Peek};
use crate::proxy::request::route::Route;
use crate::proxy::request::splice::{Segments, Splice};

/// A request that has no prefill/decode form, and which key makes it so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unsupported {
    pub(super) param: &'static str,
    pub(super) why: &'static str,
}

const fn because(param: &'static str, why: &'static str) -> Unsupported {
    Unsupported { param, why }
}

/// Where a prefill's bootstrap server is, for SGLang.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bootstrap<'a> {
    /// As in the prefill's URL; IPv6 bracketed.
    pub(super) host: &'a str,
    pub(super) port: u16,
}

/// The routes that have a two-leg form with SGLang.
pub(super) fn sglang_serves(route: Route) -> bool {
    matches!(route, Route::ChatCompletions | Route::Completions | Route::Generate)
}

/// The routes that have a two-leg form with vLLM's NIXL connector.
pub(super) fn vllm_serves(route: Route) -> bool {
    matches!(route, Route::ChatCompletions | Route::Completions | Route::Responses | Route::Messages)
}

/// How many prompts a body holds: SGLang needs one room for each. 0: the body is no list, one room as a plain number.
pub(super) fn prompts(body: &[u8], peek: &Peek) -> usize {
    let count = |key: Key, nested: bool| {
        let value = peek.member(key)?.value.of(body);
        let first = value.strip_prefix(b"[")?.trim_ascii_start().first()?;
        // A list of numbers is one prompt in tokens, and a long one: nobody counts those.
        if *first != b'[' && (nested || *first != b'"') {
            return None;
        }
        serde_json::from_slice::<Vec<&RawValue>>(value).ok().map(|items| items.len())
    };
    [(Key::Prompt, false), (Key::Text, false), (Key::InputIds, true)]
        .into_iter()
        .find_map(|(key, nested)| count(key, nested))
        .unwrap_or(0)
}

/// SGLang shares one room among the samples or beams of a request: they hang or mix. Its own route keeps their numbers in
/// `sampling_params`, an object or one for each prompt.
pub(super) fn sglang_refuses(body: &[u8], peek: &Peek) -> Option<Unsupported> {
    const SAMPLES: &str = "more than one sample per prompt shares one bootstrap room in SGLang; send n = 1";
    const BEAMS: &str = "beam search shares one bootstrap room in SGLang";
    let one = |count| matches!(count, Count::Absent | Count::Is(0 | 1));
    if !one(peek.n) {
        return Some(because("n", SAMPLES));
    }
    if !one(peek.best_of) {
        return Some(because("best_of", SAMPLES));
    }
    if beams(body, peek) {
        return Some(because("use_beam_search", BEAMS));
    }
    let member = peek.member(Key::SamplingParams)?;
    let params: Value = serde_json::from_slice(member.value.of(body)).ok()?;
    let list = params.as_array().map_or(std::slice::from_ref(&params), Vec::as_slice);
    let several = |key: &str| list.iter().any(|params| !is_one(&params[key]));
    if several("n") {
        return Some(because("sampling_params.n", SAMPLES));
    }
    several("beam_width").then_some(because("sampling_params.beam_width", BEAMS))
}

/// Beam search is asked for, in whatever odd way.
fn beams(body: &[u8], peek: &Peek) -> bool {
    peek.member(Key::UseBeamSearch).is_some_and(|beams| !matches!(beams.value.of(body), b"false" | b"null"))
}

/// Absent, or at most one; anything odd might be read as more.
fn is_one(value: &Value) -> bool {
    value.is_null() || value.as_u64().is_some_and(|count| count <= 1)
}

/// The body for both SGLang legs. The fields stand last: its parser takes the last of two equal keys.
pub(super) fn sglang(
    body: &Bytes,
    peek: &Peek,
    rids: &Rids,
    at: Bootstrap<'_>,
    room: impl FnMut() -> u64,
) -> Segments {
    let mut splice = Splice::new(body, peek);
    for member in peek.owned() {
        splice.remove(member);
    }
    splice.append(fields(rids, at, room).into());
    splice.finish()
}

fn fields(rids: &Rids, at: Bootstrap<'_>, mut room: impl FnMut() -> u64) -> Vec<u8> {
    let each = rids.id.as_bytes().len() + at.host.len() + 40;
    let mut out = Vec::with_capacity(100 + each * rids.prompts.max(1));
    let mut list = |key: &str, write: &mut dyn FnMut(&mut Vec<u8>, usize)| {
        out.extend_from_slice(key.as_bytes());
        if rids.prompts == 0 {
            return write(&mut out, 0);
        }
        for i in 0..rids.prompts {
            out.push(if i == 0 { b'[' } else { b',' });
            write(&mut out, i);
        }
        out.push(b']');
    };
    let number = |out: &mut Vec<u8>, number: u64| {
        out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    };
    list("\"rid\":", &mut |out, i| {
        out.push(b'"');
        rids.write(out, i);
        out.push(b'"');
    });
    list(",\"bootstrap_host\":", &mut |out, _| {
        out.push(b'"');
        out.extend_from_slice(at.host.as_bytes());
        out.push(b'"');
    });
    list(",\"bootstrap_port\":", &mut |out, _| number(out, at.port.into()));
    list(",\"bootstrap_room\":", &mut |out, _| number(out, room()));
    out
}

/// The engine's own ids of a request: the attempt's, or one for each prompt of a list.
#[derive(Debug)]
pub(super) struct Rids {
    pub(super) id: EngineId,
    /// 0: the body is no list.
    pub(super) prompts: usize,
}

impl Rids {
    fn write(&self, out: &mut Vec<u8>, i: usize) {
        out.extend_from_slice(self.id.as_bytes());
        if self.prompts > 0 {
            out.push(b'-');
            out.extend_from_slice(itoa::Buffer::new().format(i).as_bytes());
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = String> {
        (0..self.prompts.max(1)).map(|i| {
            let mut id = Vec::new();
            self.write(&mut id, i);
            String::from_utf8_lossy(&id).into_owned()
        })
    }
}

/// A new bootstrap room: unique among the live ones of a prefill by chance (2^63), above the engines' own small ones.
pub(super) fn room() -> u64 {
    fastrand::u64(1000..1 << 63)
}

/// vLLM's prefill answers with parameters for the first prompt only, and for a beam search with none.
pub(super) fn vllm_refuses(body: &[u8], peek: &Peek) -> Option<Unsupported> {
    if prompts(body, peek) > 1 {
        return Some(because(
            "prompt",
            "vLLM's prefill hands over one prompt only; send one request per prompt",
        ));
    }
    beams(body, peek)
        .then_some(because("use_beam_search", "vLLM's prefill hands over nothing for a beam search"))
}

/// The prefill body for vLLM: one token, no stream, one sample, and the wish for KV parameters.
pub(super) fn vllm_prefill(body: &Bytes, peek: &Peek, route: Route, connector: VllmConnector) -> Segments {
    const ONE: Bytes = Bytes::from_static(b"1");
    let mut splice = Splice::new(body, peek);
    for member in peek.owned() {
        splice.remove(member);
    }
    let limit = if route == Route::Responses { Key::MaxOutputTokens } else { Key::MaxTokens };
    for member in &peek.members {
        match member.key {
            Key::Stream => splice.replace(member, Bytes::from_static(b"false")),
            Key::StreamOptions => splice.remove(member),
            Key::MaxTokens
            | Key::MaxCompletionTokens
            | Key::MaxOutputTokens
            | Key::MinTokens
            | Key::MinCompletionTokens
            | Key::N => splice.replace(member, ONE),
            _ => &mut splice,
        };
    }
    if peek.member(limit).is_none() {
        splice.append(Bytes::from(format!("\"{}\":1", limit.as_str())));
    }
    if connector == VllmConnector::Nixl {
        splice.append(Bytes::from_static(
            b"\"kv_transfer_params\":{\"do_remote_decode\":true,\"do_remote_prefill\":false}",
        ));
    }
    splice.finish()
}

/// The decode body for vLLM: the client's, and the prefill's parameters, key and all, word for word.
pub(super) fn vllm_decode(body: &Bytes, peek: &Peek, params: Bytes) -> Segments {
    let mut splice = Splice::new(body, peek);
    for member in peek.owned() {
        splice.remove(member);
    }
    splice.append(params);
    splice.finish()
}

/// The member `kv_transfer_params` of a prefill's answer, as it stands there; `None` unless it is an object that holds something.
/// No copy: it may name thousands of blocks.
pub(super) fn params_of(answer: &Bytes) -> Option<Bytes> {
    let peek = peek::peek(answer).ok()?;
    let member = peek.member(Key::KvTransferParams)?;
    let inside = member.value.of(answer).strip_prefix(b"{")?.trim_ascii_start();
    (!inside.starts_with(b"}")).then(|| answer.slice(member.name.start..member.value.end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::request::peek::peek;
    use serde_json::json;

    fn value(segments: &Segments) -> Value {
        serde_json::from_slice(&segments.to_vec()).unwrap()
    }

    fn parsed(text: &'static str) -> (Bytes, Peek) {
        let body = Bytes::from_static(text.as_bytes());
        let peek = peek(&body).unwrap();
        (body, peek)
    }

    const AT: Bootstrap<'static> = Bootstrap { host: "10.0.0.1", port: 8998 };

    #[test]
    fn both_sglang_legs_get_the_clients_bytes_and_the_fields_last() {
        let (body, peek) = parsed(r#"{"model":"m","bootstrap_room":7,"x":1e400,"messages":[]}"#);
        let out =
            sglang(&body, &peek, &Rids { id: EngineId::fixed(b"r-1"), prompts: 0 }, AT, || 5000).to_vec();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            r#"{"model":"m","x":1e400,"messages":[],"rid":"r-1","bootstrap_host":"10.0.0.1","bootstrap_port":8998,"bootstrap_room":5000}"#
        );
    }

    #[test]
    fn a_list_of_prompts_gets_a_room_each_and_token_ids_are_one_prompt() {
        for (text, expected) in [
            (r#"{"prompt":["a","b","c"]}"#, 3),
            (r#"{"prompt":["a"]}"#, 1),
            (r#"{"prompt":"a"}"#, 0),
            (r#"{"prompt":[1,2,3]}"#, 0),
            (r#"{"prompt":[[1,2],[3]]}"#, 2),
            (r#"{"text":["a","b"]}"#, 2),
            (r#"{"input_ids":[1,2]}"#, 0),
            (r#"{"input_ids":[[1],[2]]}"#, 2),
            (r#"{"messages":[{"role":"user"}]}"#, 0),
        ] {
            let body = Bytes::from_static(text.as_bytes());
            let peek = peek(&body).unwrap();
            assert_eq!(prompts(&body, &peek), expected, "{text}");
        }
        let (body, peek) = parsed(r#"{"prompt":["a","b"]}"#);
        let mut rooms = [1001, 1002].into_iter();
        let rids = Rids { id: EngineId::fixed(b"r"), prompts: 2 };
        let out = value(&sglang(&body, &peek, &rids, AT, || rooms.next().unwrap()));
        assert_eq!(rids.iter().collect::<Vec<_>>(), ["r-0", "r-1"]);
        assert_eq!(out["bootstrap_room"], json!([1001, 1002]));
        assert_eq!(out["bootstrap_host"], json!(["10.0.0.1", "10.0.0.1"]));
        assert_eq!(out["rid"], json!(["r-0", "r-1"]));
    }

    #[test]
    fn b54_more_samples_than_one_are_refused_by_name() {
        for (text, param) in [
            (r#"{"n":2}"#, Some("n")),
            (r#"{"n":"2"}"#, Some("n")),
            (r#"{"best_of":3}"#, Some("best_of")),
            (r#"{"n":1,"best_of":1}"#, None),
            (r#"{"n":null}"#, None),
            (r#"{"sampling_params":{"n":2}}"#, Some("sampling_params.n")),
            (r#"{"sampling_params":[{},{"n":2.0}]}"#, Some("sampling_params.n")),
            (r#"{"sampling_params":{"n":1,"beam_width":4}}"#, Some("sampling_params.beam_width")),
            (r#"{"sampling_params":{"n":1,"beam_width":null}}"#, None),
        ] {
            let body = Bytes::from_static(text.as_bytes());
            let refused = sglang_refuses(&body, &peek(&body).unwrap());
            assert_eq!(refused.map(|u| u.param), param, "{text}");
        }
    }

    #[test]
    fn vllm_refuses_what_its_prefill_hands_nothing_over_for() {
        for (text, param) in [
            (r#"{"prompt":["a","b"]}"#, Some("prompt")),
            (r#"{"use_beam_search":true}"#, Some("use_beam_search")),
            (r#"{"use_beam_search":1}"#, Some("use_beam_search")),
            (r#"{"use_beam_search":false}"#, None),
            // Read by none of its versions that have a connector.
            (r#"{"best_of":2,"n":2}"#, None),
        ] {
            let body = Bytes::from_static(text.as_bytes());
            let refused = vllm_refuses(&body, &peek(&body).unwrap());
            assert_eq!(refused.map(|u| u.param), param, "{text}");
        }
    }

    #[test]
    fn b46_b48_the_vllm_prefill_body_is_valid_whatever_limits_the_client_set() {
        let (body, peek) = parsed(
            r#"{"stream":true,"stream_options":{"include_usage":true},"max_tokens":500,"min_tokens":100,"n":3,"seed":18446744073709551616}"#,
        );
        let out = vllm_prefill(&body, &peek, Route::ChatCompletions, VllmConnector::Nixl).to_vec();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"stream":false,"max_tokens":1,"min_tokens":1,"n":1,"seed":18446744073709551616,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false}}"#
        );
        let (body, peek) = parsed(r#"{"messages":[]}"#);
        assert_eq!(
            value(&vllm_prefill(&body, &peek, Route::ChatCompletions, VllmConnector::Store))["max_tokens"],
            1
        );
        assert_eq!(
            value(&vllm_prefill(&body, &peek, Route::Responses, VllmConnector::Nixl))["max_output_tokens"],
            1
        );
        let answer = Bytes::from_static(
            br#"{"id":"x","kv_transfer_params":{"remote_block_ids":[[1,2]],"k":1e400},"usage":null}"#,
        );
        let out = vllm_decode(&body, &peek, params_of(&answer).unwrap()).to_vec();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"messages":[],"kv_transfer_params":{"remote_block_ids":[[1,2]],"k":1e400}}"#
        );
    }

    #[test]
    fn parameters_are_an_object_that_holds_something() {
        for (answer, found) in [
            (r#"{"kv_transfer_params":{"a":1}}"#, Some(r#""kv_transfer_params":{"a":1}"#)),
            (
                r#"{"x":{"kv_transfer_params":{"a":1}},"kv_transfer_params": {"b":{}} ,"y":1}"#,
                Some(r#""kv_transfer_params": {"b":{}}"#),
            ),
            (r#"{"kv_transfer_params":{}}"#, None),
            (r#"{"kv_transfer_params":{ }}"#, None),
            (r#"{"kv_transfer_params":null}"#, None),
            (r#"{"kv_transfer_params":[1]}"#, None),
            (r#"{"kv_transfer_params":{"a":1},"kv_transfer_params":{"a":2}}"#, None),
            (r#"{"kv_transfer_params":{"a":1}"#, None),
            (r#"{"choices":[]}"#, None),
            ("", None),
        ] {
            let params = params_of(&Bytes::from_static(answer.as_bytes()));
            assert_eq!(params.as_deref(), found.map(str::as_bytes), "{answer}");
        }
    }

    #[test]
    fn b136_rooms_are_plain_integers_within_63_bits_and_do_not_repeat() {
        let mut seen = std::collections::HashSet::new();
        for _ in 0..100_000 {
            let room = room();
            assert!((1000..1 << 63).contains(&room) && seen.insert(room));
        }
    }
}

//! What both ends of a load test know: how a request asks for an answer, and the exact bytes of that answer.
//!
//! The generator asks through one header (`x-load: events=200,bytes=180,gap_us=0`) and then compares every
//! byte it gets with what [`stream_body`] says. Event numbers are inside the payload, so a lost, doubled,
//! reordered or merged event is a mismatch and not only a wrong count.
//!
//! Routers for prefill and decode pass few headers on and write the body anew. There the ask is in the prompt, with a
//! sum of the text behind it ([`carrying`]).

use std::fmt::Write as _;

/// The request header that carries an [`Ask`].
pub const ASK_HEADER: &str = "x-load";
/// The response header with the engine's [`body_sum`] of the request body it received.
pub const SUM_HEADER: &str = "x-load-sum";
/// The last event of every stream, as OpenAI-compatible engines end theirs.
pub const DONE: &str = "data: [DONE]\n\n";
/// The whole answer of a request that is no stream, about what an engine says to a short chat.
pub const SMALL_ANSWER: &str = concat!(
    r#"{"id":"chatcmpl-5f0c2b7d9a814e6c","object":"chat.completion","created":1750000000,"model":"load","#,
    r#""choices":[{"index":0,"message":{"role":"assistant","content":"A relay that adds nothing and loses "#,
    r#"nothing is worth measuring.","tool_calls":null},"logprobs":null,"finish_reason":"stop"}],"#,
    r#""usage":{"prompt_tokens":23,"completion_tokens":11,"total_tokens":34,"prompt_tokens_details":null}}"#
);

const EVENT_HEAD: &str = r#"data: {"id":"chatcmpl-load","object":"chat.completion.chunk","created":1750000000,"model":"load","choices":[{"index":0,"delta":{"content":""#;
const EVENT_TAIL: &str = "\"},\"finish_reason\":null}]}\n\n";

/// The answer a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ask {
    /// Events before `[DONE]`; 0 asks for [`SMALL_ANSWER`] with a `Content-Length`.
    pub events: usize,
    /// Size of one event in bytes, `data: ` and the blank line included; never under the fixed frame.
    pub bytes: usize,
    /// Microseconds between two events; 0 sends the next one at once.
    pub gap_us: u64,
    /// Events in one write, each still a chunk of its own. A router that is behind finds several in one read; here
    /// that is set and not left to the race between two CPUs.
    pub burst: usize,
    /// Send the head and the first event, then nothing until the peer leaves.
    pub hold: bool,
}

impl Default for Ask {
    fn default() -> Self {
        Self { events: 0, bytes: 180, gap_us: 0, burst: 1, hold: false }
    }
}

impl Ask {
    /// Reads `key=value` pairs separated by commas.
    ///
    /// # Errors
    /// A key that is not one of `events`, `bytes`, `gap_us`, `burst`, `hold`, or a value that is no number: the pair.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut ask = Self::default();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or(pair)?;
            let number: u64 = value.parse().map_err(|_| pair)?;
            match key {
                "events" => ask.events = number as usize,
                "bytes" => ask.bytes = number as usize,
                "gap_us" => ask.gap_us = number,
                "burst" => ask.burst = (number as usize).max(1),
                "hold" => ask.hold = number != 0,
                _ => return Err(pair.to_owned()),
            }
        }
        Ok(ask)
    }

    /// The value for [`ASK_HEADER`] that [`Ask::parse`] reads back.
    pub fn to_header(self) -> String {
        let Self { events, bytes, gap_us, burst, hold } = self;
        format!("events={events},bytes={bytes},gap_us={gap_us},burst={burst},hold={}", u8::from(hold))
    }
}

/// Plain text of `size` bytes, nothing in it that JSON escapes.
pub fn words(size: usize) -> String {
    "the quick brown fox jumps over the lazy dog while ".chars().cycle().take(size).collect()
}

/// A prompt of about `size` bytes that carries `ask` and the sum of its own text.
pub fn carrying(ask: Ask, size: usize) -> String {
    let ask = ask.to_header();
    let text = words(size.saturating_sub(ask.len() + 24));
    format!("{ASK_HEADER}: {ask};{};{text}", body_sum(text.as_bytes()))
}

/// The ask inside a prompt, if the text behind it has the length and sum it left with.
pub fn carried(prompt: &str) -> Option<Ask> {
    let (ask, rest) = prompt.strip_prefix(ASK_HEADER)?.strip_prefix(": ")?.split_once(';')?;
    let (sum, text) = rest.split_once(';')?;
    (sum.parse() == Ok(body_sum(text.as_bytes()))).then(|| Ask::parse(ask).ok())?
}

/// Event number `index`, padded so that it is `bytes` long where the fixed frame leaves room.
pub fn event(index: usize, bytes: usize) -> String {
    let width = bytes.saturating_sub(EVENT_HEAD.len() + EVENT_TAIL.len());
    let mut text = String::with_capacity(bytes);
    text.push_str(EVENT_HEAD);
    // Writing to a String cannot fail.
    let _ = write!(text, "{index:0width$}");
    text.push_str(EVENT_TAIL);
    text
}

/// The decoded body of the answer to `ask`: what has to arrive, byte for byte.
pub fn stream_body(ask: Ask) -> String {
    if ask.events == 0 {
        return SMALL_ANSWER.to_owned();
    }
    let mut text: String = (0..ask.events).map(|index| event(index, ask.bytes)).collect();
    text.push_str(DONE);
    text
}

/// Sum of all bytes: cheap enough for a 108 KB prompt, and it tells a cut or altered one.
pub fn body_sum(bytes: &[u8]) -> u64 {
    bytes.chunks(4096).map(|block| u64::from(block.iter().map(|&byte| u32::from(byte)).sum::<u32>())).sum()
}

/// The current time; both programs are outside the product and read the clock themselves.
#[expect(clippy::disallowed_methods, reason = "a measuring tool, not a part of the router")]
pub fn now() -> std::time::Instant {
    std::time::Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ask_survives_its_header() {
        let ask = Ask { events: 7, bytes: 300, gap_us: 12, burst: 3, hold: true };
        assert_eq!(Ask::parse(&ask.to_header()), Ok(ask));
        assert_eq!(Ask::parse("evnts=1"), Err("evnts=1".to_owned()));
    }

    #[test]
    fn a_prompt_carries_its_ask_and_tells_a_change() {
        let ask = Ask { events: 200, burst: 4, ..Ask::default() };
        let prompt = carrying(ask, 1000);
        assert_eq!(carried(&prompt), Some(ask));
        assert!((980..=1000).contains(&prompt.len()), "{}", prompt.len());
        assert_eq!(carried(&prompt.replacen("fox", "fix", 1)), None);
        assert_eq!(carried(&prompt[..prompt.len() - 1]), None);
    }

    #[test]
    fn an_event_has_the_size_asked_for_and_its_own_number() {
        assert_eq!(event(3, 180).len(), 180);
        assert_ne!(event(3, 180), event(4, 180));
    }
}

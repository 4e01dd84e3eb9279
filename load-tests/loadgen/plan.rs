//! What to send and what has to come back, worked out once before the clock starts.

use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context as _;

use crate::args::Args;
use crate::common::{ASK_HEADER, Ask, body_sum, carrying, stream_body, words};
use crate::decode::Answer;
use crate::legs::Wire;

/// One request and its only right answer.
#[derive(Debug)]
pub struct Plan {
    /// Head and body of the request.
    pub request: Vec<u8>,
    /// Where its body begins.
    pub body_at: usize,
    pub answer: Answer,
    /// Events before `[DONE]`.
    pub events: usize,
    /// With `--legs`, what the prefill's leg needs besides.
    pub prefill: Option<Prefill>,
}

/// The prefill's leg, where the generator sends both.
#[derive(Debug)]
pub enum Prefill {
    /// The request is the decode's; a prefill says the first token.
    Sglang(Answer),
    /// A request of its own, whose answer nobody knows beforehand.
    Vllm(Vec<u8>),
}

/// All requests of a run.
#[derive(Debug)]
pub struct Plans {
    plans: Vec<Plan>,
    /// When each is due, if that is written down.
    pub due: Option<Vec<Duration>>,
}

impl Plans {
    /// Encodes what `args` describe: one kind of request, or one for each line of the schedule.
    ///
    /// # Errors
    /// A schedule that cannot be read.
    pub fn new(args: &Args) -> anyhow::Result<Rc<Self>> {
        let mut maker = Maker { args, bodies: HashMap::new() };
        let Some(path) = &args.schedule else {
            // A held stream says its first event and never its second.
            let events = if args.idle { 2 } else { args.events };
            return Ok(Rc::new(Self { plans: vec![maker.plan(args.body_bytes, events)], due: None }));
        };
        let lines = schedule(path)?;
        let plans = lines.iter().map(|line| maker.plan(line.body_bytes, line.events)).collect();
        Ok(Rc::new(Self { plans, due: Some(lines.iter().map(|line| line.due).collect()) }))
    }

    /// The plan of request `number`.
    pub fn of(&self, number: usize) -> &Plan {
        &self.plans[number % self.plans.len()]
    }
}

/// One line of a schedule.
#[derive(Debug, PartialEq)]
struct Line {
    due: Duration,
    body_bytes: usize,
    events: usize,
}

fn schedule(path: &PathBuf) -> anyhow::Result<Vec<Line>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let lines = text.lines().map(|line| parse(line).with_context(|| format!("no schedule: {line}")));
    let lines: Vec<_> = lines.collect::<anyhow::Result<_>>()?;
    anyhow::ensure!(lines.is_sorted_by_key(|line| line.due), "a schedule goes forward");
    anyhow::ensure!(!lines.is_empty(), "an empty schedule");
    Ok(lines)
}

/// `MICROSECONDS BODY_BYTES EVENTS`.
fn parse(line: &str) -> Option<Line> {
    let mut numbers = line.split(' ').map(str::parse::<u64>);
    let mut next = || numbers.next()?.ok();
    let (due, body_bytes, events) = (next()?, next()? as usize, next()? as usize);
    numbers.next().is_none().then_some(Line { due: Duration::from_micros(due), body_bytes, events })
}

struct Maker<'a> {
    args: &'a Args,
    /// Expected bodies by their events.
    bodies: HashMap<usize, Rc<[u8]>>,
}

impl Maker<'_> {
    fn plan(&mut self, body_bytes: usize, events: usize) -> Plan {
        let Args { event_bytes: bytes, gap_us, burst, idle: hold, pd, legs, .. } = *self.args;
        let ask = Ask { events, bytes, gap_us, burst, hold };
        let stream = events > 0;
        let size = body_bytes.saturating_sub(chat("", "", stream, 256).len());
        let prompt = if pd { carrying(ask, size) } else { words(size) };
        let body = chat("", &prompt, stream, 256);
        let asking = if pd { String::new() } else { format!("{ASK_HEADER}: {}\r\n", ask.to_header()) };
        let mut request = head(&asking, body.len());
        let body_at = request.len();
        request.push_str(&body);
        let sum = (!pd).then(|| body_sum(body.as_bytes()).to_string());
        let prefill = legs.map(|wire| match wire {
            Wire::Sglang => Prefill::Sglang(self.answer(Ask { events: events.min(1), ..ask }, None)),
            Wire::Vllm => {
                let body = chat(KEEP, &prompt, false, 1);
                Prefill::Vllm((head("", body.len()) + &body).into_bytes())
            }
        });
        let answer = self.answer(ask, sum);
        Plan { request: request.into_bytes(), body_at, answer, events, prefill }
    }

    fn answer(&mut self, ask: Ask, sum: Option<String>) -> Answer {
        let expected = self.bodies.entry(ask.events).or_insert_with(|| stream_body(ask).into_bytes().into());
        Answer { expected: Rc::clone(expected), sum }
    }
}

/// What a vLLM prefill is told: keep the KV for somebody who comes for it.
const KEEP: &str = r#""kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null},"#;

/// A request head for a body of `length`; `lines` are headers besides the usual ones.
pub fn head(lines: &str, length: usize) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: load.test\r\nuser-agent: loadgen\r\naccept: */*\r\n\
         content-type: application/json\r\n{lines}content-length: {length}\r\n\r\n"
    )
}

/// A chat request that begins with `fields`.
fn chat(fields: &str, prompt: &str, stream: bool, max_tokens: u32) -> String {
    format!(
        r#"{{{fields}"model":"load","stream":{stream},"max_tokens":{max_tokens},"messages":[{{"role":"user","content":"{prompt}"}}]}}"#
    )
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::Parser as _;

    use super::*;
    use crate::common::carried;

    #[test]
    fn a_schedule_is_three_numbers_a_line() {
        let line = Line { due: Duration::from_millis(2), body_bytes: 4096, events: 7 };
        assert_eq!(parse("2000 4096 7"), Some(line));
        for wrong in ["", "1 2", "1 2 3 4", "a 2 3", "1,2,3"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn each_line_of_a_schedule_has_its_own_prompt_and_answer() -> anyhow::Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), "0 1000 3\n1500 5000 9\n")?;
        let words = ["loadgen", "--target", "127.0.0.1:1", "--pd", "--schedule"];
        let args = Args::try_parse_from(words.map(OsString::from).into_iter().chain([file.path().into()]))?;
        let plans = Plans::new(&args)?;
        assert_eq!(plans.due.as_deref(), Some(&[Duration::ZERO, Duration::from_micros(1500)][..]));
        for (number, size, events) in [(0, 1000, 3), (1, 5000, 9)] {
            let plan = plans.of(number);
            let body = &plan.request[plan.body_at..];
            assert!((size - 20..=size).contains(&body.len()), "{}", body.len());
            let body: serde_json::Value = serde_json::from_slice(body)?;
            let prompt = body["messages"][0]["content"].as_str().unwrap_or_default();
            assert_eq!(carried(prompt).map(|ask| ask.events), Some(events));
            assert_eq!(
                (plan.events, plan.answer.expected.len()),
                (events, stream_body(Ask { events, ..Ask::default() }).len())
            );
        }
        std::fs::write(file.path(), "2 1000 3\n1 5000 9\n")?;
        assert!(Plans::new(&args).is_err(), "back in time");
        Ok(())
    }
}

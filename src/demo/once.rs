//! `--once`: a few requests of its own, and what came of them.
//!
//! They go out in waves: each takes longer than it takes to send them all, so by the policy (least in flight) every
//! engine gets its share, and one that got none is a problem.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::{timeout, timeout_at};

use super::House;
use super::ask::{Answer, Question, ask};
use super::facts::Line;
use super::screen::Screen;
use super::transcript::{Setting, Told, Transcript};
use super::view::{Names, finished};
use super::welcome::url;
use crate::types::clock::now;

/// Requests of a wave, every other one streamed; waves; tokens of each answer.
const WIDTH: usize = 4;
const WAVES: usize = 2;
const TOKENS: u32 = 12;
/// For an answer, and for the access lines behind them all.
const LIMIT: Duration = Duration::from_secs(20);

/// Whether all was as it should be.
pub(super) async fn run(house: &mut House, screen: &mut Screen, json: bool) -> anyhow::Result<bool> {
    let (mut answers, mut problems) = (Vec::new(), Vec::new());
    for wave in 0..WAVES {
        for answer in ask_wave(house, wave).await {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(error) => problems.push(format!("a request of wave {wave}: {error:#}")),
            }
        }
    }
    let lines = lines(house, answers.len()).await;
    let endpoints = house.endpoints();
    let names = Names::of(&endpoints);
    let mut told = Vec::new();
    for answer in &answers {
        match lines.get(&answer.request_id) {
            Some(line) => told.push(Told::new(answer, line, &names)),
            None => problems.push(format!("request {} is not in the access log", answer.request_id)),
        }
    }
    let (router, admin) = (url(house.front), url(house.admin));
    let setting = Setting { engine: house.wire.as_str(), router, admin, endpoints: &endpoints };
    let transcript = Transcript::new(setting, told, &house.tally, problems);
    let text = if json {
        serde_json::to_string_pretty(&transcript)?
    } else {
        let mut shown: Vec<&Line> = lines.values().collect();
        shown.sort_by(|a, b| a.time.cmp(&b.time));
        let mut shown: Vec<String> = shown.into_iter().map(|line| finished(line, &names)).collect();
        shown.extend(transcript.problems.iter().map(|problem| format!("problem: {problem}")));
        shown.push(if transcript.ok { "ok: every text was right" } else { "not ok" }.to_owned());
        shown.join("\n")
    };
    screen.print(&(text + "\n"))?;
    Ok(transcript.ok)
}

async fn ask_wave(house: &House, wave: usize) -> [anyhow::Result<Answer>; WIDTH] {
    let question = |at| Question::new(&format!("Question {at} of wave {wave}"), TOKENS, at % 2 == 0);
    let questions: [Question; WIDTH] = std::array::from_fn(question);
    let [a, b, c, d] = questions.each_ref().map(|question| async {
        let answer = timeout(LIMIT, ask(house.front, question)).await;
        answer.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer for {LIMIT:?}")))
    });
    tokio::join!(a, b, c, d).into()
}

/// Access lines by request id; they come up to 200 ms after the answer.
async fn lines(house: &mut House, wanted: usize) -> HashMap<String, Line> {
    let (mut lines, until) = (HashMap::new(), now() + LIMIT);
    while lines.len() < wanted
        && let Ok(Some(line)) = timeout_at(until, house.lines.next()).await
    {
        house.tally.add(line.clone());
        lines.insert(line.request_id.clone(), line);
    }
    lines
}

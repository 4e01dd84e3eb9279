//! The document of `--once --json`, and the verdict in it. docs/demo.md has its keys; a test compares.

use serde::Serialize;

use super::ask::Answer;
use super::engines::MODEL;
use super::facts::{Line, Tally};
use super::view::{Names, name};
use crate::admin::EndpointStatus;

#[derive(Debug, Serialize)]
pub(super) struct Transcript {
    pub(super) ok: bool,
    pub(super) problems: Vec<String>,
    engine: &'static str,
    model: &'static str,
    router: String,
    admin: String,
    requests: Vec<Told>,
    pairs: Vec<Pair>,
    endpoints: Vec<Place>,
    ttft_ms: Option<Ttft>,
}

/// One request: what its client got, and what the router's access line says of it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Told {
    request_id: String,
    stream: bool,
    status: u16,
    outcome: String,
    text: &'static str,
    prefill: String,
    decode: String,
    attempts: u32,
    ttft_ms: Option<f64>,
    duration_ms: f64,
}

#[derive(Debug, Serialize)]
struct Pair {
    prefill: String,
    decode: String,
    requests: u64,
}

#[derive(Debug, Serialize)]
struct Place {
    name: String,
    id: String,
    role: String,
    url: String,
    requests: u64,
    in_flight: u64,
}

#[derive(Debug, Serialize)]
struct Ttft {
    median: f64,
    highest: f64,
}

/// Where everything was.
#[derive(Debug)]
pub(super) struct Setting<'a> {
    pub(super) engine: &'static str,
    pub(super) router: String,
    pub(super) admin: String,
    pub(super) endpoints: &'a [EndpointStatus],
}

impl Told {
    pub(super) fn new(answer: &Answer, line: &Line, names: &Names) -> Self {
        Self {
            request_id: line.request_id.clone(),
            stream: line.stream,
            status: answer.status.as_u16(),
            outcome: line.outcome.clone(),
            text: if answer.right { "right" } else { "wrong" },
            prefill: names.get(line.prefill.as_deref()).to_owned(),
            decode: names.get(line.endpoint.as_deref()).to_owned(),
            attempts: line.attempts,
            ttft_ms: line.ttft_us().map(ms),
            duration_ms: ms(line.duration_us),
        }
    }
}

impl Transcript {
    /// `problems`: those that are known already.
    pub(super) fn new(
        setting: Setting<'_>,
        requests: Vec<Told>,
        tally: &Tally,
        mut problems: Vec<String>,
    ) -> Self {
        let names = Names::of(setting.endpoints);
        let endpoints: Vec<Place> = setting.endpoints.iter().map(|e| Place::new(e, tally)).collect();
        problems.extend(requests.iter().filter_map(wrong_request));
        problems.extend(endpoints.iter().filter_map(wrong_place));
        let pair = |((prefill, decode), requests): (&(String, String), &u64)| Pair {
            prefill: names.get(Some(prefill)).to_owned(),
            decode: names.get(Some(decode)).to_owned(),
            requests: *requests,
        };
        let mut pairs: Vec<Pair> = tally.pairs.iter().map(pair).collect();
        pairs.sort_unstable_by(|a, b| (&a.prefill, &a.decode).cmp(&(&b.prefill, &b.decode)));
        let ttft = |(median, highest, _)| Ttft { median: ms(median), highest: ms(highest) };
        Self {
            ok: problems.is_empty(),
            problems,
            engine: setting.engine,
            model: MODEL,
            router: setting.router,
            admin: setting.admin,
            requests,
            pairs,
            endpoints,
            ttft_ms: tally.ttft().map(ttft),
        }
    }
}

impl Place {
    fn new(endpoint: &EndpointStatus, tally: &Tally) -> Self {
        Self {
            name: name(endpoint),
            id: endpoint.id.clone(),
            role: endpoint.role.clone().into_owned(),
            url: endpoint.url.clone(),
            requests: tally.served.get(&endpoint.url).copied().unwrap_or_default(),
            in_flight: endpoint.in_flight,
        }
    }
}

fn wrong_request(told: &Told) -> Option<String> {
    let id = &told.request_id;
    if told.status != 200 || told.outcome != "ok" {
        return Some(format!("request {id}: status {}, outcome {}", told.status, told.outcome));
    }
    (told.text != "right").then(|| format!("request {id}: a text that does not follow from its prompt"))
}

fn wrong_place(place: &Place) -> Option<String> {
    if place.in_flight > 0 {
        return Some(format!("{} still carries {} requests", place.name, place.in_flight));
    }
    (place.requests == 0).then(|| format!("{} served no request", place.name))
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52 microseconds")]
fn ms(us: u64) -> f64 {
    us as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::demo::endpoint;

    fn problems(change: impl FnOnce(&mut Answer, &mut Line, &mut Vec<EndpointStatus>)) -> Vec<String> {
        let mut answer = Answer { request_id: "r".to_owned(), status: StatusCode::OK, right: true };
        let (prefill, decode) = (Some("http://p".to_owned()), Some("http://d".to_owned()));
        let mut line = Line { outcome: "ok".to_owned(), prefill, endpoint: decode, ..Line::default() };
        line.request_id = "r".to_owned();
        let mut endpoints = vec![endpoint("1", "prefill", "http://p"), endpoint("2", "decode", "http://d")];
        change(&mut answer, &mut line, &mut endpoints);
        let names = Names::of(&endpoints);
        let mut tally = Tally::default();
        tally.add(line.clone());
        let setting =
            Setting { engine: "vllm", router: String::new(), admin: String::new(), endpoints: &endpoints };
        let transcript =
            Transcript::new(setting, vec![Told::new(&answer, &line, &names)], &tally, Vec::new());
        assert_eq!(transcript.ok, transcript.problems.is_empty());
        transcript.problems
    }

    #[test]
    fn everything_that_is_not_as_it_should_be_is_a_problem() {
        assert_eq!(problems(|_, _, _| {}), Vec::<String>::new());
        let says = |problems: Vec<String>, what: &str| {
            assert!(problems.len() == 1 && problems[0].contains(what), "{what}: {problems:?}");
        };
        says(problems(|answer, _, _| answer.right = false), "does not follow from its prompt");
        says(problems(|answer, _, _| answer.status = StatusCode::BAD_GATEWAY), "status 502");
        says(problems(|_, _, all| all[1].in_flight = 1), "D2 still carries 1");
        says(problems(|_, line, _| line.prefill = None), "P1 served no request");
        // Bad outcomes are not served either: one problem for the request, one for each engine.
        assert_eq!(problems(|_, line, _| line.outcome = "upstream_error".to_owned()).len(), 3);
    }
}

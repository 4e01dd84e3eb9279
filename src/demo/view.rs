//! What is shown while it runs: a table, or lines. Both say the same facts: the endpoints as `GET /endpoints` has them, and
//! the access lines.

use std::collections::BTreeMap;

use super::facts::{Line, Tally};
use crate::admin::EndpointStatus;

/// Everything there is to show at one moment.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) endpoints: &'a [EndpointStatus],
    pub(super) tally: &'a Tally,
    /// Own requests whose text was right, and wrong; none without own traffic.
    pub(super) texts: Option<(u64, u64)>,
    /// Origins of engines that were killed.
    pub(super) dead: Vec<String>,
}

/// Short names: the role's letter and the id, which is what `PUT /endpoints/{id}/drain` takes.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<String, String>);

impl Names {
    /// One that has left takes no orders: another at its address has the name.
    pub(super) fn of(endpoints: &[EndpointStatus]) -> Self {
        let (gone, there): (Vec<_>, Vec<_>) = endpoints.iter().partition(|e| e.gone);
        Self(gone.into_iter().chain(there).map(|e| (e.url.clone(), name(e))).collect())
    }

    /// `-` where there is none.
    pub(super) fn get(&self, url: Option<&str>) -> &str {
        url.and_then(|url| self.0.get(url)).map_or("-", String::as_str)
    }
}

pub(super) fn name(endpoint: &EndpointStatus) -> String {
    let letter = endpoint.role.chars().next().unwrap_or('?').to_ascii_uppercase();
    format!("{letter}{}", endpoint.id)
}

/// By role, then by id: P1, P2, D3, D4.
pub(super) fn sorted(mut endpoints: Vec<EndpointStatus>) -> Vec<EndpointStatus> {
    let id = |e: &EndpointStatus| e.id.parse::<u64>().unwrap_or(u64::MAX);
    endpoints.sort_by(|a, b| b.role.cmp(&a.role).then(id(a).cmp(&id(b))));
    endpoints
}

/// What it does for new requests, in a word or two.
fn state(endpoint: &EndpointStatus, dead: bool) -> &'static str {
    match endpoint {
        _ if dead => "killed",
        EndpointStatus { gone: true, .. } => "has left",
        EndpointStatus { draining: true, in_flight: 0, .. } => "drained",
        EndpointStatus { draining: true, .. } => "draining",
        EndpointStatus { selectable: false, .. } => "out",
        EndpointStatus { ejected: true, .. } => "last choice",
        _ => "serving",
    }
}

impl Facts<'_> {
    pub(super) fn state(&self, endpoint: &EndpointStatus) -> &'static str {
        state(endpoint, self.dead.contains(&endpoint.url))
    }

    fn served(&self, endpoint: &EndpointStatus) -> u64 {
        self.tally.served.get(&endpoint.url).copied().unwrap_or_default()
    }

    /// For a terminal.
    pub(super) fn table(&self) -> Vec<String> {
        let names = Names::of(self.endpoints);
        let mut lines = vec![format!(
            "{:<8}{:<9}{:<24}{:<13}{:>9}{:>8}",
            "engine", "role", "address", "state", "in flight", "served"
        )];
        for e in self.endpoints {
            let (name, state) = (name(e), self.state(e));
            let (flying, served) = (e.in_flight, self.served(e));
            lines.push(format!("{name:<8}{:<9}{:<24}{state:<13}{flying:>9}{served:>8}", e.role, e.url));
        }
        lines.push(String::new());
        let sums = [("pairs", self.pairs(&names))].into_iter().chain(self.sums());
        lines.extend(sums.map(|(what, sum)| format!("{what:<10}{sum}")));
        lines.push(String::new());
        lines.extend(self.tally.recent.iter().map(|line| finished(line, &names)));
        lines
    }

    /// One line for where there is no terminal.
    pub(super) fn summary(&self) -> String {
        let engines =
            self.endpoints.iter().map(|e| format!("{} {}/{}", name(e), e.in_flight, self.served(e)));
        let engines: Vec<String> = engines.collect();
        let sums: Vec<String> = self.sums().map(|(what, sum)| format!("; {what}: {sum}")).collect();
        format!("in flight/served: {}{}", engines.join(", "), sums.concat())
    }

    fn pairs(&self, names: &Names) -> String {
        let pair = |((prefill, decode), count): (&(String, String), &u64)| {
            format!("{}→{} {count}", names.get(Some(prefill)), names.get(Some(decode)))
        };
        let mut pairs: Vec<String> = self.tally.pairs.iter().map(pair).collect();
        pairs.sort_unstable();
        if pairs.is_empty() { "none yet".to_owned() } else { pairs.join("   ") }
    }

    /// Each with its name; those of which there is nothing are left out.
    fn sums(&self) -> impl Iterator<Item = (&'static str, String)> {
        let outcomes = self.tally.outcomes.iter().map(|(outcome, count)| format!("{count} {outcome}"));
        let outcomes: Vec<String> = outcomes.collect();
        let requests = if outcomes.is_empty() { "none over yet".to_owned() } else { outcomes.join(", ") };
        let retries = (self.tally.retries > 0).then(|| self.tally.retries.to_string());
        let ttft = self.tally.ttft().map(|(median, highest, of)| {
            format!("median {}, highest {}, of the last {of} streams", ms(median), ms(highest))
        });
        let texts = self.texts.map(|(right, wrong)| format!("{right} right, {wrong} wrong"));
        let sums = [("requests", Some(requests)), ("retries", retries), ("TTFT", ttft), ("own texts", texts)];
        sums.into_iter().filter_map(|(what, sum)| Some((what, sum?)))
    }
}

/// `12:03:04.123  P1→D4  stream  200 ok  TTFT 96 ms  took 812 ms (prefill 61 ms, decode 34 ms)`: what a narrow terminal cuts
/// off comes last.
pub(super) fn finished(line: &Line, names: &Names) -> String {
    let time = line.time.split_once('T').map_or("", |(_, time)| time.trim_end_matches('Z'));
    let pair = format!("{}→{}", names.get(line.prefill.as_deref()), names.get(line.endpoint.as_deref()));
    let kind = match line.route.as_str() {
        "chat_completions" | "completions" if line.stream => "stream",
        "chat_completions" | "completions" => "plain",
        other => other,
    };
    let mut said = format!("{time}  {pair:<6} {kind:<7} {} {}", line.status, line.outcome);
    if let Some(error) = &line.error {
        said = format!("{said} ({error})");
    }
    if let Some(ttft) = line.ttft_us() {
        said = format!("{said}  TTFT {}", ms(ttft));
    }
    said = format!("{said}  took {}", ms(line.duration_us));
    let legs = [("prefill", line.prefill_us), ("hand-over", line.handoff_us), ("decode", line.decode_us)];
    let legs = legs.into_iter().filter_map(|(leg, us)| Some(format!("{leg} {}", ms(us?))));
    let legs: Vec<String> = legs.collect();
    if !legs.is_empty() {
        said = format!("{said} ({})", legs.join(", "));
    }
    if let Some(retried) = &line.retried {
        said = format!("{said}  retried: {retried}");
    }
    said
}

/// Microseconds for people.
fn ms(us: u64) -> String {
    let (ms, tenths) = (us / 1000, us % 1000 / 100);
    if ms < 10 { format!("{ms}.{tenths} ms") } else { format!("{ms} ms") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(id: &str, role: &'static str) -> EndpointStatus {
        crate::demo::endpoint(id, role, &format!("http://e{id}"))
    }

    fn four() -> Vec<EndpointStatus> {
        sorted(vec![
            endpoint("3", "decode"),
            endpoint("10", "prefill"),
            endpoint("2", "prefill"),
            endpoint("4", "decode"),
        ])
    }

    fn line() -> Line {
        Line {
            time: "2026-11-29T20:38:00.123Z".to_owned(),
            route: "chat_completions".to_owned(),
            prefill: Some("http://e2".to_owned()),
            endpoint: Some("http://e4".to_owned()),
            stream: true,
            status: 200,
            outcome: "ok".to_owned(),
            attempts: 1,
            ttfb_us: Some(96_400),
            prefill_us: Some(61_000),
            handoff_us: Some(120),
            duration_us: 812_000,
            ..Line::default()
        }
    }

    #[test]
    fn names_are_role_and_id_in_that_order() {
        assert_eq!(four().iter().map(name).collect::<Vec<_>>(), ["P2", "P10", "D3", "D4"]);
    }

    #[test]
    fn a_finished_request_is_one_line_of_what_is_known() {
        let names = Names::of(&four());
        assert_eq!(
            finished(&line(), &names),
            "20:38:00.123  P2→D4  stream  200 ok  TTFT 96 ms  took 812 ms (prefill 61 ms, hand-over 0.1 ms)"
        );
        let unknown = Line { route: "models".to_owned(), ..Line::default() };
        assert!(finished(&unknown, &names).contains("-→-    models"), "{}", finished(&unknown, &names));
    }

    #[test]
    fn a_withdrawn_engine_drains_and_then_is_drained() {
        let mut e = endpoint("1", "decode");
        assert_eq!(state(&e, false), "serving");
        (e.draining, e.selectable, e.in_flight) = (true, false, 2);
        assert_eq!(state(&e, false), "draining");
        e.in_flight = 0;
        assert_eq!((state(&e, false), state(&e, true)), ("drained", "killed"));
    }

    #[test]
    fn one_that_has_left_gives_its_name_up_and_shows_what_it_carries() {
        let mut left = endpoint("2", "decode");
        (left.gone, left.selectable, left.in_flight) = (true, false, 1);
        let there = EndpointStatus { url: left.url.clone(), ..endpoint("5", "decode") };
        for endpoints in [[left.clone(), there.clone()], [there, left.clone()]] {
            assert_eq!(Names::of(&endpoints).get(Some(&left.url)), "D5");
            let facts =
                Facts { endpoints: &endpoints, tally: &Tally::default(), texts: None, dead: Vec::new() };
            let table = facts.table().join("\n");
            assert!(
                table.contains("D2      decode   http://e2               has left             1"),
                "{table}"
            );
        }
    }

    #[test]
    fn the_table_has_every_engine_the_pairs_and_the_last_requests() {
        let (endpoints, mut tally) = (four(), Tally::default());
        tally.add(line());
        let facts = Facts { endpoints: &endpoints, tally: &tally, texts: Some((1, 0)), dead: Vec::new() };
        let table = facts.table().join("\n");
        for part in [
            "D4      decode   http://e4               serving              0       1",
            "pairs     P2→D4 1",
            "requests  1 ok\nTTFT      median 96 ms, highest 96 ms, of the last 1 streams\nown texts 1 right, 0 wrong",
        ] {
            assert!(table.contains(part), "{part:?} in\n{table}");
        }
        assert!(
            facts
                .summary()
                .starts_with("in flight/served: P2 0/1, P10 0/0, D3 0/0, D4 0/1; requests: 1 ok; TTFT: ")
        );
    }
}

//! What is not as it should be, and the document of `--canary --once --json`. docs/demo.md has its keys; a test compares.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::House;
use super::super::engines::MODEL;
use super::super::welcome::url;
use super::clients::{Clients, WIDTH};
use super::course::Row;
use super::{RELEASES, REQUESTS};

/// So many standard deviations are never seen by chance.
const DEVIATIONS: f64 = 5.0;

#[derive(Debug, Serialize)]
pub(super) struct Transcript {
    pub(super) ok: bool,
    problems: Vec<String>,
    engine: &'static str,
    model: &'static str,
    router: String,
    admin: String,
    steps: Vec<Told>,
    right: u64,
    failed: u64,
}

type ByRelease<T> = BTreeMap<&'static str, T>;

#[derive(Debug, Serialize)]
struct Told {
    step: &'static str,
    version: u64,
    weights: ByRelease<Option<u64>>,
    target: ByRelease<f64>,
    observed: ByRelease<Option<f64>>,
    prefills: ByRelease<u64>,
    decodes: ByRelease<u64>,
    crossed: u64,
    failed: u64,
}

impl Told {
    fn new(row: &Row) -> Self {
        Self {
            step: row.what,
            version: row.version,
            weights: by_release(row.weights),
            target: by_release(row.target),
            observed: by_release(row.observed),
            prefills: by_release(row.count.prefills),
            decodes: by_release(row.count.decodes),
            crossed: row.count.crossed,
            failed: row.failed,
        }
    }
}

fn by_release<T>(values: [T; 2]) -> ByRelease<T> {
    RELEASES.iter().map(|release| release.revision).zip(values).collect()
}

impl Transcript {
    /// `problems`: those that are known already.
    pub(super) fn new(house: &House, rows: &[Row], clients: &Clients, mut problems: Vec<String>) -> Self {
        problems.extend(rows.iter().flat_map(wrong));
        let (right, failed) = (clients.right(), clients.failed());
        problems.extend(missing(rows, right, failed, clients.why()));
        Self {
            ok: problems.is_empty(),
            problems,
            engine: house.wire.as_str(),
            model: MODEL,
            router: url(house.front),
            admin: url(house.admin),
            steps: rows.iter().map(Told::new).collect(),
            right,
            failed,
        }
    }

    pub(super) fn last_lines(&self) -> Vec<String> {
        let mut lines: Vec<String> =
            self.problems.iter().map(|problem| format!("problem: {problem}")).collect();
        lines.push(if self.ok {
            format!(
                "ok: {} requests, every share as its weight, no pair of two releases, none failed",
                self.right
            )
        } else {
            "not ok".to_owned()
        });
        lines
    }
}

/// Of all steps: what failed, and what the engines do not know of.
fn missing(rows: &[Row], right: u64, failed: u64, why: Option<String>) -> Vec<String> {
    let mut problems = Vec::new();
    if failed > 0 {
        problems.push(format!("{failed} requests failed, the first: {}", why.unwrap_or_default()));
    }
    let both: u64 = rows.iter().map(|row| row.count.paired + row.count.crossed).sum();
    if both < right {
        problems.push(format!("{right} requests were answered, the engines recorded both legs of {both}"));
    }
    problems
}

/// Everything of one step.
fn wrong(row: &Row) -> Vec<String> {
    let mut problems = Vec::new();
    let mut say = |what: String| problems.push(format!("{} ({}): {what}", row.what, row.version));
    let total = row.count.requests();
    if total < REQUESTS {
        say(format!("{total} requests in time, not {REQUESTS}"));
    }
    if row.count.crossed > 0 {
        say(format!("{} requests were served by two releases", row.count.crossed));
    }
    for (n, release) in RELEASES.iter().enumerate() {
        let share = row.target[n];
        for (role, got) in [("prefills", row.count.prefills), ("decodes", row.count.decodes)] {
            let of: u64 = got.iter().sum();
            if !is_share(got[n] as f64, of, share, 0.0) {
                say(format!("{} of {of} {role} at {}, its share is {share}", got[n], release.revision));
            }
        }
        // Requests that were being decided when the split changed may be counted under the one or the other.
        let observed = row.observed[n].unwrap_or_default() * row.decided as f64;
        if !is_share(observed, row.decided, share, WIDTH as f64) {
            say(format!("the router counts {observed:.0} of {} at {}", row.decided, release.revision));
        }
    }
    problems
}

/// Within the deviations that chance allows; of a share of nothing or all: exactly.
fn is_share(count: f64, of: u64, share: f64, slack: f64) -> bool {
    let of = of as f64;
    (count - of * share).abs() <= DEVIATIONS * (of * share * (1.0 - share)).sqrt() + slack + 1e-6
}

#[cfg(test)]
mod tests {
    use super::super::course::Row;
    use super::super::witness::Count;
    use super::*;

    /// 250 requests at 90/10.
    fn row() -> Row {
        Row {
            what: "canary",
            version: 2,
            weights: [Some(90), Some(10)],
            target: [0.9, 0.1],
            observed: [Some(0.92), Some(0.08)],
            decided: 250,
            count: Count { prefills: [228, 22], decodes: [228, 22], paired: 250, crossed: 0 },
            failed: 0,
        }
    }

    fn problems(change: impl FnOnce(&mut Row)) -> Vec<String> {
        let mut row = row();
        change(&mut row);
        wrong(&row)
    }

    #[test]
    fn a_share_that_chance_does_not_explain_is_a_problem() {
        assert_eq!(problems(|_| {}), Vec::<String>::new());
        // 5 deviations of 250 at a tenth are 23.7.
        assert_eq!(problems(|row| row.count.decodes = [202, 48]), Vec::<String>::new());
        let off = problems(|row| row.count.decodes = [200, 50]);
        assert!(off.len() == 2 && off[1].contains("50 of 250 decodes at r2"), "{off:?}");
        assert_eq!(problems(|row| row.count.prefills = [250, 0]).len(), 2);
        assert_eq!(problems(|row| row.observed = [Some(0.8), Some(0.2)]), Vec::<String>::new());
        let off = problems(|row| row.observed = [Some(0.7), Some(0.3)]);
        assert!(off.len() == 2 && off[1].contains("the router counts 75 of 250 at r2"), "{off:?}");
    }

    #[test]
    fn zero_is_zero_and_the_rest_is_counted_too() {
        let all = |row: &mut Row| {
            (row.target, row.observed) = ([1.0, 0.0], [Some(1.0), Some(0.0)]);
            (row.count.prefills, row.count.decodes) = ([250, 0], [250, 0]);
        };
        assert_eq!(problems(all), Vec::<String>::new());
        let one = problems(|row| {
            all(row);
            row.count.decodes = [249, 1];
        });
        assert!(
            one.iter().any(|problem| problem.contains("1 of 250 decodes at r2, its share is 0")),
            "{one:?}"
        );
        let crossed = problems(|row| row.count.crossed = 1);
        assert!(crossed.len() == 1 && crossed[0].contains("1 requests were served by two releases"));
        let few = problems(|row| row.count.decodes = [180, 19]);
        assert!(few[0].contains("199 requests in time, not 200"), "{few:?}");
    }

    #[test]
    fn a_failed_request_and_one_that_the_engines_do_not_know_are_problems() {
        assert_eq!(missing(&[row(), row()], 500, 0, None), Vec::<String>::new());
        let failed = missing(&[row()], 250, 1, Some("status 503".to_owned()));
        assert_eq!(failed, ["1 requests failed, the first: status 503"]);
        let unknown = missing(&[row()], 251, 0, None);
        assert!(unknown.len() == 1 && unknown[0].contains("both legs of 250"), "{unknown:?}");
    }
}

//! The table of each service.

use super::super::table::Table;
use crate::admin::{CohortMembers, CohortShare, CohortView, Members, RolloutView, ServiceSplit, SplitView};

/// A cohort's row: what it should get and got, and who is there.
type Row<'a> = (&'a CohortShare, Option<&'a CohortMembers>);

/// What stands in a column that only some services have; `None` where there is nothing to say.
type Cell = fn(Row<'_>) -> Option<String>;

pub(super) fn text(split: &SplitView, cohorts: &CohortView) -> String {
    let of = |service: &ServiceSplit| {
        let known = cohorts.services.iter().find(|known| known.service == service.service);
        one(service, known.map_or(&[], |known| &known.cohorts))
    };
    split.services.iter().map(of).collect::<Vec<_>>().join("\n")
}

fn one(service: &ServiceSplit, members: &[CohortMembers]) -> String {
    let of = |share: &CohortShare| members.iter().find(|members| members.cohort == share.cohort);
    let rows: Vec<Row<'_>> = service.cohorts.iter().map(|share| (share, of(share))).collect();
    let some: [(&str, Cell); 5] = [
        ("PREFILL", |(_, m)| there(&m?.prefill)),
        ("DECODE", |(_, m)| there(&m?.decode)),
        ("MIXED", |(_, m)| there(&m?.mixed)),
        ("PAIRS", |(_, m)| pairs(m?)),
        ("PASSED ON", |(s, _)| passed_on(s)),
    ];
    let used: Vec<_> =
        some.into_iter().filter(|(_, cell)| rows.iter().any(|row| cell(*row).is_some())).collect();
    let mut head =
        vec!["COHORT", "WEIGHT", "TARGET", "1 MIN", "5 MIN", "SINCE VERSION", "REQUESTS", "COVERED"];
    head.extend(used.iter().map(|(name, _)| name));
    let mut table = Table::new(&head);
    for row in &rows {
        let (share, _) = row;
        let mut cells = vec![
            share.cohort.clone(),
            share.weight.to_string(),
            percent(Some(share.target_share)),
            percent(share.share_1m),
            percent(share.share_5m),
            percent(share.share_since_version),
            share.requests_since_version.to_string(),
            share.lacks.as_ref().map_or_else(|| "yes".to_owned(), |why| format!("NO: {why}")),
        ];
        cells.extend(used.iter().map(|(_, cell)| cell(*row).unwrap_or_else(|| "-".to_owned())));
        table.row(cells);
    }
    let volatile = if service.volatile { " (volatile)" } else { "" };
    let none = if service.source == "none" { ": cohorts are weighted by what they can carry" } else { "" };
    let rollout = service.rollout.as_ref().map(rollout).unwrap_or_default();
    let ServiceSplit { service, version, source, .. } = service;
    format!("{service}: version {version}, source {source}{volatile}{none}\n{rollout}{table}")
}

/// Where its weights come from, and what is wrong with that.
fn rollout(of: &RolloutView) -> String {
    let RolloutView { object, version, known, problem } = of;
    let followed = match (known, version) {
        (false, _) => "not read yet: nobody is served".to_owned(),
        (true, 0) => "gives no weights".to_owned(),
        (true, version) => format!("followed at version {version}"),
    };
    let problem = problem.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
    format!("InferenceService {object}: {followed}{problem}\n")
}

/// Selectable ones of all.
fn there(members: &Members) -> Option<String> {
    (members.total > 0).then(|| format!("{}/{}", members.selectable, members.total))
}

/// By token, where there are tokens.
fn pairs(members: &CohortMembers) -> Option<String> {
    let pair = |of: &crate::admin::TokenPairs| match &*of.token {
        "" => of.pairs.to_string(),
        token => format!("{token} {}", of.pairs),
    };
    let pairs: Vec<String> = members.tokens.iter().map(pair).collect();
    (!pairs.is_empty()).then(|| pairs.join(", "))
}

fn passed_on(share: &CohortShare) -> Option<String> {
    let all: Vec<String> = share.passed_on.iter().map(|(why, n)| format!("{n} {why}")).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1}%", share * 100.0))
}

//! Rows for people, and what is printed first.

use std::time::Duration;

use super::super::engines::MODEL;
use super::clients::Clients;
use super::course::{Course, Row};
use super::{RELEASES, STEP};
use crate::engine::Wire;

/// A head and a line for each split: what the router says, then what the engines recorded, and what the clients met.
pub(super) fn table(rows: &[Row]) -> Vec<String> {
    let mut lines = vec![head()];
    lines.extend(rows.iter().map(line));
    lines
}

fn head() -> String {
    columns(["step", "v", "weights", "target", "observed", "prefills", "decodes", "crossed", "failed"])
}

fn line(row: &Row) -> String {
    let Row { count, .. } = row;
    let weight = |weight: Option<u64>| weight.map_or_else(|| "-".to_owned(), |weight| weight.to_string());
    let [version, crossed, failed] = [row.version, count.crossed, row.failed].map(|n| n.to_string());
    columns([
        row.what,
        &version,
        &row.weights.map(weight).join("/"),
        &row.target.map(|share| percent(Some(share))).join(" "),
        &row.observed.map(percent).join(" "),
        &count.prefills.map(|n| n.to_string()).join("/"),
        &count.decodes.map(|n| n.to_string()).join("/"),
        &crossed,
        &failed,
    ])
}

fn columns(
    [step, version, weights, target, observed, prefills, decodes, crossed, failed]: [&str; 9],
) -> String {
    let line = format!(
        "{step:<8} {version:<2} {weights:<8} {target:<11} {observed:<11} {prefills:<9} {decodes:<9} {crossed:<7} {failed}"
    );
    line.trim_end().to_owned()
}

/// Whole ones without their zero.
fn percent(share: Option<f64>) -> String {
    let shown = share.map(|share| format!("{:.1}", share * 100.0));
    shown.map_or_else(|| "-".to_owned(), |text| format!("{}%", text.trim_end_matches(".0")))
}

/// For a terminal. `left`: until the next step.
pub(super) fn screen(course: &Course, left: Option<Duration>, clients: Option<&Clients>) -> Vec<String> {
    let mut lines = table(&course.rows());
    lines.push(String::new());
    if let Some(clients) = clients {
        lines.push(format!("own requests: {} right, {} failed", clients.right(), clients.failed()));
    }
    lines.push(match (course.following(), left) {
        (Some(next), Some(left)) => {
            let [one, two] = next.weights;
            format!("next: {}, {one}/{two}, in {} s", next.what, left.as_secs() + 1)
        }
        _ if course.is_by_hand() => "moved by hand: the demo moves it no more".to_owned(),
        _ => "nothing moves by itself any more: try `tandem split`".to_owned(),
    });
    lines
}

/// For where there is no terminal: a line for each split that is over, and for each that begins. `told`: the last one.
pub(super) fn news(course: &Course, told: &mut u64) -> String {
    let rows = course.rows();
    let mut text = if *told == 0 { head() + "\n" } else { String::new() };
    for pair in rows.windows(2).filter(|pair| pair[0].version >= *told && pair[1].version > *told) {
        text.push_str(&(line(&pair[0]) + "\n"));
    }
    let Some(last) = rows.last().filter(|last| last.version > *told) else { return String::new() };
    *told = last.version;
    let weights = RELEASES.iter().zip(last.weights);
    let weights = weights.map(|(release, w)| format!("{} {}", release.revision, w.unwrap_or_default()));
    format!("{text}{}: {} from now on\n", last.what, weights.collect::<Vec<_>>().join(", "))
}

/// Everything, ended by a blank line. `moves`: by itself.
pub(super) fn welcome(wire: Wire, front: &str, admin: &str, moves: bool) -> String {
    let wire = match wire {
        Wire::Sglang => "SGLang",
        Wire::Vllm => "vLLM",
    };
    let [one, two] = RELEASES;
    let how = if moves {
        format!(
            "Every {} s the weights move, as `PUT /split` moves them, until somebody else does:",
            STEP.as_secs()
        )
    } else {
        "Nothing moves by itself:".to_owned()
    };
    format!(
        r"A Tandem router with two releases of its engines: {r1} (pairing token {t1}) and {r2} ({t2}), two prefills and two decodes
each. They speak {wire}'s HTTP and have no model. Ctrl-C ends everything.

router    {front}   model: {MODEL}
admin     {admin}   /observer/split /observer/cohorts /endpoints

{how}

tandem split demo --admin {admin}
tandem split demo --set {r1}=90,{r2}=10 --admin {admin}
tandem split demo --reset --admin {admin}

Below, {r1} and {r2} in each column. Weights and shares are the router's word, prefills and decodes what the engines recorded;
crossed: requests that they served as a pair of two releases.

",
        r1 = one.revision,
        t1 = one.token,
        r2 = two.revision,
        t2 = two.token,
    )
}

#[cfg(test)]
mod tests {
    use super::super::witness::Count;
    use super::*;

    #[test]
    fn a_row_fits_a_narrow_terminal_and_says_all_of_it() {
        let row = Row {
            what: "by hand",
            version: 2,
            weights: [Some(90), Some(10)],
            target: [0.9, 0.1],
            observed: [Some(0.905), None],
            decided: 210,
            count: Count { prefills: [190, 20], decodes: [189, 21], paired: 210, crossed: 3 },
            failed: 4,
        };
        let table = table(&[row]);
        assert_eq!(
            table[0],
            "step     v  weights  target      observed    prefills  decodes   crossed failed"
        );
        assert_eq!(table[1], "by hand  2  90/10    90% 10%     90.5% -     190/20    189/21    3       4");
        assert!(table.iter().all(|line| line.chars().count() <= 80));
        assert_eq!(percent(Some(1.0 / 3.0)), "33.3%");
        assert_eq!(percent(Some(1.0)), "100%");
    }
}

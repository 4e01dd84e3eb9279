//! `tandem endpoints`: which engines a running router knows, and why one gets no requests.

use clap::Args;
use serde_json::Value;

use super::admin::{Admin, Output, fleet};
use super::exit::{Exit, show};
use super::help;
use super::table::{Table, age};
use crate::admin::{EndpointStatus, Fleet, PodStatus};

/// Show the endpoints of a running router, and why one gets no requests
#[derive(Debug, Args)]
#[command(after_help = help::ENDPOINTS, after_long_help = help::ENDPOINTS)]
pub(super) struct Endpoints {
    #[command(flatten)]
    admin: Admin,
    /// Form of the result on standard output
    #[arg(long, value_enum, default_value_t = Output::Table, value_name = "FORM")]
    output: Output,
}

impl Endpoints {
    pub(super) fn run(&self) -> Exit {
        let document: Value = match self.admin.get("/endpoints") {
            Ok(document) => document,
            Err(error) => return error.report(&self.admin),
        };
        if self.output == Output::Json {
            return show(&format!("{document:#}\n"));
        }
        match fleet(&document) {
            Ok(mut fleet) => {
                let endpoints = &mut fleet.endpoints;
                endpoints.sort_by(|a, b| (&a.service, order(a), &a.url).cmp(&(&b.service, order(b), &b.url)));
                show(&text(&fleet))
            }
            Err(error) => error.report(&self.admin),
        }
    }
}

/// Roles in the order in which a request meets them.
fn order(endpoint: &EndpointStatus) -> usize {
    ["prefill", "decode"].iter().position(|role| *role == endpoint.role).unwrap_or(2)
}

/// What stands in a column that only some fleets have.
type Cell = fn(&EndpointStatus) -> Option<&String>;

fn text(fleet: &Fleet) -> String {
    let some: [(&str, Cell); 3] = [
        ("POD", |e| e.pod.as_ref()),
        ("REVISION", |e| e.revision.as_ref()),
        ("TOKEN", |e| e.pairing_token.as_ref()),
    ];
    let used: Vec<_> =
        some.into_iter().filter(|(_, cell)| fleet.endpoints.iter().any(|e| cell(e).is_some())).collect();
    let mut head = vec!["ID", "SERVICE", "ROLE", "URL", "SELECTABLE", "SINCE", "IN FLIGHT"];
    head.extend(used.iter().map(|(name, _)| name));
    head.push("NOTE");
    let mut table = Table::new(&head);
    for e in &fleet.endpoints {
        let selectable = if e.selectable { "yes" } else { "NO" };
        let mut row = vec![
            e.id.clone(),
            e.service.clone(),
            e.role.to_string(),
            e.url.clone(),
            selectable.to_owned(),
            age(e.since_s),
            e.in_flight.to_string(),
        ];
        row.extend(used.iter().map(|(_, cell)| cell(e).cloned().unwrap_or_else(|| "-".to_owned())));
        row.push(note(e));
        table.row(row);
    }
    let pods = if fleet.pods.is_empty() { String::new() } else { format!("\n{}", without(&fleet.pods)) };
    format!("{table}{pods}")
}

/// Why it gets no requests, or gets them last; and what its engine is being asked.
fn note(e: &EndpointStatus) -> String {
    let mut note = match (&e.reason, e.ejected) {
        (Some(reason), _) => reason.to_string(),
        (None, true) => "put last after failures".to_owned(),
        (None, false) => String::new(),
    };
    if let Some(detail) = &e.detail {
        note = format!("{note}: {detail}");
    }
    if e.gone {
        note.push_str("; has left");
    }
    if e.lane.busy {
        note.push_str("; being asked");
        if e.lane.waiting > 0 {
            note = format!("{note}, {} more behind", e.lane.waiting);
        }
    }
    note.trim_start_matches("; ").to_owned()
}

/// Pods that give no endpoint.
fn without(pods: &[PodStatus]) -> String {
    let mut table = Table::new(&["SERVICE", "POD WITHOUT ENDPOINT", "SINCE", "NOTE"]);
    for pod in pods {
        let note = match &pod.detail {
            Some(detail) => format!("{}: {detail}", pod.reason),
            None => pod.reason.to_string(),
        };
        let name = format!("{}/{}", pod.namespace, pod.name);
        table.row([pod.service.clone(), name, age(pod.since_s), note]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::LaneStatus;

    fn endpoint() -> EndpointStatus {
        EndpointStatus {
            id: "7".to_owned(),
            service: "chat".to_owned(),
            url: "http://10.0.0.7:8000".to_owned(),
            role: "prefill".into(),
            selectable: true,
            since_s: 3700,
            ..EndpointStatus::default()
        }
    }

    fn fleet(endpoints: Vec<EndpointStatus>) -> Fleet {
        Fleet { snapshot: 1, endpoints, pods: vec![] }
    }

    #[test]
    fn columns_that_nobody_fills_are_left_out() {
        let head = "ID  SERVICE  ROLE     URL                   SELECTABLE  SINCE  IN FLIGHT  NOTE\n";
        let row = "7   chat     prefill  http://10.0.0.7:8000  yes         1h1m   0\n";
        assert_eq!(text(&fleet(vec![endpoint()])), format!("{head}{row}"));
        let pod = EndpointStatus {
            pod: Some("llm/p-0".to_owned()),
            pairing_token: Some("kv-2".to_owned()),
            ..endpoint()
        };
        let shown = text(&fleet(vec![endpoint(), pod]));
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[0].ends_with("IN FLIGHT  POD      TOKEN  NOTE"), "{shown}");
        assert!(lines[1].ends_with("0          -        -"), "{shown}");
        assert!(lines[2].ends_with("0          llm/p-0  kv-2"), "{shown}");
    }

    #[test]
    fn a_note_says_why_and_what_goes_on() {
        let out = |reason: &'static str| EndpointStatus {
            selectable: false,
            reason: Some(reason.into()),
            ..endpoint()
        };
        let detail = Some("GET /v1/models: status 503".to_owned());
        let lane = LaneStatus { busy: true, waiting: 2 };
        for (endpoint, said) in [
            (endpoint(), ""),
            (EndpointStatus { ejected: true, ..endpoint() }, "put last after failures"),
            (EndpointStatus { gone: true, ..out("deleted") }, "deleted; has left"),
            (
                EndpointStatus { detail: detail.clone(), ..out("probing") },
                "probing: GET /v1/models: status 503",
            ),
            (EndpointStatus { lane, ..out("probing") }, "probing; being asked, 2 more behind"),
            (EndpointStatus { lane: LaneStatus { busy: true, waiting: 0 }, ..endpoint() }, "being asked"),
        ] {
            assert_eq!(note(&endpoint), said);
        }
    }

    #[test]
    fn pods_without_endpoint_have_a_table_of_their_own() {
        let pods = vec![PodStatus {
            service: "chat".to_owned(),
            namespace: "llm".to_owned(),
            name: "p-1".to_owned(),
            uid: "u".to_owned(),
            reason: "no_port".into(),
            detail: Some("no container declares port 8000".to_owned()),
            since_s: 61,
        }];
        let shown = text(&Fleet { pods, ..fleet(vec![endpoint()]) });
        let row = "chat     llm/p-1               1m1s   no_port: no container declares port 8000\n";
        assert!(
            shown.contains("\n\nSERVICE  POD WITHOUT ENDPOINT  SINCE  NOTE\n") && shown.ends_with(row),
            "{shown}"
        );
    }
}

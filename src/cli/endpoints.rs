//! `tandem endpoints`: which engines a running router knows, and why one gets no requests.

use clap::Args;
use serde_json::Value;

use super::admin::{Admin, Output, listed};
use super::exit::{Exit, show};
use super::help;
use super::table::Table;
use crate::admin::EndpointStatus;

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
        match listed(&document) {
            Ok(mut endpoints) => {
                endpoints.sort_by(|a, b| (&a.service, order(a), &a.url).cmp(&(&b.service, order(b), &b.url)));
                show(&text(&endpoints))
            }
            Err(error) => error.report(&self.admin),
        }
    }
}

/// Roles in the order in which a request meets them.
fn order(endpoint: &EndpointStatus) -> usize {
    ["prefill", "decode"].iter().position(|role| *role == endpoint.role).unwrap_or(2)
}

fn text(endpoints: &[EndpointStatus]) -> String {
    let mut table = Table::new(&["ID", "SERVICE", "ROLE", "URL", "SELECTABLE", "IN FLIGHT", "NOTE"]);
    for e in endpoints {
        let note = match (&e.reason, e.ejected) {
            (Some(reason), _) => reason.to_string(),
            (None, true) => "put last after failures".to_owned(),
            (None, false) => String::new(),
        };
        let selectable = if e.selectable { "yes" } else { "NO" };
        table.row([
            e.id.clone(),
            e.service.clone(),
            e.role.to_string(),
            e.url.clone(),
            selectable.to_owned(),
            e.in_flight.to_string(),
            note,
        ]);
    }
    table.to_string()
}

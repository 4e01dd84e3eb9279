//! `tandem status`: how a running router is.

use std::fmt::Write as _;

use clap::Args;
use serde_json::Value;

use super::admin::{Admin, Output};
use super::exit::{Exit, show};
use super::help;
use super::table::Table;
use crate::admin::{RouterStatus, ServiceStatus};

/// Show how a running router is: ready or not, what it serves with, what it carries
#[derive(Debug, Args)]
#[command(after_help = help::STATUS, after_long_help = help::STATUS)]
pub(super) struct Status {
    #[command(flatten)]
    admin: Admin,
    /// Form of the result on standard output
    #[arg(long, value_enum, default_value_t = Output::Table, value_name = "FORM")]
    output: Output,
}

impl Status {
    /// Not ready is a failure, so that scripts need not read.
    pub(super) fn run(&self) -> Exit {
        let document: Value = match self.admin.get("/status") {
            Ok(document) => document,
            Err(error) => return error.report(&self.admin),
        };
        let status: RouterStatus = match serde_json::from_value(document.clone()) {
            Ok(status) => status,
            Err(error) => return super::admin::NoAnswer::Strange(error.into()).report(&self.admin),
        };
        let shown = match self.output {
            Output::Json => show(&format!("{document:#}\n")),
            Output::Table => show(&text(&status)),
        };
        if shown == Exit::Ok && !status.ready { Exit::Failure } else { shown }
    }
}

fn text(s: &RouterStatus) -> String {
    let ready =
        if s.ready { "ready".to_owned() } else { format!("NOT READY, awaiting {}", listed(&s.awaiting)) };
    let config = match (s.config_ok, s.restart_needed) {
        (false, _) => {
            "the file was REFUSED when it was last read; the last good one is in force, the log says why"
                .to_owned()
        }
        (true, 0) => "as in the file".to_owned(),
        (true, n) => {
            let wait = if n == 1 { "waits" } else { "wait" };
            format!("{} of the file {wait} for a restart", counted(n, "changed key", ""))
        }
    };
    let mut out = format!(
        "tandem {} ({}), up {}, {}, {ready}\n{}, {}\nconfiguration: {config}\n\n",
        s.version,
        s.revision,
        age(s.uptime_s),
        s.phase,
        counted(s.in_flight, "request", " in flight"),
        counted(s.connections, "client connection", "")
    );
    let mut table =
        Table::new(&["SERVICE", "ENGINE", "MODELS", "ROLE", "SELECTABLE", "IN FLIGHT", "HAND-OFFS"]);
    for service in &s.services {
        rows(service, &mut table);
    }
    out.push_str(&table.to_string());
    for service in &s.services {
        if let Some(role) = &service.lacks {
            let name = &service.name;
            let _ = writeln!(
                out,
                "{name}: answers 503, no selectable {role} endpoint (`tandem endpoints` says why)"
            );
        }
        for role in service.roles.iter().filter(|role| role.ejected > 0) {
            let (name, role, n) = (&service.name, &role.role, role.ejected);
            let _ =
                writeln!(out, "{name}: {n} {role} put last after failures (`tandem endpoints` says which)");
        }
    }
    out
}

/// A line for each role; what is said of the service stands on the first.
fn rows(service: &ServiceStatus, table: &mut Table) {
    let models = if service.models.is_empty() { "any".to_owned() } else { service.models.join(",") };
    for (i, role) in service.roles.iter().enumerate() {
        let first = |text: &str| if i == 0 { text.to_owned() } else { String::new() };
        table.row([
            first(&service.name),
            first(&service.engine),
            first(&models),
            role.role.to_string(),
            format!("{}/{}", role.selectable, role.total),
            role.in_flight.to_string(),
            role.handoffs.to_string(),
        ]);
    }
}

fn counted(n: u64, what: &str, more: &str) -> String {
    format!("{n} {what}{}{more}", if n == 1 { "" } else { "s" })
}

fn listed(words: &[String]) -> String {
    if words.is_empty() { "the end".to_owned() } else { words.join(", ") }
}

/// The two largest units.
fn age(seconds: u64) -> String {
    let (d, h, m, s) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    match (d, h, m) {
        (0, 0, 0) => format!("{s}s"),
        (0, 0, _) => format!("{m}m{s}s"),
        (0, _, _) => format!("{h}h{m}m"),
        _ => format!("{d}d{h}h"),
    }
}

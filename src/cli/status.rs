//! `tandem status`: how a running router is.

use std::fmt::Write as _;

use clap::Args;
use serde_json::Value;

use super::admin::{Admin, Output};
use super::exit::{Exit, show};
use super::help;
use super::table::{Table, age};
use crate::admin::{DiscoveryStatus, RouterStatus, ServiceStatus};

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
        let name = &service.name;
        if let Some(unknown) = unknown(service) {
            let _ = writeln!(out, "{name}: {unknown}");
        }
        if let Some(role) = &service.lacks {
            let _ = writeln!(
                out,
                "{name}: answers 503, no selectable {role} endpoint (`tandem endpoints` says why)"
            );
        }
        for role in service.roles.iter().filter(|role| role.ejected > 0) {
            let (role, n) = (&role.role, role.ejected);
            let _ =
                writeln!(out, "{name}: {n} {role} put last after failures (`tandem endpoints` says which)");
        }
    }
    out
}

/// Why its endpoints are not known yet, if they are not.
fn unknown(service: &ServiceStatus) -> Option<String> {
    let DiscoveryStatus { state, status } = &service.discovery;
    match (&**state, status) {
        ("ready", _) => None,
        ("waiting", _) => {
            Some("its Pods are not known yet, the first list of the API server is awaited".to_owned())
        }
        ("listed", _) => Some("its Pods are known, their engines are asked before they count".to_owned()),
        ("refused", Some(status)) => Some(format!(
            "the API server REFUSES its Pods with {status}{}",
            match status {
                401 => ": the router's credentials are not accepted",
                403 => ": the router's service account may not list and watch Pods there",
                404 => ": is that an API server?",
                _ => "",
            }
        )),
        (other, _) => Some(format!("its endpoints are {other}")),
    }
}

/// A line for each role; what is said of the service stands on the first.
fn rows(service: &ServiceStatus, table: &mut Table) {
    let models = if service.models.is_empty() { "any".to_owned() } else { service.models.join(",") };
    if service.roles.is_empty() {
        let none = ["-", "0/0", "0", "0"].map(str::to_owned);
        table.row([service.name.clone(), service.engine.clone(), models.clone()].into_iter().chain(none));
    }
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

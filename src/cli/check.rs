//! `tandem check FILE`: is this a configuration, and what does it mean?

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::admin::Output;
use super::exit::{Exit, report, show};
use super::help;
use crate::config::{self, Origin, Problem, RouterConfig};

/// Check a configuration file and report every mistake in it
#[derive(Debug, Args)]
#[command(after_help = help::CHECK, after_long_help = help::CHECK)]
pub(super) struct Check {
    /// Configuration to check
    #[arg(value_name = "FILE", required_unless_present = "schema")]
    file: Option<PathBuf>,
    /// Print the JSON Schema of a configuration file, for editors
    #[arg(long, conflicts_with_all = ["file", "print", "output", "no_env"])]
    schema: bool,
    /// Print the effective configuration: every key, defaults included
    #[arg(long)]
    print: bool,
    /// Form of the result on standard output
    #[arg(long, value_enum, default_value_t = Output::Table, value_name = "FORM")]
    output: Output,
    /// Leave TANDEM_* variables out
    #[arg(long)]
    no_env: bool,
}

impl Check {
    pub(super) fn run(&self, environment: Vec<(OsString, OsString)>) -> Exit {
        let Some(file) = &self.file else { return show(&format!("{:#}\n", config::schema())) };
        let environment = if self.no_env { Vec::new() } else { environment };
        let origin = Origin { file: Some(file.clone()), environment, ..Origin::default() };
        match (self.output, origin.load()) {
            (Output::Table, Ok(config)) => show(&self.table(file, &config)),
            (Output::Table, Err(problems)) => report(&problems),
            (Output::Json, Ok(config)) => show(&self.json(file, Some(&config), &[])),
            (Output::Json, Err(problems)) => {
                show(&self.json(file, None, &problems));
                report(&problems)
            }
        }
    }

    /// With `--print` the verdict and the notes are comments, so that the output can be used as a configuration.
    fn table(&self, file: &Path, config: &RouterConfig) -> String {
        let (services, endpoints) = counts(config);
        let verdict = format!(
            "{}: ok ({services} service{}, {endpoints} endpoint{}{})",
            file.display(),
            plural(services),
            plural(endpoints),
            match config.services.iter().filter(|s| s.pods.is_some()).count() {
                0 => String::new(),
                of_pods => format!(" and the Pods of {of_pods}"),
            }
        );
        let notes = config::notes(config).into_iter().map(|note| format!("note: {note}"));
        let said: Vec<String> = std::iter::once(verdict).chain(notes).collect();
        if self.print {
            format!("# {}\n{}", said.join("\n# "), config::print(config))
        } else {
            said.join("\n") + "\n"
        }
    }

    fn json(&self, file: &Path, config: Option<&RouterConfig>, problems: &[Problem]) -> String {
        let (services, endpoints) = config.map_or((0, 0), counts);
        let mut document = json!({
            "file": file.display().to_string(),
            "ok": config.is_some(),
            "services": services,
            "endpoints": endpoints,
            "problems": problems,
            "notes": config.map(config::notes).unwrap_or_default(),
        });
        if let (true, Some(config)) = (self.print, config) {
            document["effective"] = json!(config::document(config));
        }
        format!("{document:#}\n")
    }
}

fn counts(config: &RouterConfig) -> (usize, usize) {
    let endpoints = |s: &config::Service| s.prefill.len() + s.decode.len() + s.endpoints.len();
    (config.services.len(), config.services.iter().map(endpoints).sum())
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

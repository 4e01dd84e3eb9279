//! `tandem check FILE`: is this a configuration, and what does it mean?

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::json;

use super::exit::{Exit, report, show};
use super::help;
use crate::config::{self, File, Problem, RouterConfig, Source};

/// Check a configuration file and report every mistake in it
#[derive(Debug, Args)]
#[command(after_help = help::CHECK, after_long_help = help::CHECK)]
pub(super) struct Check {
    /// Configuration to check
    #[arg(value_name = "FILE")]
    file: PathBuf,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    Table,
    /// One JSON document
    Json,
}

impl Check {
    pub(super) fn run(&self, environment: Vec<(OsString, OsString)>) -> Exit {
        let environment = if self.no_env { Vec::new() } else { environment };
        let loaded = File::read(&self.file)
            .map_err(|problem| vec![problem])
            .and_then(|file| config::load(&Source { file: Some(file), environment, ..Source::default() }));
        match (self.output, loaded) {
            (Output::Table, Ok(config)) => show(&self.table(&config)),
            (Output::Table, Err(problems)) => report(&problems),
            (Output::Json, Ok(config)) => show(&self.json(Some(&config), &[])),
            (Output::Json, Err(problems)) => {
                show(&self.json(None, &problems));
                report(&problems)
            }
        }
    }

    /// With `--print` the verdict and the notes are comments, so that the output can be used as a configuration.
    fn table(&self, config: &RouterConfig) -> String {
        let (services, endpoints) = counts(config);
        let verdict = format!(
            "{}: ok ({services} service{}, {endpoints} endpoint{})\n",
            self.file.display(),
            plural(services),
            plural(endpoints)
        );
        let notes = config::notes(config).into_iter().map(|note| format!("note: {note}\n"));
        let said: String = std::iter::once(verdict).chain(notes).collect();
        if !self.print {
            return said;
        }
        let comments = said.lines().map(|line| ["# ", line, "\n"].concat()).collect::<String>();
        comments + &config::print(config)
    }

    fn json(&self, config: Option<&RouterConfig>, problems: &[Problem]) -> String {
        let (services, endpoints) = config.map_or((0, 0), counts);
        let mut document = json!({
            "file": self.file.display().to_string(),
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

//! `tandem split`: what share of the requests each cohort has and got, and other weights by hand.
//!
//! * `view` — what is shown. `change` — other weights over the ones that were read, and the way back.

mod change;
mod view;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::admin::{Admin, NoAnswer, Output};
use super::exit::{Exit, say, show};
use super::help;
use crate::admin::{CohortView, ServiceSplit, SplitView};

/// Show what share of the requests each cohort gets, or set other weights
#[derive(Debug, Args)]
#[command(after_help = help::SPLIT, after_long_help = help::SPLIT)]
pub(super) struct Split {
    /// Only this service
    #[arg(value_name = "SERVICE")]
    service: Option<String>,
    /// Give the cohort of this name another weight; the others keep theirs. May be repeated, or several with commas
    #[arg(long, value_name = "NAME=WEIGHT", value_delimiter = ',', requires = "service", value_parser = weight)]
    set: Vec<(String, u64)>,
    /// Go back to the configured split, or to none
    #[arg(long, requires = "service", conflicts_with = "set")]
    reset: bool,
    #[command(flatten)]
    admin: Admin,
    /// File with the router's admin token; for --set and --reset
    #[arg(long, value_name = "FILE", env = "TANDEM_TOKEN_FILE", hide_env_values = true)]
    token_file: Option<PathBuf>,
    /// Form of the result on standard output
    #[arg(long, value_enum, default_value_t = Output::Table, value_name = "FORM")]
    output: Output,
    /// The same as --output json
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

/// Why there is no result.
#[derive(Debug)]
enum Trouble {
    NoAnswer(NoAnswer),
    /// Exit code, and what is said.
    Said(Exit, String),
}

impl From<NoAnswer> for Trouble {
    fn from(why: NoAnswer) -> Self {
        Self::NoAnswer(why)
    }
}

impl Split {
    pub(super) fn run(&self) -> Exit {
        let result = if self.set.is_empty() && !self.reset { self.look() } else { self.change() };
        match result {
            Ok(text) => show(&text),
            Err(Trouble::NoAnswer(why)) => why.report(&self.admin),
            Err(Trouble::Said(exit, why)) => {
                say(&why);
                exit
            }
        }
    }

    fn is_json(&self) -> bool {
        self.json || self.output == Output::Json
    }

    /// Both documents, of the service that is named or of all.
    fn look(&self) -> Result<String, Trouble> {
        let mut documents: [Value; 2] =
            [self.admin.get("/observer/split")?, self.admin.get("/observer/cohorts")?];
        let [split, cohorts] = &documents;
        let read = |error: serde_json::Error| {
            NoAnswer::Strange(anyhow::Error::new(error).context("the answer is not as expected"))
        };
        let mut split = SplitView::deserialize(split).map_err(read)?;
        let cohorts = CohortView::deserialize(cohorts).map_err(read)?;
        if let Some(name) = &self.service {
            self.find(&split, name)?;
            split.services.retain(|service| service.service == *name);
            for document in &mut documents {
                if let Some(services) = document["services"].as_array_mut() {
                    services.retain(|service| service["service"] == **name);
                }
            }
        }
        if self.is_json() {
            let [split, cohorts] = documents;
            return Ok(format!("{:#}\n", json!({"split": split, "cohorts": cohorts})));
        }
        Ok(view::text(&split, &cohorts))
    }

    fn find<'a>(&self, view: &'a SplitView, name: &str) -> Result<&'a ServiceSplit, Trouble> {
        view.services.iter().find(|service| service.service == name).ok_or_else(|| {
            let known: Vec<&str> = view.services.iter().map(|service| &*service.service).collect();
            let router = self.admin.url();
            let said = format!("{router}: no service is named {name:?}; there are: {}", known.join(", "));
            Trouble::Said(Exit::Usage, said)
        })
    }

    fn change(&self) -> Result<String, Trouble> {
        let service = self.service.as_deref().unwrap_or_default(); // clap requires one
        let view: SplitView = self.admin.get("/observer/split")?;
        let before = self.find(&view, service)?;
        let order = if self.reset { change::reset(before) } else { change::set(before, &self.set)? };
        let token = self.token()?;
        let answer = self.admin.send(&order.method, &order.path, token.as_deref(), order.body.as_ref())?;
        let done = change::done(self.admin.url(), service, &answer)?;
        if done.volatile {
            say("this router's alone, and forgotten at its restart: tell each router, or change the file");
        }
        Ok(if self.is_json() { format!("{:#}\n", json!(done)) } else { order.says(&done) })
    }

    fn token(&self) -> Result<Option<String>, Trouble> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string());
        let text = text.map_err(|error| Trouble::Said(Exit::Usage, format!("--token-file: {error:#}")))?;
        Ok(Some(text.trim().to_owned()))
    }
}

/// `NAME=WEIGHT`; a name may have a `=` of its own.
fn weight(text: &str) -> Result<(String, u64), String> {
    let parts = text.rsplit_once('=').filter(|(name, _)| !name.is_empty());
    let (name, weight) = parts.ok_or("not NAME=WEIGHT, such as r2=10")?;
    let weight = weight.parse().map_err(|_| "a weight is a whole number, such as in r2=10")?;
    Ok((name.to_owned(), weight))
}

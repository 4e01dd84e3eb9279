//! The command line: parse, hand over to a runner, map its result to an exit code.
//!
//! Values are read by `config`, not by the parser, so that a mistake in a flag reads like the same mistake in a file
//! and all of them are reported together. Results go to standard output, everything else to standard error.

mod admin;
mod check;
mod demo;
mod drain;
mod endpoints;
mod engine;
mod exit;
mod generate;
mod help;
mod install;
mod router;
mod split;
mod status;
mod table;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use exit::Exit;

/// Router for LLM inference engines.
#[derive(Debug, Parser)]
#[command(name = "tandem", version = help::VERSION, long_version = help::LONG_VERSION)]
#[command(after_help = help::TANDEM, after_long_help = help::TANDEM)]
#[command(subcommand_required = true, arg_required_else_help = false, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Demo),
    Router(Box<router::Router>),
    Check(check::Check),
    Status(status::Status),
    Endpoints(endpoints::Endpoints),
    Split(split::Split),
    Drain(Box<drain::Drain>),
    Engine(Box<engine::Engine>),
    Install(install::Install),
    Completions(generate::Completions),
    Man(generate::Man),
}

/// Runs the process's own command line.
pub fn main() -> ExitCode {
    run(std::env::args_os(), std::env::vars_os().collect()).into()
}

/// Runs a command line; the first argument is the program's name.
fn run(arguments: impl IntoIterator<Item = OsString>, environment: Vec<(OsString, OsString)>) -> Exit {
    match Cli::try_parse_from(arguments) {
        Ok(Cli { command: Command::Router(router) }) => router.run(environment),
        Ok(Cli { command: Command::Check(check) }) => check.run(environment),
        Ok(Cli { command: Command::Status(status) }) => status.run(),
        Ok(Cli { command: Command::Endpoints(endpoints) }) => endpoints.run(),
        Ok(Cli { command: Command::Split(split) }) => split.run(),
        Ok(Cli { command: Command::Engine(engine) }) => engine.run(),
        Ok(Cli { command: Command::Drain(drain) }) => drain.run(),
        Ok(Cli { command: Command::Install(install) }) => install.run(),
        Ok(Cli { command: Command::Demo(demo) }) => demo.run(),
        Ok(Cli { command: Command::Completions(completions) }) => completions.run(),
        Ok(Cli { command: Command::Man(man) }) => man.run(),
        Err(error) => {
            // Help and version are "errors" too, for standard output and code 0. A closed pipe is the reader's choice.
            let _ = error.print();
            if error.use_stderr() { Exit::Usage } else { Exit::Ok }
        }
    }
}

/// As in a configuration (`250ms`, `1m30s`), and as the mock engine's scripts have it (`1.5s`).
fn time(text: &str) -> Result<Duration, String> {
    let time = crate::config::duration(text).ok().or_else(|| crate::engine::duration(text));
    time.ok_or_else(|| "no time such as 250ms, 2s or 10m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn times_are_written_as_in_a_configuration_or_in_a_script() {
        assert_eq!(time("10m"), Ok(Duration::from_mins(10)));
        assert_eq!(time("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(time("1.5s"), Ok(Duration::from_millis(1500)));
        assert!(time("10").is_err() && time("m").is_err());
    }

    #[test]
    fn the_command_tree_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_that_sets_a_key_names_one_of_the_table() {
        let all = router::Router::every_flag();
        assert!(all.values.len() > 10);
        let command = Cli::command();
        let router = command.find_subcommand("router").map(|c| c.get_arguments().collect::<Vec<_>>());
        for value in &all.values {
            assert!(crate::config::KEYS.iter().any(|key| key.path == value.key), "{}", value.key);
            let known = router.iter().flatten().filter_map(|arg| arg.get_long());
            assert!(known.into_iter().any(|long| format!("--{long}") == value.flag), "{}", value.flag);
        }
    }
}

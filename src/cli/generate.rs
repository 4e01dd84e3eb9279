//! `tandem completions` and `tandem man`: what a package installs beside the binary.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Command, CommandFactory as _};
use clap_complete::Shell;

use super::exit::{Exit, fail, show};
use super::{Cli, help};

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_help = help::COMPLETIONS, after_long_help = help::COMPLETIONS)]
pub(super) struct Completions {
    /// Which shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    pub(super) fn run(&self) -> Exit {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "tandem", &mut text);
        show(&String::from_utf8_lossy(&text))
    }
}

/// Print the manual page, or write one for each command into a directory
#[derive(Debug, Args)]
#[command(after_help = help::MAN, after_long_help = help::MAN)]
pub(super) struct Man {
    /// Directory for `tandem.1`, `tandem-router.1`, …; made where it is missing
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Man {
    pub(super) fn run(&self) -> Exit {
        match self.pages() {
            Ok(text) => show(&text),
            Err(error) => fail(&error),
        }
    }

    /// What is left for standard output.
    fn pages(&self) -> anyhow::Result<String> {
        let mut all = Cli::command();
        all.build();
        let Some(dir) = &self.dir else { return Ok(String::from_utf8_lossy(&page(all)?).into_owned()) };
        std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        let below: Vec<Command> = all.get_subcommands().filter(|c| c.get_name() != "help").cloned().collect();
        let mut written = String::new();
        for command in below.into_iter().chain([all]) {
            let name = command.get_display_name().unwrap_or(command.get_name()).replace(' ', "-");
            let path = dir.join(format!("{name}.1"));
            let text = page(command)?;
            std::fs::write(&path, text).with_context(|| path.display().to_string())?;
            let _ = writeln!(written, "{}", path.display()); // into a string: does not fail
        }
        Ok(written)
    }
}

fn page(command: Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text)?;
    Ok(text)
}

//! `tandem install`: the program puts itself into a directory, because an image that holds nothing else has no `cp`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::Args;

use super::exit::{Exit, fail, show};
use super::help;

/// Copy this program into a directory, for an initContainer
#[derive(Debug, Args)]
#[command(after_help = help::INSTALL, after_long_help = help::INSTALL)]
pub(super) struct Install {
    /// Directory that gets `tandem`
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

impl Install {
    pub(super) fn run(&self) -> Exit {
        let to = self.dir.join("tandem");
        match install(&to).with_context(|| to.display().to_string()) {
            Ok(()) => show(&format!("{}\n", to.display())),
            Err(error) => fail(&error),
        }
    }
}

/// Beside its place first: whoever runs the old one goes on, and nobody sees half of the new one.
fn install(to: &Path) -> anyhow::Result<()> {
    ensure!(to.parent().is_some_and(Path::is_dir), "there is no such directory");
    let from = std::env::current_exe().context("where this program is")?;
    let beside = to.with_extension("new");
    std::fs::copy(&from, &beside).with_context(|| format!("copying {}", from.display()))?;
    std::fs::rename(&beside, to)?;
    Ok(())
}

//! Where a process's configuration comes from, so that it can be read again.

use std::ffi::OsString;
use std::path::PathBuf;

use super::load::load;
use super::problem::Problem;
use super::router::RouterConfig;
use super::source::{File, Flags, Source};

/// A file, if there is one, under the environment and flags of the process, which do not change.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    pub file: Option<PathBuf>,
    pub environment: Vec<(OsString, OsString)>,
    pub flags: Flags,
}

impl Origin {
    /// Reads the file as it is now. Blocking.
    ///
    /// # Errors
    /// Every mistake there is.
    pub fn load(&self) -> Result<RouterConfig, Vec<Problem>> {
        let file = self.file.as_deref().map(File::read).transpose().map_err(|problem| vec![problem])?;
        load(&Source { file, environment: self.environment.clone(), flags: self.flags.clone() })
    }
}

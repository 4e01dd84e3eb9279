//! The state file: which roles need the endpoint-eligible mark, kept over restarts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::types::role::Role;

/// Latches by service; written when they change.
#[derive(Debug, Default)]
pub struct LatchStore {
    path: Option<PathBuf>,
    known: Mutex<BTreeMap<String, Vec<Role>>>,
}

#[derive(Debug, Serialize, Deserialize, Default)]
struct Document {
    /// Grows with incompatible changes.
    version: u32,
    #[serde(default)]
    latches: BTreeMap<String, Vec<String>>,
}

const VERSION: u32 = 1;

impl LatchStore {
    /// Reads the file, if there is one yet. One that cannot be read is said and replaced at the next change.
    pub fn open(path: Option<&Path>) -> Self {
        let known = path.map(read).unwrap_or_default();
        Self { path: path.map(Path::to_owned), known: Mutex::new(known) }
    }

    pub fn get(&self) -> BTreeMap<String, Vec<Role>> {
        self.known.lock().clone()
    }

    /// Takes over latches, and writes the file if that changed anything. For a runtime that serves no traffic.
    pub fn keep(&self, latches: BTreeMap<String, Vec<Role>>) {
        let mut known = self.known.lock();
        let mut changed = false;
        for (service, roles) in latches {
            changed |= known.get(&service) != Some(&roles);
            known.insert(service, roles);
        }
        if let (true, Some(path)) = (changed, &self.path)
            && let Err(error) = write(path, &known)
        {
            warn!(path = %path.display(), %error, "the state file could not be written; latches are lost at a restart");
        }
    }
}

fn read(path: &Path) -> BTreeMap<String, Vec<Role>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return BTreeMap::new(),
        Err(error) => {
            warn!(path = %path.display(), %error, "the state file cannot be read");
            return BTreeMap::new();
        }
    };
    match serde_json::from_str::<Document>(&text) {
        Ok(document) if document.version == VERSION => document
            .latches
            .into_iter()
            .map(|(service, words)| {
                let role = |word: &String| Role::ALL.into_iter().find(|role| role.as_str() == word);
                (service, words.iter().filter_map(role).collect())
            })
            .collect(),
        Ok(document) => {
            warn!(path = %path.display(), version = document.version, "the state file is of another version");
            BTreeMap::new()
        }
        Err(error) => {
            warn!(path = %path.display(), %error, "the state file cannot be read");
            BTreeMap::new()
        }
    }
}

/// A new file that takes the old one's name: no half-written state after a crash.
fn write(path: &Path, latches: &BTreeMap<String, Vec<Role>>) -> std::io::Result<()> {
    let words = |roles: &Vec<Role>| roles.iter().map(|role| role.as_str().to_owned()).collect();
    let latches = latches.iter().map(|(service, roles)| (service.clone(), words(roles))).collect();
    let text = serde_json::to_string_pretty(&Document { version: VERSION, latches })?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let next = path.with_file_name(name);
    std::fs::write(&next, text + "\n")?;
    std::fs::rename(&next, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latches_outlive_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        let store = LatchStore::open(Some(&path));
        assert!(store.get().is_empty());
        let latches = BTreeMap::from([("chat".to_owned(), vec![Role::Prefill, Role::Decode])]);
        store.keep(latches.clone());
        assert_eq!(LatchStore::open(Some(&path)).get(), latches);
        std::fs::write(&path, "half").unwrap();
        assert!(LatchStore::open(Some(&path)).get().is_empty(), "said, and no crash");
    }

    #[test]
    fn without_a_path_nothing_is_written() {
        let store = LatchStore::open(None);
        store.keep(BTreeMap::from([("chat".to_owned(), vec![Role::Mixed])]));
        assert_eq!(store.get()["chat"], [Role::Mixed]);
    }
}

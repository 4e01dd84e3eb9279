//! Small files with secrets that may be replaced while the process runs: API keys, the admin token.
//!
//! A change is noticed by comparing what `stat` says of the path. That follows symbolic links, so the directory swap
//! of a Kubernetes secret mount shows as another inode; watching the file itself would miss it. A file that cannot be
//! read or understood leaves the last good value in force and is reported once per change.
//!
//! Comparison with what a client presents takes a time that depends on the secrets' lengths only.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use subtle::{Choice, ConstantTimeEq};

/// Largest file that is read, bytes.
const MAX_FILE: u64 = 1024 * 1024;
/// Longest secret, bytes.
pub const MAX_SECRET: usize = 512;
const WORDS: usize = MAX_SECRET / 8;

/// Why a secret file was not taken. Never contains any of its content.
#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    #[error("{path}: {error}")]
    Io { path: PathBuf, error: io::Error },
    #[error("{path}: {mistake}")]
    Content { path: PathBuf, mistake: Mistake },
}

/// What is wrong with a secret file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Mistake {
    #[error("holds no secret")]
    Empty,
    #[error("is larger than 1 MiB")]
    TooLarge,
    #[error("line {line}: a secret is at most 512 visible ASCII characters without spaces")]
    NotASecret { line: usize },
    #[error("holds more than {max} secrets")]
    TooMany { max: usize },
}

/// One secret. Shows nothing of itself.
pub struct Secret {
    len: u64,
    words: Box<[u64]>,
}

impl Secret {
    /// `None` unless `text` is 1 to [`MAX_SECRET`] visible ASCII characters (others cannot stand in a header).
    pub fn new(text: &str) -> Option<Self> {
        let presented = Presented::new(text.as_bytes())?;
        let words = presented.words[..text.len().div_ceil(8)].into();
        text.bytes().all(|b| b.is_ascii_graphic()).then_some(Self { len: presented.len, words })
    }

    /// Constant time in the content of both.
    pub fn matches(&self, presented: &Presented) -> Choice {
        self.len.ct_eq(&presented.len) & self.words.ct_eq(&presented.words[..self.words.len()])
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// What a client presents, laid out for comparison with any number of secrets.
pub struct Presented {
    len: u64,
    words: [u64; WORDS],
}

impl Presented {
    /// `None` when it is empty or too long to be any secret.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() || bytes.len() > MAX_SECRET {
            return None;
        }
        let mut words = [0; WORDS];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_le_bytes(padded);
        }
        Some(Self { len: bytes.len() as u64, words })
    }

    /// The token of an `Authorization: Bearer …` value; the scheme's case does not matter (RFC 9110 §11.1).
    pub fn bearer(value: &[u8]) -> Option<Self> {
        let (scheme, rest) = value.split_at_checked(6)?;
        if !scheme.eq_ignore_ascii_case(b"bearer") || rest.first() != Some(&b' ') {
            return None;
        }
        Self::new(rest.trim_ascii())
    }
}

impl fmt::Debug for Presented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Presented(…)")
    }
}

/// What [`Watched::poll`] found.
#[derive(Debug)]
pub enum Change {
    None,
    /// The new content is in force.
    Taken,
    /// The content in force is the last good one. Reported once per change.
    Refused(SecretFileError),
}

/// The parsed content of a file, with the last good one in force.
#[derive(Debug)]
pub struct Watched<T> {
    path: PathBuf,
    parse: fn(&str) -> Result<T, Mistake>,
    current: ArcSwap<T>,
    seen: Mutex<Seen>,
}

#[derive(Debug, PartialEq)]
enum Seen {
    /// Read, whether its content was good or not.
    File(Fingerprint),
    /// Not read: tried again at every poll.
    Unreadable(ErrorKind),
}

/// What `stat` says of a file: different after every change that matters.
#[derive(Debug, PartialEq)]
pub struct Fingerprint {
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl<T> Watched<T> {
    /// Reads the file for the first time; here every mistake is an error.
    pub fn load(path: &Path, parse: fn(&str) -> Result<T, Mistake>) -> Result<Self, SecretFileError> {
        let path = path.to_owned();
        let fingerprint = match Fingerprint::of(&path) {
            Ok(fingerprint) => fingerprint,
            Err(error) => return Err(SecretFileError::Io { path, error }),
        };
        let current = ArcSwap::from_pointee(read(&path, parse)?);
        Ok(Self { path, parse, current, seen: Mutex::new(Seen::File(fingerprint)) })
    }

    /// The content in force.
    pub fn current(&self) -> arc_swap::Guard<Arc<T>> {
        self.current.load()
    }

    /// Takes a change of the file over. One `stat`, and a read after a change: blocking, so not on a traffic thread.
    pub fn poll(&self) -> Change {
        let mut seen = self.seen.lock();
        // Before the read: what is written in between differs from this and is read at the next poll.
        let (now, content) = match Fingerprint::of(&self.path) {
            Ok(now) if matches!(&*seen, Seen::File(last) if *last == now) => return Change::None,
            Ok(fingerprint) => (Seen::File(fingerprint), read(&self.path, self.parse)),
            Err(error) => {
                (Seen::Unreadable(error.kind()), Err(SecretFileError::Io { path: self.path.clone(), error }))
            }
        };
        let now = match &content {
            Err(SecretFileError::Io { error, .. }) => Seen::Unreadable(error.kind()),
            _ => now,
        };
        let told = *seen == now;
        *seen = now;
        match content {
            Ok(content) => {
                self.current.store(Arc::new(content));
                Change::Taken
            }
            Err(_) if told => Change::None,
            Err(error) => Change::Refused(error),
        }
    }
}

impl Fingerprint {
    /// Blocking. Follows symbolic links.
    pub fn of(path: &Path) -> io::Result<Self> {
        let meta = fs::metadata(path)?;
        Ok(Self {
            device: meta.dev(),
            inode: meta.ino(),
            len: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}

fn read<T>(path: &Path, parse: fn(&str) -> Result<T, Mistake>) -> Result<T, SecretFileError> {
    let io = |error| SecretFileError::Io { path: path.to_owned(), error };
    let content = |mistake| SecretFileError::Content { path: path.to_owned(), mistake };
    let mut bytes = Vec::new();
    File::open(path).map_err(io)?.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(content(Mistake::TooLarge));
    }
    // What is not UTF-8 becomes U+FFFD, which no secret may contain: the error then names its line.
    parse(&String::from_utf8_lossy(&bytes)).map_err(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(text: &str) -> Result<Secret, Mistake> {
        Secret::new(text.trim()).ok_or(Mistake::NotASecret { line: 1 })
    }

    fn is(secret: &Secret, text: &str) -> bool {
        Presented::new(text.as_bytes()).is_some_and(|presented| secret.matches(&presented).into())
    }

    #[test]
    fn only_the_very_same_bytes_match() {
        for text in ["a", "12345678", "123456789", &"k".repeat(MAX_SECRET)] {
            let secret = Secret::new(text).unwrap();
            assert!(is(&secret, text));
            assert!(!is(&secret, &format!("{text}\0")));
            assert!(!is(&secret, &format!("{text}x")));
            assert!(!is(&secret, &text[1..]));
            for at in 0..text.len() {
                let mut other = text.as_bytes().to_vec();
                other[at] ^= 1;
                assert!(!bool::from(secret.matches(&Presented::new(&other).unwrap())));
            }
        }
    }

    #[test]
    fn what_cannot_stand_in_a_header_is_no_secret() {
        for text in ["", "a b", "é", "a\u{fffd}", "a\tb", &"k".repeat(MAX_SECRET + 1)] {
            assert!(Secret::new(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn bearer_needs_its_scheme_and_a_space() {
        let secret = Secret::new("tok").unwrap();
        let ok = |value: &str| Presented::bearer(value.as_bytes()).is_some_and(|p| secret.matches(&p).into());
        assert!(ok("Bearer tok") && ok("bearer tok") && ok("BEARER  tok "));
        for value in
            ["tok", "Bearertok", "Basic tok", "Bearer", "Bearer ", "", "Bearer\ttok", "Bearer tok tok"]
        {
            assert!(!ok(value), "{value:?}");
        }
    }

    #[test]
    fn debug_shows_nothing() {
        assert!(!format!("{:?}", Secret::new("hunter2").unwrap()).contains("hunter2"));
    }

    #[test]
    fn the_last_good_content_stays_until_the_next_good_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        fs::write(&path, "one").unwrap();
        let watched = Watched::load(&path, only).unwrap();
        assert!(matches!(watched.poll(), Change::None));
        for (bad, content) in [("two words", true), ("", true)] {
            fs::write(&path, bad).unwrap();
            assert_eq!(matches!(watched.poll(), Change::Refused(SecretFileError::Content { .. })), content);
            assert!(matches!(watched.poll(), Change::None), "told once");
        }
        fs::remove_file(&path).unwrap();
        assert!(matches!(watched.poll(), Change::Refused(SecretFileError::Io { .. })));
        assert!(matches!(watched.poll(), Change::None), "told once");
        assert!(is(&watched.current(), "one"));
        fs::write(&path, "two").unwrap();
        assert!(matches!(watched.poll(), Change::Taken));
        assert!(is(&watched.current(), "two"));
    }

    #[test]
    fn a_swapped_directory_link_is_a_change_though_the_file_looks_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for (version, text) in [("v1", "one"), ("v2", "two")] {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("token"), text).unwrap();
        }
        std::os::unix::fs::symlink(at("v1"), at("data")).unwrap();
        std::os::unix::fs::symlink("data/token", at("token")).unwrap();
        let watched = Watched::load(&at("token"), only).unwrap();
        std::os::unix::fs::symlink(at("v2"), at("data.new")).unwrap();
        fs::rename(at("data.new"), at("data")).unwrap();
        assert!(matches!(watched.poll(), Change::Taken));
        assert!(is(&watched.current(), "two"));
    }
}

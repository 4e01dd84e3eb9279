//! Front-door API keys: a file with one key per line, taken over while the process runs.
//!
//! Blank lines and lines that start with `#` are skipped. A file without a key is refused: it would lock everybody out
//! or, read otherwise, let everybody in. Every key is compared with what the client presents, without an early end, so
//! the time tells neither which key matched nor how much of one; at about 20 ns per key that is cheap enough for
//! [`MAX_KEYS`].

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use subtle::Choice;
use tokio_util::sync::CancellationToken;

use crate::config::secret_file::{Change, Mistake, Presented, Secret, SecretFileError, Watched};
use crate::metrics::ReloadMetrics;

/// Most keys in a file (I12).
pub const MAX_KEYS: usize = 1024;
/// How often the file is looked at.
pub const POLL: Duration = Duration::from_secs(2);

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Why a request may not enter. Both are 401.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    #[error("no API key: send `Authorization: Bearer <key>` or `x-api-key: <key>`")]
    Missing,
    #[error("the API key is not valid")]
    Invalid,
}

/// The keys in force.
#[derive(Debug)]
pub struct ApiKeys {
    file: Watched<Vec<Secret>>,
    metrics: ReloadMetrics,
}

impl ApiKeys {
    /// Reads the file; every mistake is an error here, and only a warning later.
    pub fn load(path: &Path, metrics: ReloadMetrics) -> Result<Self, SecretFileError> {
        Ok(Self { file: Watched::load(path, parse)?, metrics })
    }

    /// Whether these headers carry a key. A header that stands twice is refused: the engine might read the other one.
    pub fn check_headers(&self, headers: &HeaderMap) -> Result<(), AuthError> {
        let once = |name: HeaderName| {
            let mut values = headers.get_all(name).iter();
            let first = values.next();
            if values.next().is_some() { Err(AuthError::Invalid) } else { Ok(first) }
        };
        self.check(once(AUTHORIZATION)?, once(X_API_KEY)?)
    }

    /// The same for the two values. With both present, one valid key is enough.
    pub fn check(
        &self,
        authorization: Option<&HeaderValue>,
        x_api_key: Option<&HeaderValue>,
    ) -> Result<(), AuthError> {
        if authorization.is_none() && x_api_key.is_none() {
            return Err(AuthError::Missing);
        }
        let bearer = authorization.and_then(|value| Presented::bearer(value.as_bytes()));
        let plain = x_api_key.and_then(|value| Presented::new(value.as_bytes().trim_ascii()));
        let keys = self.file.current();
        let known = |presented: Presented| {
            let found = keys.iter().fold(Choice::from(0), |found, key| found | key.matches(&presented));
            bool::from(found)
        };
        // Both are compared, whatever the first one gives.
        let (bearer, plain) = (bearer.is_some_and(known), plain.is_some_and(known));
        if bearer || plain { Ok(()) } else { Err(AuthError::Invalid) }
    }

    /// Looks at the file once. Blocking: a `stat`, and a read after a change.
    pub fn poll(&self) {
        match self.file.poll() {
            Change::None => {}
            Change::Taken => {
                self.metrics.ok.inc();
                tracing::info!(keys = self.file.current().len(), "API keys reloaded");
            }
            Change::Refused(error) => {
                self.metrics.error.inc();
                tracing::warn!(%error, "API keys not reloaded; the last good ones stay in force");
            }
        }
    }

    /// Looks at the file every `every` (usually [`POLL`]) until `stop`. For a runtime that serves no traffic.
    pub async fn watch(self: Arc<Self>, every: Duration, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
            let keys = Arc::clone(&self);
            // A file system that hangs must not hold up the runtime. A panic in there would be a bug of `poll`; the
            // next round tries again.
            if let Err(error) = tokio::task::spawn_blocking(move || keys.poll()).await {
                tracing::error!(%error, "looking at the API key file failed");
            }
        }
    }
}

fn parse(text: &str) -> Result<Vec<Secret>, Mistake> {
    let mut keys = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        keys.push(Secret::new(line).ok_or(Mistake::NotASecret { line: index + 1 })?);
        if keys.len() > MAX_KEYS {
            return Err(Mistake::TooMany { max: MAX_KEYS });
        }
    }
    if keys.is_empty() { Err(Mistake::Empty) } else { Ok(keys) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::metrics::{Metrics, Vocabulary};

    fn metrics() -> ReloadMetrics {
        let words = Vocabulary { routes: &[], error_codes: &[], retry_reasons: &[], phases: &[] };
        Metrics::new(&words).unwrap().router.api_keys.clone()
    }

    fn keys(text: &str) -> (tempfile::TempDir, ApiKeys) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        fs::write(&path, text).unwrap();
        let keys = ApiKeys::load(&path, metrics()).unwrap();
        (dir, keys)
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    #[test]
    fn each_key_enters_by_either_header() {
        let (_dir, keys) = keys("# front door\n\n sk-one \r\nsk-two\n");
        for ok in [
            &[("authorization", "Bearer sk-one")][..],
            &[("authorization", "bearer sk-two")],
            &[("x-api-key", "sk-two")],
            &[("x-api-key", "sk-one"), ("authorization", "Bearer other")],
            &[("x-api-key", "other"), ("authorization", "Bearer sk-one")],
        ] {
            assert_eq!(keys.check_headers(&headers(ok)), Ok(()), "{ok:?}");
        }
    }

    #[test]
    fn everything_else_stays_outside() {
        let (_dir, keys) = keys("# front door\nsk-one\nsk-two\n");
        assert_eq!(keys.check_headers(&HeaderMap::new()), Err(AuthError::Missing));
        for bad in [
            &[("authorization", "Bearer sk-onE")][..],
            &[("authorization", "sk-one")],
            &[("authorization", "Basic sk-one")],
            &[("authorization", "Bearer ")],
            &[("authorization", "Bearer # front door")],
            &[("authorization", "Bearer sk-one,sk-two")],
            &[("x-api-key", "")],
            &[("x-api-key", "Bearer sk-one")],
            &[("x-api-key", "sk-one\u{7f}")],
            &[("authorization", "Bearer sk-one"), ("authorization", "Bearer sk-two")],
            &[("x-api-key", "sk-one"), ("x-api-key", "sk-one")],
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in bad {
                let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) else { continue };
                map.append(*name, value);
            }
            assert!(keys.check_headers(&map).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_file_without_a_key_or_with_a_bad_line_is_refused() {
        assert_eq!(parse("").err(), Some(Mistake::Empty));
        assert_eq!(parse("# only\n  \n").err(), Some(Mistake::Empty));
        assert_eq!(parse("ok\ntwo words\n").err(), Some(Mistake::NotASecret { line: 2 }));
        assert_eq!(parse(&"k\n".repeat(MAX_KEYS + 1)).err(), Some(Mistake::TooMany { max: MAX_KEYS }));
        assert!(parse(&"k\n".repeat(MAX_KEYS)).is_ok());
        assert!(ApiKeys::load(Path::new("/nonexistent/keys"), metrics()).is_err());
    }

    #[test]
    fn errors_show_no_part_of_a_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        fs::write(&path, "hunter2 hunter3\n").unwrap();
        let error = ApiKeys::load(&path, metrics()).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter"));
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "a test has no tracker")]
    async fn a_rotated_key_is_taken_over_and_a_broken_file_is_not() {
        let (dir, keys) = keys("sk-old\n");
        let keys = Arc::new(keys);
        let stop = CancellationToken::new();
        let watch = tokio::spawn(Arc::clone(&keys).watch(Duration::from_millis(5), stop.clone()));
        let enters = |key: &str| keys.check(None, Some(&HeaderValue::from_str(key).unwrap())).is_ok();
        let path = dir.path().join("keys");
        fs::write(&path, "").unwrap();
        while keys.metrics.error.get() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(enters("sk-old"));
        fs::write(dir.path().join("new"), "sk-new\n").unwrap();
        fs::rename(dir.path().join("new"), &path).unwrap();
        while keys.metrics.ok.get() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(enters("sk-new") && !enters("sk-old"));
        stop.cancel();
        watch.await.unwrap();
    }
}

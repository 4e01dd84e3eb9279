//! The options of LIST and WATCH, checked as a server checks them.

use std::time::Duration;

use super::query::Query;
use super::selector::Filter;
use super::settings::WatchList;
use super::status::Status;

/// Which version of the truth a LIST may give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    /// No resourceVersion: the most recent.
    Newest,
    /// `0`: whatever the replica has.
    Any,
    NotOlderThan(u64),
    Exactly(u64),
}

/// What a watch starts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// The changes after this version.
    After(u64),
    /// The changes from now on.
    Now,
    /// Synthetic ADDED events, not older than this; `asked` by name, not by leaving out the version.
    Initial { not_older: u64, asked: bool },
}

#[derive(Debug, Clone)]
pub(super) struct ListOptions {
    pub(super) filter: Filter,
    pub(super) at: At,
    pub(super) limit: Option<usize>,
    pub(super) token: Option<String>,
}

#[derive(Debug, Clone)]
pub(super) struct WatchOptions {
    pub(super) filter: Filter,
    pub(super) start: Start,
    pub(super) bookmarks: bool,
    pub(super) timeout: Option<Duration>,
}

fn filter(ns: Option<String>, query: &Query) -> Result<Filter, Status> {
    let text = |name| query.get(name).unwrap_or_default();
    Filter::parse(ns, text("labelSelector"), text("fieldSelector"))
}

fn number<T: std::str::FromStr>(query: &Query, name: &str) -> Result<Option<T>, Status> {
    let parse = |text: &str| {
        text.parse().map_err(|_| Status::bad_request(format!("invalid {name}: {text:?} is no number")))
    };
    query.get(name).map(parse).transpose()
}

impl ListOptions {
    pub(super) fn parse(ns: Option<String>, query: &Query) -> Result<Self, Status> {
        let version: Option<u64> = number(query, "resourceVersion")?;
        let limit = number::<usize>(query, "limit")?.filter(|limit| *limit > 0);
        let token = query.get("continue").map(str::to_owned);
        if query.get("sendInitialEvents").is_some() {
            return Err(Status::invalid_options(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for list",
            ));
        }
        if token.is_some() && version.is_some_and(|v| v > 0) {
            let why = "specifying resource version is not allowed when using continue";
            return Err(Status::bad_request(why));
        }
        let at = Self::at(version, query.get("resourceVersionMatch"), limit)?;
        Ok(Self { filter: filter(ns, query)?, at, limit, token })
    }

    fn at(version: Option<u64>, how: Option<&str>, limit: Option<usize>) -> Result<At, Status> {
        let refuse = |why: &str| Err(Status::invalid_options("resourceVersionMatch", why));
        match (version, how) {
            (None, Some(_)) => refuse("resourceVersionMatch is forbidden unless resourceVersion is provided"),
            (None, None) => Ok(At::Newest),
            (Some(0), Some("Exact")) => {
                refuse("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")
            }
            (Some(0), None | Some("NotOlderThan")) => Ok(At::Any),
            (Some(v), Some("Exact")) => Ok(At::Exactly(v)),
            // As it was before resourceVersionMatch: a page is exact.
            (Some(v), None) if limit.is_some() => Ok(At::Exactly(v)),
            (Some(v), None | Some("NotOlderThan")) => Ok(At::NotOlderThan(v)),
            (_, Some(_)) => refuse("supported values: \"Exact\", \"NotOlderThan\", \"\""),
        }
    }
}

impl WatchOptions {
    pub(super) fn parse(ns: Option<String>, query: &Query, mode: WatchList) -> Result<Self, Status> {
        let version: Option<u64> = number(query, "resourceVersion")?;
        let timeout = number::<u64>(query, "timeoutSeconds")?.filter(|s| *s > 0).map(Duration::from_secs);
        let initial = query.flag("sendInitialEvents").filter(|_| mode != WatchList::Absent);
        check_match(initial, query.get("resourceVersionMatch"), mode)?;
        let asked = initial == Some(true);
        let start = match (asked, version) {
            (true, version) => Start::Initial { not_older: version.unwrap_or(0), asked },
            (false, Some(version)) if version > 0 => Start::After(version),
            (false, _) if initial == Some(false) => Start::Now,
            (false, _) => Start::Initial { not_older: 0, asked },
        };
        let bookmarks = query.flag("allowWatchBookmarks").unwrap_or(false);
        Ok(Self { filter: filter(ns, query)?, start, bookmarks, timeout })
    }
}

fn check_match(initial: Option<bool>, how: Option<&str>, mode: WatchList) -> Result<(), Status> {
    let refuse = |why: &str| Err(Status::invalid_options("resourceVersionMatch", why));
    match (initial, how) {
        (None, None) | (Some(_), Some("NotOlderThan")) => Ok(()),
        (None, Some(_)) if mode == WatchList::Absent => refuse("resourceVersionMatch is forbidden for watch"),
        (None, Some(_)) => {
            refuse("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
        }
        (Some(_), _) => refuse("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
    }
}

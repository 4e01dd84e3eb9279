//! Who may change something (I11): the holder of the admin token, or a loopback peer when no token is configured.
//!
//! Runs as a layer before the handler, so before anything else happens. With a token configured loopback is no excuse: a
//! sidecar that forwards would make the whole network loopback. Without one, a request that carries `Origin` comes from
//! a browser and is refused, because a page may reach loopback under a name of its own (DNS rebinding).

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{AUTHORIZATION, HeaderMap, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{Extensions, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::answer;
use crate::config::secret_file::{Change, Mistake, Presented, Secret, SecretFileError, Watched};

/// The configured token, if there is one. Looked up anew when the file changes.
#[derive(Debug)]
pub struct AdminToken(Option<Watched<Secret>>);

/// Who was let through, for the audit line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Actor {
    /// `token` or `loopback`.
    pub by: &'static str,
    pub peer: Option<IpAddr>,
}

/// Why a request was not let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// 401: a token is configured, and this request has none, or another one.
    Token,
    /// 403: no token is configured, and the peer is not on this machine, or not known.
    NotLoopback,
    /// 403: no token is configured, and the request comes from a web page.
    Browser,
}

impl AdminToken {
    /// Reads the token file: its trimmed content is the token. An unreadable or empty one is an error.
    pub fn load(file: Option<&Path>) -> Result<Self, SecretFileError> {
        Ok(Self(file.map(|path| Watched::load(path, parse)).transpose()?))
    }

    /// Judges one request. Looks at the token file first, so that a rotated token counts at once; if the file is bad
    /// the last good token stays in force.
    pub fn authorize(&self, headers: &HeaderMap, peer: Option<IpAddr>) -> Result<Actor, Denied> {
        let Some(file) = &self.0 else { return local(headers, peer) };
        match file.poll() {
            Change::None => {}
            Change::Taken => tracing::info!("admin token reloaded"),
            Change::Refused(error) => {
                tracing::warn!(%error, "admin token not reloaded; the last good one stays in force");
            }
        }
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return Err(Denied::Token) };
        let presented = Presented::bearer(value.as_bytes()).ok_or(Denied::Token)?;
        if file.current().matches(&presented).into() {
            Ok(Actor { by: "token", peer })
        } else {
            Err(Denied::Token)
        }
    }
}

fn local(headers: &HeaderMap, peer: Option<IpAddr>) -> Result<Actor, Denied> {
    if !peer.is_some_and(|peer| peer.to_canonical().is_loopback()) {
        return Err(Denied::NotLoopback);
    }
    if headers.contains_key(ORIGIN) {
        return Err(Denied::Browser);
    }
    Ok(Actor { by: "loopback", peer })
}

fn parse(text: &str) -> Result<Secret, Mistake> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Mistake::Empty);
    }
    Secret::new(text).ok_or(Mistake::NotASecret { line: 1 })
}

/// The layer of every route that changes something; hands the [`Actor`] on.
pub(super) async fn require(
    State(token): State<Arc<AdminToken>>,
    mut request: Request,
    next: Next,
) -> Response {
    match token.authorize(request.headers(), peer(request.extensions())) {
        Ok(actor) => {
            request.extensions_mut().insert(actor);
            next.run(request).await
        }
        Err(denied) => denied.into_response(),
    }
}

fn peer(extensions: &Extensions) -> Option<IpAddr> {
    extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(address)| address.ip())
}

impl IntoResponse for Denied {
    fn into_response(self) -> Response {
        let forbidden =
            |message| answer::error(StatusCode::FORBIDDEN, "permission_error", "admin_forbidden", message);
        match self {
            Self::Token => {
                let message = "this needs the admin token: `Authorization: Bearer <token>`";
                let status = StatusCode::UNAUTHORIZED;
                let mut response =
                    answer::error(status, "authentication_error", "admin_token_required", message);
                response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                response
            }
            Self::NotLoopback => {
                forbidden("no admin token is configured: changes are taken from loopback only")
            }
            Self::Browser => forbidden("no admin token is configured: changes are not taken from web pages"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn with(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        headers
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_empty_or_missing_token_file_is_refused_at_start() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        assert!(AdminToken::load(Some(&path)).is_err());
        for bad in ["", " \n", "two words", "two\nlines"] {
            fs::write(&path, bad).unwrap();
            assert!(AdminToken::load(Some(&path)).is_err(), "{bad:?}");
        }
        fs::write(&path, "tok\n").unwrap();
        assert!(AdminToken::load(Some(&path)).is_ok());
    }

    #[test]
    fn a_rotated_token_counts_at_once_and_an_emptied_file_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        fs::write(&path, "one\n").unwrap();
        let token = AdminToken::load(Some(&path)).unwrap();
        let ok = |value: &str| token.authorize(&with("authorization", value), Some(ip("192.0.2.1"))).is_ok();
        assert!(ok("Bearer one") && !ok("Bearer onE"));
        fs::write(&path, "").unwrap();
        assert!(ok("Bearer one"));
        fs::write(&path, "two-2\n").unwrap();
        assert!(ok("Bearer two-2") && !ok("Bearer one"));
    }

    #[test]
    fn with_a_token_loopback_is_no_excuse_and_two_headers_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        fs::write(&path, "one").unwrap();
        let token = AdminToken::load(Some(&path)).unwrap();
        assert_eq!(token.authorize(&HeaderMap::new(), Some(ip("127.0.0.1"))), Err(Denied::Token));
        let mut twice = with("authorization", "Bearer one");
        twice.append("authorization", HeaderValue::from_static("Bearer one"));
        assert_eq!(token.authorize(&twice, Some(ip("127.0.0.1"))), Err(Denied::Token));
    }

    #[test]
    fn without_a_token_only_this_machine_and_no_browser() {
        let token = AdminToken::load(None).unwrap();
        let none = HeaderMap::new();
        for peer in ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"] {
            assert!(token.authorize(&none, Some(ip(peer))).is_ok(), "{peer}");
        }
        for peer in ["192.0.2.1", "10.0.0.1", "2001:db8::1", "::ffff:192.0.2.1"] {
            assert_eq!(token.authorize(&none, Some(ip(peer))), Err(Denied::NotLoopback), "{peer}");
        }
        assert_eq!(token.authorize(&none, None), Err(Denied::NotLoopback));
        let page = with("origin", "http://rebound.example");
        assert_eq!(token.authorize(&page, Some(ip("127.0.0.1"))), Err(Denied::Browser));
        assert!(token.authorize(&with("authorization", "Bearer x"), Some(ip("192.0.2.1"))).is_err());
    }
}

//! One Pod's annotation, for commands: who the Pod is, and a key set or taken away. Nothing else of a Pod is ever written, and
//! routers never come here: they only list and watch.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use kube::Client;
use kube::api::{GetParams, Patch, PatchParams};
use kube::client::Body;
use kube::core::Request;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use super::client::{Connect, config};
use super::failure::Failure;
use super::list::collect;
use crate::config::Kubernetes;

/// One question, from credentials to the last byte.
const LIMIT: Duration = Duration::from_secs(5);
/// Largest answer, bytes: a Pod is at most some hundred kilobytes.
const MOST: usize = 8 << 20;

/// Who a Pod is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub uid: String,
    /// Its deletion has begun.
    pub deleting: bool,
}

/// Why there is no answer that helps, in words for an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing says where the API server is, or who we are.
    NoAccess(String),
    /// 401, 403.
    Denied(String),
    /// 404.
    Missing(String),
    /// 409: it is another Pod, or has changed meanwhile.
    Conflict(String),
    /// Asking again gives the same.
    Refused(String),
    /// No answer, 429 or a server's error: later it may go, not before this long.
    Away(String, Option<Duration>),
}

/// Asks about one Pod at a time.
pub struct Annotator {
    connect: Arc<dyn Connect>,
    client: Option<Client>,
}

impl fmt::Debug for Annotator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Annotator").field("connect", &self.connect).finish_non_exhaustive()
    }
}

impl Annotator {
    pub fn new(connect: Arc<dyn Connect>) -> Self {
        Self { connect, client: None }
    }

    /// # Errors
    /// See [`Trouble`].
    pub async fn get(&mut self, namespace: &str, name: &str) -> Result<Found, Trouble> {
        self.ask(pods(namespace).get(name, &GetParams::default())).await
    }

    /// Sets the annotation, or takes it away, at exactly this Pod: the UID is a precondition.
    ///
    /// # Errors
    /// See [`Trouble`].
    pub async fn annotate(
        &mut self,
        (namespace, name): (&str, &str),
        uid: &str,
        key: &str,
        value: Option<&str>,
    ) -> Result<Found, Trouble> {
        let patch = json!({ "metadata": { "uid": uid, "annotations": { key: value } } });
        self.ask(pods(namespace).patch(name, &PatchParams::default(), &Patch::Merge(patch))).await
    }

    async fn ask(
        &mut self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Found, Trouble> {
        let request = request.map_err(|error| Trouble::Refused(error.to_string()))?;
        let asked = async {
            let client = match self.client.take() {
                Some(client) => client,
                None => self.connect.connect().await.map_err(Trouble::NoAccess)?,
            };
            let answer = send(&client, request).await?;
            self.client = Some(client);
            Ok(answer)
        };
        let late = || Err(Trouble::Away(format!("no answer within {} s", LIMIT.as_secs()), None));
        timeout(LIMIT, asked).await.unwrap_or_else(|_| late())
    }
}

/// The namespace that a kubeconfig's context or a service account names; `None`: there is neither.
pub async fn own_namespace(settings: &Kubernetes) -> Option<String> {
    config(settings).await.ok().map(|config| config.default_namespace)
}

fn pods(namespace: &str) -> Request {
    Request::new(format!("/api/v1/namespaces/{namespace}/pods"))
}

/// A failed question takes its client with it: the next one reads credentials again.
async fn send(client: &Client, request: http::Request<Vec<u8>>) -> Result<Found, Trouble> {
    let away = |failure: &Failure| Trouble::Away(failure.to_string(), failure.retry_after);
    let answer = client.send(request.map(Body::from)).await;
    let (head, body) = answer.map_err(|error| away(&Failure::of_client(&error)))?.into_parts();
    let body = collect(body, MOST).await.map_err(|failure| away(&failure))?;
    if !head.status.is_success() {
        let failure = Failure::of_answer(head.status, &head.headers, &body);
        let why = failure.to_string();
        return Err(match head.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Trouble::Denied(why),
            StatusCode::NOT_FOUND => Trouble::Missing(why),
            StatusCode::CONFLICT => Trouble::Conflict(why),
            StatusCode::TOO_MANY_REQUESTS => away(&failure),
            status if status.is_client_error() => Trouble::Refused(why),
            _ => away(&failure),
        });
    }
    let pod: Pod = serde_json::from_slice(&body)
        .map_err(|error| Trouble::Away(format!("a Pod that cannot be read: {error}"), None))?;
    Ok(Found { uid: pod.metadata.uid, deleting: pod.metadata.deletion_timestamp.is_some() })
}

#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: String,
    deletion_timestamp: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::kube::{FakeKube, Fault, PodSpec, RequestKind};

    const KEY: &str = "tandem.dev/drain";
    const AT: (&str, &str) = ("default", "p");

    #[tokio::test]
    async fn it_is_set_and_taken_away_at_exactly_this_pod() {
        let fake = FakeKube::new();
        let uid = fake.create(PodSpec::new("p").annotation("other", "stays"));
        let mut api = Annotator::new(Arc::new(fake.entry()));
        let found = Found { uid: uid.clone(), deleting: false };
        assert_eq!(api.get("default", "p").await, Ok(found.clone()));
        let shown = || fake.pod("default", "p").unwrap()["metadata"]["annotations"].clone();
        assert_eq!(api.annotate(AT, &uid, KEY, Some("x; y")).await, Ok(found.clone()));
        assert_eq!(shown(), json!({"other": "stays", KEY: "x; y"}));
        let other = api.annotate(AT, "another", KEY, None).await;
        assert!(matches!(other, Err(Trouble::Conflict(_))), "{other:?}");
        assert_eq!(api.annotate(AT, &uid, KEY, None).await, Ok(found));
        assert_eq!(shown(), json!({"other": "stays"}));
        fake.delete("default", "p");
        assert_eq!(api.get("default", "p").await, Ok(Found { uid, deleting: true }));
        assert!(matches!(api.get("default", "q").await, Err(Trouble::Missing(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_go_later_is_told_from_what_will_not() {
        let fake = FakeKube::new();
        fake.create(PodSpec::new("p"));
        let mut api = Annotator::new(Arc::new(fake.entry()));
        let mut meet = async |fault| {
            fake.push(RequestKind::Other, fault);
            api.get("default", "p").await.unwrap_err()
        };
        for code in [401, 403] {
            assert!(matches!(meet(Fault::status(code)).await, Trouble::Denied(_)));
        }
        assert!(matches!(meet(Fault::status(409)).await, Trouble::Conflict(_)));
        assert!(matches!(meet(Fault::status(422)).await, Trouble::Refused(_)));
        let throttled = meet(Fault::throttled(7)).await;
        assert!(matches!(throttled, Trouble::Away(_, Some(wait)) if wait == Duration::from_secs(7)));
        for fault in [Fault::status(500), Fault::Refuse, Fault::BlackHole, Fault::garbage("<html>")] {
            assert!(matches!(meet(fault).await, Trouble::Away(_, None)));
        }
        assert!(api.get("default", "p").await.is_ok(), "after all of it");
    }
}

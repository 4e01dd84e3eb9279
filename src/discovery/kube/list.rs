//! One complete list of Pods, page by page where it is paged.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::api::{ListParams, VersionMatch, WatchParams};
use kube::client::Body;
use kube::core::Request;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::failure::{Failure, Kind};
use crate::discovery::ome;
use crate::discovery::pod::{Identity, Pod, decode};

/// Largest answer, bytes: some 20,000 full Pods.
const MOST: usize = 256 << 20;
/// Pods in a page of the first list.
const PAGE: u32 = 500;
/// An answer larger than this is decoded beside the runtime: watch events must not wait for it.
const INLINE: usize = 256 << 10;

/// Which Pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope {
    /// `None`: the client's own.
    pub namespace: Option<String>,
    /// As the API takes it.
    pub selector: String,
    /// Instead of Pods the InferenceService of this name.
    pub object: Option<String>,
}

impl Scope {
    pub(super) fn path(&self, client: &Client) -> String {
        let namespace = self.namespace.as_deref().unwrap_or(client.default_namespace());
        match self.object {
            Some(_) => format!("/{}/namespaces/{namespace}/inferenceservices", ome::RESOURCE),
            None => format!("/api/v1/namespaces/{namespace}/pods"),
        }
    }

    pub(super) fn list_params(&self) -> ListParams {
        let params = ListParams::default();
        match &self.object {
            Some(name) => params.fields(&format!("metadata.name={name}")),
            None => params.labels(&self.selector),
        }
    }

    pub(super) fn watch_params(&self) -> WatchParams {
        let params = WatchParams::default();
        match &self.object {
            Some(name) => params.fields(&format!("metadata.name={name}")),
            None => params.labels(&self.selector),
        }
    }

    /// For log lines.
    pub(super) fn shown_object(&self) -> &str {
        self.object.as_deref().unwrap_or("-")
    }

    /// For log lines.
    pub(super) fn shown(&self) -> &str {
        self.namespace.as_deref().unwrap_or("(own)")
    }
}

/// How a list is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Read {
    /// In pages, from the newest state.
    First,
    /// The newest state. No limit: a limit can bypass the server's cache.
    Consistent,
    /// The server's cache, not older than this version.
    Cached(u64),
}

/// A complete list.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) version: u64,
    pub(super) pods: Vec<Arc<Pod>>,
    /// Items that could not be read.
    pub(super) bad: Vec<(Identity, String)>,
}

/// Lists. Each answer has to arrive within `limit`.
pub(super) async fn list(
    client: &Client,
    scope: &Scope,
    read: &Read,
    limit: Duration,
    wanted: &[String],
) -> Result<Listed, Failure> {
    let mut params = scope.list_params();
    match read {
        Read::First => params = params.limit(PAGE),
        Read::Consistent => {}
        Read::Cached(version) => {
            params.resource_version = Some(version.to_string());
            params.version_match = Some(VersionMatch::NotOlderThan);
        }
    }
    let mut all: Option<Listed> = None;
    loop {
        let body = timeout(limit, answer(client, scope, &params))
            .await
            .map_err(|_| Failure::new(Kind::Timeout, format!("no list within {limit:?}")))??;
        let (page, next) = page(body, wanted).await?;
        match &mut all {
            // Every page is as of the first one's version.
            Some(all) => {
                all.pods.extend(page.pods);
                all.bad.extend(page.bad);
            }
            None => all = Some(page),
        }
        match next {
            Some(token) => params.continue_token = Some(token),
            None => break,
        }
    }
    all.ok_or_else(|| Failure::new(Kind::Invalid, "no page"))
}

pub(super) async fn answer(client: &Client, scope: &Scope, params: &ListParams) -> Result<Bytes, Failure> {
    let request = Request::new(scope.path(client))
        .list(params)
        .map_err(|error| Failure::new(Kind::Invalid, error.to_string()))?;
    let answer = client.send(request.map(Body::from)).await.map_err(|e| Failure::of_client(&e))?;
    let (head, body) = answer.into_parts();
    let body = collect(body, MOST).await?;
    if head.status.is_success() {
        Ok(body)
    } else {
        Err(Failure::of_answer(head.status, &head.headers, &body))
    }
}

/// The whole of a body of at most `most` bytes.
pub(super) async fn collect(mut body: Body, most: usize) -> Result<Bytes, Failure> {
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Failure::of_client(&e))?;
        if let Ok(data) = frame.into_data() {
            if all.len() + data.len() > most {
                return Err(Failure::new(Kind::Invalid, format!("an answer of more than {most} bytes")));
            }
            all.extend_from_slice(&data);
        }
    }
    Ok(all.freeze())
}

/// One page, and the token of the next one.
async fn page(body: Bytes, wanted: &[String]) -> Result<(Listed, Option<String>), Failure> {
    if body.len() <= INLINE {
        return read_page(&body, wanted);
    }
    let wanted = wanted.to_vec();
    tokio::task::spawn_blocking(move || read_page(&body, &wanted))
        .await
        .unwrap_or_else(|_| Err(Failure::new(Kind::Invalid, "decoding the list failed")))
}

#[derive(Deserialize)]
struct Page<'a> {
    metadata: PageMetadata,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    token: Option<String>,
}

/// Version, Pods, and what could not be read.
pub type Decoded = (u64, Vec<Arc<Pod>>, Vec<(Identity, String)>);

/// A list in one page; of annotations only `wanted`.
///
/// # Errors
/// Why it cannot be read, in words for an operator.
pub fn decode_list(body: &[u8], wanted: &[String]) -> Result<Decoded, String> {
    let (Listed { version, pods, bad }, _) =
        read_page(body, wanted).map_err(|failure| failure.to_string())?;
    Ok((version, pods, bad))
}

/// One page of a list. An item that cannot be read does not spoil the others.
pub(super) fn read_page(body: &[u8], wanted: &[String]) -> Result<(Listed, Option<String>), Failure> {
    let invalid = |why: String| Failure::new(Kind::Invalid, why);
    let page: Page<'_> =
        serde_json::from_slice(body).map_err(|e| invalid(format!("a list that cannot be read: {e}")))?;
    let version = page.metadata.resource_version.and_then(|v| v.parse().ok());
    let version = version.ok_or_else(|| invalid("a list without a resourceVersion".to_owned()))?;
    let (mut pods, mut bad) = (Vec::new(), Vec::new());
    for item in page.items.unwrap_or_default() {
        match decode(item.get(), wanted) {
            Ok(pod) => pods.push(Arc::new(pod)),
            Err(skipped) => bad.push(skipped),
        }
    }
    // Some servers send an empty token at the end (kube#1250).
    Ok((Listed { version, pods, bad }, page.metadata.token.filter(|token| !token.is_empty())))
}

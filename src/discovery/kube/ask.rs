//! A question to the API server under way, with the client that asks it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::time::timeout;

use super::client::Connect;
use super::failure::{Failure, Kind};

/// Reading credentials, or a plug-in that gets some.
const CONNECT: Duration = Duration::from_secs(10);

/// Gives the client back, if it is worth keeping.
pub(super) type Asking<T> = Pin<Box<dyn Future<Output = (Option<Client>, Result<T, Failure>)> + Send>>;

/// Asks by the client from before, or by a new one.
pub(super) fn ask<T, F>(
    kept: Option<Client>,
    connect: Arc<dyn Connect>,
    question: impl FnOnce(Client) -> F + Send + 'static,
) -> Asking<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Failure>> + Send,
{
    Box::pin(async move {
        let client = match client(kept, &*connect).await {
            Ok(client) => client,
            Err(failure) => return (None, Err(failure)),
        };
        let result = question(client.clone()).await;
        (kept_after(client, &result), result)
    })
}

/// The client from before, or a new one.
async fn client(kept: Option<Client>, connect: &dyn Connect) -> Result<Client, Failure> {
    if let Some(client) = kept {
        return Ok(client);
    }
    let made = timeout(CONNECT, connect.connect()).await;
    let made = made.map_err(|_| Failure::new(Kind::Timeout, format!("no credentials within {CONNECT:?}")))?;
    made.map_err(|why| Failure::new(Kind::Connection, why))
}

/// The client is used again, unless a new one may do better.
fn kept_after<T>(client: Client, result: &Result<T, Failure>) -> Option<Client> {
    result.as_ref().err().is_none_or(|failure| !failure.kind.wants_new_client()).then_some(client)
}

/// The outcome of a question that may not be under way. Cancel-safe.
pub(super) async fn of<T>(asking: &mut Option<Asking<T>>) -> (Option<Client>, Result<T, Failure>) {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}

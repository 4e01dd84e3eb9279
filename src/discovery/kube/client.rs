//! Clients of the API server. Lists and watches have one each: a half-open connection that holds up the one must not hold up
//! the other. After a failure the next question is asked by a new client, which reads credentials and certificates again.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::config::Kubernetes;

/// TCP and TLS.
const CONNECT: Duration = Duration::from_secs(5);

/// A client, and the namespace it has by default.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = Result<Client, String>> + Send + 'a>>;

/// Makes clients; each has connections of its own.
pub trait Connect: Send + Sync + fmt::Debug {
    /// # Errors
    /// In words for an operator: no configuration, a file that cannot be read, a certificate that is none.
    fn connect(&self) -> Connecting<'_>;
}

/// By kubeconfig, else by the Pod's service account.
#[derive(Debug)]
pub struct KubeConnect(pub Kubernetes);

impl Connect for KubeConnect {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async move {
            let mut config = config(&self.0).await?;
            config.connect_timeout = Some(CONNECT);
            // Ours are longer than an idle watch and shorter than a list.
            config.read_timeout = None;
            config.write_timeout = None;
            // Attempts are counted and spaced by us.
            config.default_retry = false;
            Client::try_from(config).map_err(|error| format!("API server client: {error}"))
        })
    }
}

pub(super) async fn config(settings: &Kubernetes) -> Result<Config, String> {
    let options = KubeConfigOptions { context: settings.context.clone(), ..KubeConfigOptions::default() };
    if let Some(path) = &settings.kubeconfig {
        let at = |error: &dyn fmt::Display| format!("kubernetes.kubeconfig {}: {error}", path.display());
        let file = Kubeconfig::read_from(path).map_err(|error| at(&error))?;
        return Config::from_custom_kubeconfig(file, &options).await.map_err(|error| at(&error));
    }
    if let Ok(config) = Config::from_kubeconfig(&options).await {
        return Ok(config);
    }
    Config::incluster().map_err(|error| {
        format!("no kubeconfig, and no service account of a Pod: {error}; set kubernetes.kubeconfig")
    })
}

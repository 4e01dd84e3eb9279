//! The Pod's annotation: set where we may, so that every router withdraws it, those that start meanwhile too.
//!
//! An engine's own hook mostly may not, and need not: its deletion withdraws the Pod. So no rights is a line and no failure.

use std::sync::Arc;
use std::time::Duration;

use super::target::Pod;
use crate::config::Kubernetes;
use crate::discovery::kube::{Annotator, Found, KubeConnect, Trouble};
use crate::types::drain_order::DrainOrder;

/// Between two tries.
const PAUSE: Duration = Duration::from_secs(1);

/// What one try came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// It says what it should, or needs to say nothing (`stands: false`) because it is being deleted.
    Done { uid: String, stands: bool },
    /// It cannot be annotated, for this reason, and nothing changes that.
    Never(String),
    /// Not now.
    Later(String, Duration),
    /// The command makes no sense.
    Wrong(String),
}

#[derive(Debug)]
pub(super) struct Annotation {
    api: Annotator,
    key: String,
    /// `None`: it is taken away.
    order: Option<DrainOrder>,
    /// The UID was given, so that a Pod that is not there any more is no mistake.
    given: bool,
}

impl Annotation {
    pub(super) fn new(kubernetes: Kubernetes, key: &str, order: Option<DrainOrder>, given: bool) -> Self {
        let api = Annotator::new(Arc::new(KubeConnect(kubernetes)));
        Self { api, key: key.to_owned(), order, given }
    }

    /// One try. It is read first, which tells the UID that the patch is bound to.
    pub(super) async fn step(&mut self, pod: &Pod) -> Step {
        let (namespace, name) = (pod.namespace.as_str(), pod.name.as_str());
        let found = match self.api.get(namespace, name).await {
            Ok(found) => found,
            Err(trouble) => return self.trouble(pod, trouble),
        };
        let Found { uid, deleting } = found;
        if let Some(wanted) = pod.uid.as_ref().filter(|wanted| **wanted != uid) {
            return Step::Wrong(another(pod, wanted, &uid));
        }
        match &self.order {
            None if deleting => {
                return Step::Wrong(format!(
                    "{namespace}/{name} is being deleted, which cannot be taken back"
                ));
            }
            // Its deletion says enough, and what the annotation says may be another's last word.
            Some(order) if deleting && !order.force => return Step::Done { uid, stands: false },
            _ => {}
        }
        let value = self.order.as_ref().map(DrainOrder::to_string);
        match self.api.annotate((namespace, name), &uid, &self.key, value.as_deref()).await {
            Ok(_) => Step::Done { uid, stands: true },
            Err(trouble) => self.trouble(pod, trouble),
        }
    }

    fn trouble(&self, pod: &Pod, trouble: Trouble) -> Step {
        match trouble {
            Trouble::NoAccess(why) | Trouble::Denied(why) | Trouble::Refused(why) => Step::Never(why),
            Trouble::Missing(_) if self.given => Step::Never("it is not there any more".to_owned()),
            Trouble::Missing(why) => Step::Wrong(format!("{}/{}: {why}", pod.namespace, pod.name)),
            // Another writer, or another Pod: the next look tells.
            Trouble::Conflict(why) => Step::Later(why, PAUSE),
            Trouble::Away(why, wait) => Step::Later(why, wait.unwrap_or(PAUSE).max(PAUSE)),
        }
    }

    /// Tries until it is not for later any more. The first try was made.
    pub(super) async fn go_on(&mut self, pod: &Pod, mut pause: Duration) -> Step {
        loop {
            tokio::time::sleep(pause).await;
            match self.step(pod).await {
                Step::Later(_, next) => pause = next,
                step => return step,
            }
        }
    }
}

fn another(pod: &Pod, wanted: &str, found: &str) -> String {
    let Pod { namespace, name, .. } = pod;
    format!("{namespace}/{name} is another Pod now: its UID is {found}, not {wanted} (--uid, POD_UID)")
}

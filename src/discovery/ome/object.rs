//! The part of an InferenceService that is read; lenient where Kubernetes is: null and absent are alike.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::discovery::pod::lenient;

pub(super) const ENGINE: &str = "engine";
pub(super) const DECODER: &str = "decoder";
const ROUTER: &str = "router";

#[derive(Debug, Deserialize)]
pub(super) struct Object {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) metadata: Metadata,
    #[serde(default, deserialize_with = "lenient")]
    spec: Spec,
    #[serde(default, deserialize_with = "lenient")]
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Metadata {
    #[serde(default, deserialize_with = "lenient")]
    pub(super) name: String,
}

#[derive(Debug, Default, Deserialize)]
struct Spec {
    #[serde(default, deserialize_with = "lenient")]
    rollout: Rollout,
}

#[derive(Debug, Default, Deserialize)]
struct Rollout {
    #[serde(default, deserialize_with = "lenient")]
    groups: Vec<Group>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    #[serde(default, deserialize_with = "lenient")]
    components: Vec<String>,
    canary: Option<Value>,
    #[serde(default, deserialize_with = "lenient")]
    policy_ref: PolicyRef,
}

#[derive(Debug, Default, Deserialize)]
struct PolicyRef {
    #[serde(default, deserialize_with = "lenient")]
    progression: String,
}

#[derive(Debug, Default, Deserialize)]
struct Status {
    #[serde(default, deserialize_with = "lenient")]
    components: BTreeMap<String, Component>,
    #[serde(default, deserialize_with = "lenient")]
    rollout: RolloutStatus,
}

#[derive(Debug, Default, Deserialize)]
struct Component {
    #[serde(default, deserialize_with = "lenient")]
    traffic: Vec<Target>,
    #[serde(default, deserialize_with = "lenient")]
    lifecycle: Lifecycle,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Lifecycle {
    /// `<inferenceservice>-<component>-<hash>`.
    #[serde(default, deserialize_with = "lenient")]
    current_revision: String,
    #[serde(default, deserialize_with = "lenient")]
    update_revision: String,
}

/// One entry of `traffic[]`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Target {
    pub(super) revision_name: Option<String>,
    percent: Option<Value>,
    pub(super) tag: Option<String>,
    pub(super) pairing_protocol: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RolloutStatus {
    #[serde(default, deserialize_with = "lenient")]
    active_run: Run,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    #[serde(default, deserialize_with = "lenient")]
    target_revisions: Vec<RunTarget>,
    #[serde(default, deserialize_with = "lenient")]
    plan: Plan,
}

/// A component's revisions in the open run, as hashes.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunTarget {
    #[serde(default, deserialize_with = "lenient")]
    component: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) revision: String,
    #[serde(default, deserialize_with = "lenient")]
    pub(super) stable_revision: String,
}

#[derive(Debug, Default, Deserialize)]
struct Plan {
    #[serde(default, deserialize_with = "lenient")]
    groups: Vec<Pinned>,
}

#[derive(Debug, Default, Deserialize)]
struct Pinned {
    #[serde(default, deserialize_with = "lenient")]
    group: Group,
}

impl Group {
    fn is_canary(&self) -> bool {
        self.canary.is_some() || self.policy_ref.progression == "canary"
    }

    fn has(&self, component: &str) -> bool {
        self.components.iter().any(|own| own == component)
    }
}

impl Object {
    /// The group that prefills and decodes roll in: as the open run has it, which an edit of the spec does not change.
    fn group(&self) -> Option<&Group> {
        let ours = |group: &&Group| group.has(ENGINE) || group.has(DECODER);
        let pinned = self.status.rollout.active_run.plan.groups.iter().map(|pinned| &pinned.group);
        pinned.chain(&self.spec.rollout.groups).find(ours)
    }

    pub(super) fn has_canary(&self) -> bool {
        self.group().is_some_and(Group::is_canary)
    }

    /// The component whose status has the weights.
    pub(super) fn primary(&self) -> &'static str {
        let routed = self.group().is_some_and(|group| group.is_canary() && group.has(ROUTER));
        if routed { ROUTER } else { ENGINE }
    }

    pub(super) fn traffic(&self, component: &str) -> &[Target] {
        self.status.components.get(component).map_or(&[], |component| component.traffic.as_slice())
    }

    /// The component's revisions in the open run.
    pub(super) fn run_of(&self, component: &str) -> Option<&RunTarget> {
        self.status.rollout.active_run.target_revisions.iter().find(|target| target.component == component)
    }

    /// Hash of the revision that the component runs, where no run is open.
    pub(super) fn current(&self, component: &str) -> Option<&str> {
        let named = &self.lifecycle(component)?.current_revision;
        let hash = named.strip_prefix(&format!("{}-{component}-", self.metadata.name))?;
        Some(hash).filter(|hash| !hash.is_empty())
    }

    /// The same, if the component is not on its way to another one.
    pub(super) fn settled(&self, component: &str) -> Option<&str> {
        let lifecycle = self.lifecycle(component)?;
        self.current(component).filter(|_| lifecycle.current_revision == lifecycle.update_revision)
    }

    fn lifecycle(&self, component: &str) -> Option<&Lifecycle> {
        self.status.components.get(component).map(|component| &component.lifecycle)
    }
}

impl Target {
    pub(super) fn percent(&self) -> Option<u64> {
        self.percent.as_ref()?.as_u64().filter(|percent| *percent <= 100)
    }

    pub(super) fn shown_percent(&self) -> String {
        self.percent.as_ref().map_or_else(|| "missing".to_owned(), Value::to_string)
    }
}

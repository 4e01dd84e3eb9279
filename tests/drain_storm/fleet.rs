//! The Pods there are, as the driver means them.

use serde_json::{Value, json};
use tandem::engine::Role;
use tandem::testkit::kube::{FakeKube, PodSpec, set_ready};
use tandem::types::clock::Instant;

use super::host::{Guard, Kind, Make, address};

/// A place for a Pod: one after the other has its address.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) make: Make,
    pub(super) pod: Option<Pod>,
    /// When there is a Pod again.
    pub(super) back: Option<Instant>,
    count: usize,
}

#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) uid: String,
    /// It carries the service's selector.
    pub(super) member: bool,
    pub(super) eligible: bool,
    pub(super) ready: bool,
    pub(super) drain: bool,
    /// It is terminating, and gone then.
    pub(super) ends: Option<Instant>,
}

impl Pod {
    /// It may be given requests.
    pub(super) fn serves(&self) -> bool {
        self.is_well() && self.ends.is_none()
    }

    pub(super) fn is_well(&self) -> bool {
        self.member && self.eligible && self.ready && !self.drain
    }

    pub(super) fn heal(&mut self) {
        (self.member, self.eligible, self.ready, self.drain) = (true, true, true, false);
    }

    fn write(&self, make: Make, object: &mut Value) {
        let app = if self.member { make.kind.name() } else { "none" };
        let mut labels = json!({ "app": app });
        let role = match make.role {
            Role::Plain => "mixed",
            other => other.as_str(),
        };
        labels["tandem.dev/role"] = role.into();
        if self.eligible {
            labels["tandem.dev/endpoint-eligible"] = "true".into();
        }
        object["metadata"]["labels"] = labels;
        object["metadata"]["annotations"] =
            if self.drain { json!({ "tandem.dev/drain": "" }) } else { json!({}) };
        set_ready(object, if self.ready { "True" } else { "False" }, None);
    }
}

impl Slot {
    fn new(kind: Kind, role: Role, guard: Guard, ip: u8) -> Self {
        Self { make: Make { kind, role, guard, ip }, pod: None, back: None, count: 0 }
    }

    /// The next Pod here: a namesake of the last one, or with a name of its own.
    pub(super) fn create(&mut self, api: &FakeKube, same_name: bool, second: u64) -> &Pod {
        self.count += usize::from(self.count == 0 || !same_name);
        let name = format!("{}-{}-{}", self.make.kind.name(), self.make.ip, self.count);
        let at = format!("2026-01-01T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60);
        let mut pod = Pod {
            name: name.clone(),
            uid: String::new(),
            member: true,
            eligible: true,
            ready: true,
            drain: false,
            ends: None,
        };
        let mut object: Value = PodSpec::new(&name).created(&at).ip(&address(self.make.ip)).build();
        pod.write(self.make, &mut object);
        pod.uid = api.create(object);
        self.back = None;
        self.pod.insert(pod)
    }

    /// Writes what was changed.
    pub(super) fn change(&mut self, api: &FakeKube, change: impl FnOnce(&mut Pod)) {
        let Some(pod) = &mut self.pod else { return };
        change(pod);
        api.update("default", &pod.name, |object| pod.write(self.make, object));
    }
}

/// Three plain engines, and for each kind of pair two prefills and three decodes.
pub(super) fn slots(guard: Guard) -> Vec<Slot> {
    let mut all = Vec::new();
    for (kind, role, count) in [
        (Kind::Plain, Role::Plain, 3),
        (Kind::Pull, Role::Prefill, 2),
        (Kind::Pull, Role::Decode, 3),
        (Kind::Rooms, Role::Prefill, 2),
        (Kind::Rooms, Role::Decode, 3),
    ] {
        for _ in 0..count {
            all.push(Slot::new(kind, role, guard, u8::try_from(all.len() + 1).unwrap()));
        }
    }
    all
}

//! What befalls Pods.

use tandem::testkit::kube::FakeKube;

use super::pods::{Kind, PORT, Pod};
use super::world::ADDRESSES;

/// Most Pods at once, and names that they share.
const MOST: usize = 12;
const NAMES: [&str; 14] =
    ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9", "n10", "n11", "n12", "n13"];

/// A change that was made: the Pod as it is now, its version, and in a word what it was.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) pod: Pod,
    pub(super) version: u64,
    pub(super) gone: bool,
    pub(super) what: &'static str,
}

/// The Pods there are, as the driver means them.
#[derive(Debug)]
pub(super) struct Fleet {
    kind: Kind,
    pub(super) pods: Vec<Pod>,
}

impl Fleet {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, pods: Vec::new() }
    }

    /// One random step; a re-creation is two changes. `second`: the age of a Pod that is created now.
    pub(super) fn step(&mut self, api: &FakeKube, random: &mut fastrand::Rng, second: u64) -> Vec<Made> {
        let few = self.pods.len() < 6;
        if self.pods.is_empty() || (self.pods.len() < MOST && random.u8(..if few { 3 } else { 8 }) == 0) {
            return vec![self.create(api, random, second)];
        }
        let index = random.usize(..self.pods.len());
        match random.u8(..100) {
            0..=3 => vec![self.force_delete(api, index)],
            4..=11 => self.create_again(api, random, second, index),
            12..=19 if !self.pods[index].deleting => {
                vec![self.change(api, index, "terminating", |pod| pod.deleting = true)]
            }
            12..=19 => vec![self.force_delete(api, index)],
            _ => vec![self.turn(api, random, index)],
        }
    }

    /// Some Pod is written again as it is; one is made if there is none.
    pub(super) fn touch(&mut self, api: &FakeKube, random: &mut fastrand::Rng, second: u64) -> Made {
        if self.pods.is_empty() {
            return self.create(api, random, second);
        }
        let index = random.usize(..self.pods.len());
        self.change(api, index, "touched", |_| {})
    }

    /// A Pod that serves: a new one, or one that did not.
    pub(super) fn serve(&mut self, api: &FakeKube, random: &mut fastrand::Rng, second: u64) -> Made {
        let ip = self.address(random);
        if self.pods.len() < MOST && random.bool() {
            let mut pod = Pod::new(self.free_name(random), ip, second);
            pod.role = self.role(random);
            return self.admit(api, pod, "serves");
        }
        let index = random.usize(..self.pods.len());
        self.serve_again(api, random, index)
    }

    fn serve_again(&mut self, api: &FakeKube, random: &mut fastrand::Rng, index: usize) -> Made {
        let ip = self.address(random);
        self.change(api, index, "serves again", |pod| {
            let before = pod.clone();
            *pod = Pod {
                uid: before.uid,
                deleting: before.deleting,
                ..Pod::new(&before.name, ip, before.created)
            };
            (pod.ip, pod.role) = (before.ip.or(pod.ip), before.role);
        })
    }

    /// A Pod stops serving, in one of the ways there are to come back from.
    pub(super) fn stop(&mut self, api: &FakeKube, random: &mut fastrand::Rng, second: u64) -> Made {
        if self.pods.is_empty() {
            return self.create(api, random, second);
        }
        let index = random.usize(..self.pods.len());
        match random.u8(..4) {
            0 | 1 => self.change(api, index, "no member", |pod| pod.member = false),
            2 => self.change(api, index, "not ready", |pod| pod.ready = Some("False")),
            _ => self.change(api, index, "not eligible", |pod| pod.eligible = false),
        }
    }

    /// The Pod with this UID serves again.
    pub(super) fn restore(&mut self, api: &FakeKube, random: &mut fastrand::Rng, uid: &str) -> Made {
        let index = self.index(uid);
        self.serve_again(api, random, index)
    }

    fn index(&self, uid: &str) -> usize {
        self.pods.iter().position(|pod| pod.uid == uid).unwrap()
    }

    fn role(&self, random: &mut fastrand::Rng) -> Option<&'static str> {
        let roles = self.kind.roles();
        roles[random.usize(..roles.len())]
    }

    fn free_name(&self, random: &mut fastrand::Rng) -> &'static str {
        let free = |name: &&str| self.pods.iter().all(|pod| pod.name != *name);
        let free: Vec<&str> = NAMES.into_iter().filter(free).collect();
        free[random.usize(..free.len())]
    }

    /// The Pod with this UID goes at once.
    pub(super) fn end(&mut self, api: &FakeKube, uid: &str) -> Made {
        let index = self.index(uid);
        self.force_delete(api, index)
    }

    fn create(&mut self, api: &FakeKube, random: &mut fastrand::Rng, second: u64) -> Made {
        let name = self.free_name(random);
        let ip = self.address(random);
        let mut pod = Pod::new(name, ip, second);
        pod.model = [None, None, None, Some("a"), Some("b"), Some("c")][random.usize(..6)];
        pod.role = self.role(random);
        if random.bool() {
            (pod.phase, pod.ready) = ("Pending", None);
            pod.ip = Some(ip).filter(|_| random.bool());
        }
        self.admit(api, pod, "created")
    }

    /// One that no Pod has, most of the time.
    fn address(&self, random: &mut fastrand::Rng) -> u8 {
        let taken = |ip: &u8| self.pods.iter().any(|pod| pod.ip == Some(*ip));
        let free: Vec<u8> = (1..=ADDRESSES).filter(|ip| !taken(ip)).collect();
        if free.is_empty() || random.u8(..6) == 0 {
            random.u8(1..=ADDRESSES)
        } else {
            free[random.usize(..free.len())]
        }
    }

    fn admit(&mut self, api: &FakeKube, mut pod: Pod, what: &'static str) -> Made {
        pod.uid = api.create(pod.object());
        self.pods.push(pod.clone());
        Made { pod, version: api.version(), gone: false, what }
    }

    pub(super) fn force_delete(&mut self, api: &FakeKube, index: usize) -> Made {
        let pod = self.pods.swap_remove(index);
        let version = api.force_delete("default", &pod.name);
        Made { pod, version, gone: true, what: "deleted" }
    }

    /// As a StatefulSet does: the same name, and often the same address.
    fn create_again(
        &mut self,
        api: &FakeKube,
        random: &mut fastrand::Rng,
        second: u64,
        index: usize,
    ) -> Vec<Made> {
        let gone = self.force_delete(api, index);
        let before = &gone.pod;
        let mut pod = Pod { created: second, ..Pod::new(&before.name, 1, second) };
        (pod.model, pod.role) = (before.model, before.role);
        pod.ip = before.ip.filter(|_| random.u8(..4) != 0).or_else(|| Some(self.address(random)));
        if random.u8(..3) == 0 {
            pod.ready = Some("False");
        }
        let created = self.admit(api, pod, "created again");
        vec![gone, created]
    }

    fn change(
        &mut self,
        api: &FakeKube,
        index: usize,
        what: &'static str,
        change: impl FnOnce(&mut Pod),
    ) -> Made {
        let pod = &mut self.pods[index];
        change(pod);
        let version = api.update("default", &pod.name, |object| pod.write(object));
        Made { pod: pod.clone(), version, gone: false, what }
    }

    /// Something about a Pod is another way round.
    fn turn(&mut self, api: &FakeKube, random: &mut fastrand::Rng, index: usize) -> Made {
        let ip = self.address(random);
        let (yes, number, role) = (random.u8(..4) != 0, random.usize(..4), self.role(random));
        let pod = &self.pods[index];
        // What stands in the way is put right more often than not, so that fleets live.
        if yes && pod.phase == "Pending" {
            return self.change(api, index, "runs", |pod| {
                (pod.phase, pod.ready) = ("Running", Some("True"));
                pod.ip.get_or_insert(ip);
            });
        }
        match random.u8(..40) {
            0..=13 => {
                let ready = if yes {
                    Some("True")
                } else {
                    [Some("False"), Some("Unknown"), None, Some("False")][number]
                };
                self.change(api, index, "ready?", |pod| pod.ready = ready)
            }
            14..=18 => self.change(api, index, "eligible?", |pod| pod.eligible = !pod.eligible || yes),
            19..=22 => self.change(api, index, "drain?", |pod| pod.drain = !pod.drain && !yes),
            23..=26 => self.change(api, index, "member?", |pod| pod.member = !pod.member || yes),
            27 | 28 => self.change(api, index, "role", |pod| pod.role = role),
            29 | 30 => self.change(api, index, "model", |pod| {
                pod.model = [None, Some("a"), Some("b"), Some("c")][number]
            }),
            31 => self.change(api, index, "revision", |pod| {
                pod.revision = [None, Some("r1"), Some("r2"), None][number]
            }),
            32 => self
                .change(api, index, "token", |pod| pod.token = [None, Some("t1"), Some("t2"), None][number]),
            33 | 34 => {
                let ports = [vec![PORT], vec![9000], vec![PORT, 9000], vec![9000, PORT]][number].clone();
                self.change(api, index, "ports", |pod| pod.ports = ports)
            }
            35 => self.change(api, index, "address", |pod| pod.ip = Some(ip).filter(|_| yes)),
            36 => self.change(api, index, "phase", |pod| pod.phase = if yes { "Running" } else { "Failed" }),
            37 => self.change(api, index, "restarted", |pod| {
                (pod.restarts, pod.ready) = (pod.restarts + 1, Some("False"))
            }),
            _ => self.change(api, index, "touched", |_| {}),
        }
    }
}

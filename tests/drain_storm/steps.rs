//! What befalls the Pods, the engines and the operators' orders.

use tandem::admin::DrainChange;
use tandem::types::clock::{Instant, now};

use super::fleet::Slot;
use super::host::Guard;
use super::ms;
use super::trouble::Trouble;
use super::world::{ROUTERS, World};

/// How often what was done.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) steps: u64,
    pub(super) withdrawals: u64,
    pub(super) restores: u64,
    pub(super) deletions: u64,
    pub(super) creations: u64,
    pub(super) orders: u64,
    pub(super) restarts: u64,
}

/// The Pods, and what is under way with them.
pub(super) struct Fleet {
    slots: Vec<Slot>,
    pub(super) trouble: Trouble,
    pub(super) done: Done,
    began: Instant,
    /// Whose turn it is, if it is no matter of chance.
    next: Option<usize>,
    /// Processes of Pods that are gone, and when they are.
    dying: Vec<(Instant, String)>,
}

impl Fleet {
    pub(super) fn new(guard: Guard) -> Self {
        let slots = super::fleet::slots(guard);
        let (trouble, done) = (Trouble::default(), Done::default());
        Self { slots, trouble, done, began: now(), next: None, dying: Vec::new() }
    }

    /// One random step; what it was.
    pub(super) async fn step(&mut self, world: &mut World, random: &mut fastrand::Rng) -> String {
        self.done.steps += 1;
        let index = self.next.take().unwrap_or_else(|| random.usize(..self.slots.len()));
        let slot = &mut self.slots[index];
        let Some(pod) = &slot.pod else {
            self.create(world, index, random.bool());
            return format!("slot {index}: created");
        };
        let (uid, ends) = (pod.uid.clone(), pod.ends.is_some());
        if !pod.is_well() && random.u8(..10) < 6 {
            self.done.restores += 1;
            slot.change(&world.api, super::fleet::Pod::heal);
            return format!("slot {index}: well again");
        }
        self.done.withdrawals += u64::from(pod.serves());
        match random.u8(..100) {
            0..=20 => slot.change(&world.api, |pod| pod.eligible = !pod.eligible),
            21..=36 => slot.change(&world.api, |pod| pod.ready = !pod.ready),
            37..=45 => slot.change(&world.api, |pod| pod.drain = !pod.drain),
            46..=55 => slot.change(&world.api, |pod| pod.member = !pod.member),
            56..=65 if !ends => self.delete(world, index, now() + ms(random.u64(50..3000))),
            56..=70 => self.force_delete(world, index, random),
            71..=82 => return self.order(world, &uid, random).await,
            83..=86 => {
                self.done.restarts += 1;
                world.restart(&uid);
                return format!("slot {index}: process restarted");
            }
            87..=94 => {
                // Between a decision and the first byte there is time now: what comes next comes to the same engine.
                self.next = Some(index);
                let ip = slot.make.ip;
                self.trouble.strike_dials(&world.nets, ip, random);
                return format!("slot {index}: dials");
            }
            _ => {
                self.trouble.strike(&world.api, random);
                return "trouble".to_owned();
            }
        }
        format!("slot {index} {}: {:?}", &uid[uid.len() - 6..], self.slots[index].pod)
    }

    fn create(&mut self, world: &mut World, index: usize, same_name: bool) {
        self.done.creations += 1;
        let second = (now() - self.began).as_secs();
        let slot = &mut self.slots[index];
        let uid = slot.create(&world.api, same_name, second).uid.clone();
        world.start(uid, slot.make);
    }

    /// Terminating from now on; its process serves to the end.
    fn delete(&mut self, world: &World, index: usize, ends: Instant) {
        self.done.deletions += 1;
        if let Some(pod) = &mut self.slots[index].pod {
            pod.ends = Some(ends);
            world.api.delete("default", &pod.name);
        }
    }

    /// Gone at once, and its process soon after; the next Pod may have its address before that.
    fn force_delete(&mut self, world: &World, index: usize, random: &mut fastrand::Rng) {
        self.done.deletions += 1;
        let slot = &mut self.slots[index];
        let Some(pod) = slot.pod.take() else { return };
        world.api.force_delete("default", &pod.name);
        slot.back = Some(now() + ms(random.u64(..2000)));
        self.dying.push((now() + ms(random.u64(..600)), pod.uid));
    }

    /// An operator's, at one router alone.
    async fn order(&mut self, world: &World, uid: &str, random: &mut fastrand::Rng) -> String {
        let router = random.usize(..ROUTERS);
        let drained = world.reports.newest(router).get(uid).map(|row| row.volatile_drain);
        let Some(drained) = drained else { return "nobody to drain".to_owned() };
        self.done.orders += 1;
        format!("router {router}: drain {uid} {}: {:?}", !drained, order(world, router, uid, !drained).await)
    }

    /// What is due by now.
    pub(super) fn tick(&mut self, world: &mut World) {
        self.trouble.tick(&world.api, &world.nets);
        for slot in &mut self.slots {
            let over = slot.pod.take_if(|pod| pod.ends.is_some_and(|at| at <= now()));
            if let Some(pod) = over {
                world.api.finish_delete("default", &pod.name);
                world.host(&pod.uid).kill();
                slot.back = Some(now() + ms(pod.uid.len() as u64 * 7));
            }
        }
        self.dying.retain(|(at, uid)| {
            if *at <= now() {
                world.host(uid).kill();
            }
            *at > now()
        });
        for index in 0..self.slots.len() {
            if self.slots[index].back.is_some_and(|at| at <= now()) {
                self.create(world, index, index.is_multiple_of(2));
            }
        }
    }

    /// Everything is well, and everyone is told.
    pub(super) async fn calm(&mut self, world: &mut World) {
        self.trouble.calm(&world.api, &world.nets);
        for index in 0..self.slots.len() {
            if self.slots[index].pod.is_none() {
                self.create(world, index, true);
            }
            self.slots[index].change(&world.api, super::fleet::Pod::heal);
        }
        for router in 0..ROUTERS {
            let drained: Vec<String> = world
                .reports
                .newest(router)
                .iter()
                .filter(|(_, row)| row.volatile_drain)
                .map(|(uid, _)| (*uid).to_owned())
                .collect();
            for uid in drained {
                order(world, router, &uid, false).await;
            }
        }
    }

    /// Every Pod that can serve is selectable at every router, and no other.
    pub(super) fn agrees(&self, world: &World) -> Result<(), String> {
        for router in 0..ROUTERS {
            let rows = world.reports.newest(router);
            for pod in self.slots.iter().filter_map(|slot| slot.pod.as_ref()) {
                let row = rows.get(pod.uid.as_str());
                let ordered = row.is_some_and(|row| row.volatile_drain);
                if row.is_some_and(|row| row.selectable) != (pod.serves() && !ordered) {
                    return Err(format!("router {router}: {pod:?} is shown as {row:?}"));
                }
            }
            let known = |uid: &str| self.slots.iter().flat_map(|slot| &slot.pod).any(|pod| pod.uid == uid);
            if let Some((_, row)) = rows.iter().find(|(uid, row)| row.selectable && !known(uid)) {
                return Err(format!("router {router}: no such Pod: {row:?}"));
            }
        }
        Ok(())
    }

    /// Every Pod goes.
    pub(super) fn end(&mut self, world: &mut World) {
        for slot in &mut self.slots {
            if let Some(pod) = slot.pod.take() {
                world.api.force_delete("default", &pod.name);
            }
            slot.back = None;
        }
    }
}

async fn order(world: &World, router: usize, uid: &str, drain: bool) -> Option<DrainChange> {
    let endpoints = &world.routers[router].admin.endpoints;
    let list = endpoints.list();
    let id = list.endpoints.iter().find(|e| e.pod_uid.as_deref() == Some(uid))?.id.clone();
    Some(endpoints.set_drain(&id, drain).await)
}

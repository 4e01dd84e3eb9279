//! The rollout, as a controller does it: one engine of the new release comes, one of the old goes, until no old one is left.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tandem::engine::Role;
use tandem::types::clock::now;
use tokio::time::sleep;

use super::fleet::{Fleet, Release, Size, ms};
use super::routers::{Admin, Word};

/// Longest wait for one change to be seen, or for one engine to carry nothing.
const LIMIT: Duration = Duration::from_mins(1);
/// How often routers are asked.
const EVERY: Duration = Duration::from_millis(10);
/// A router without reports: how long an engine has to have been idle before it is ended, and its Pod's grace period.
const SETTLE: Duration = Duration::from_secs(2);
const GRACE: Duration = Duration::from_secs(30);
/// The same: how long a new engine is waited for until it gets its first request.
const FIRST: Duration = Duration::from_secs(20);

/// What came of it.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Rolled {
    pub(crate) seconds: f64,
    /// From an engine's withdrawal to nothing left on it, by the slowest router's report.
    pub(crate) quiesce_ms: BTreeMap<String, f64>,
    /// Engines that were ended at the end of their grace period, busy.
    pub(crate) cut: u32,
    /// New engines that got no request in time; the roll went on.
    pub(crate) unused: u32,
    /// Requests that a cohort got while its weight was 0.
    pub(crate) at_zero: usize,
}

/// What tells the driver about routers.
pub(crate) struct Roll<'a> {
    /// Empty: a router that reports nothing.
    pub(crate) admins: &'a [Admin],
    pub(crate) split: bool,
    pub(crate) pause: Duration,
    pub(crate) size: Size,
    pub(crate) rolled: Rolled,
}

impl Roll<'_> {
    /// The whole of it. `half` is told when half of the decodes are new.
    pub(crate) async fn run(&mut self, fleet: &mut Fleet, half: impl Fn()) -> Result<(), String> {
        let began = now();
        let (mut prefills, decodes) = (self.size.prefills, self.size.decodes);
        let olds = |role| {
            let old = move |m: &super::fleet::Member| m.role == role && m.release == Release::Old;
            (0..fleet.members.len()).filter(|n| old(&fleet.members[*n])).collect::<Vec<_>>().into_iter()
        };
        let (mut old_prefills, mut old_decodes) = (olds(Role::Prefill), olds(Role::Decode));
        let mut weighted = None;
        // New prefills come evenly between the decodes, and the last old one leaves last.
        for step in 0..decodes {
            if step * self.size.prefills / decodes >= self.size.prefills - prefills {
                prefills -= 1;
                self.add(fleet, Role::Prefill).await?;
                if prefills + 1 < self.size.prefills {
                    self.remove(fleet, old_prefills.next()).await?;
                }
            }
            self.add(fleet, Role::Decode).await?;
            if self.split {
                if step == 0 {
                    self.rolled.at_zero += fleet.begun(Release::New);
                }
                let new = u32::try_from((step + 1) * 100 / decodes).unwrap_or(100);
                self.weigh(100 - new, new).await?;
                weighted = (new == 100).then(now);
            }
            self.remove(fleet, old_decodes.next()).await?;
            if step + 1 == decodes.div_ceil(2) {
                half();
            }
        }
        for place in old_prefills {
            self.remove(fleet, Some(place)).await?;
        }
        if let Some(at) = weighted {
            self.rolled.at_zero += fleet.begun_after(Release::Old, at);
        }
        self.rolled.seconds = began.elapsed().as_secs_f64();
        Ok(())
    }

    /// Until every router decides by these weights.
    async fn weigh(&self, old: u32, new: u32) -> Result<(), String> {
        self.admins.iter().for_each(|admin| admin.write_split(old, new));
        let began = now();
        for admin in self.admins {
            while !admin.has_split(old, new).await {
                if began.elapsed() > LIMIT {
                    return Err(format!("a router does not follow the split {old}:{new}"));
                }
                sleep(EVERY).await;
            }
        }
        Ok(())
    }

    async fn add(&mut self, fleet: &mut Fleet, role: Role) -> Result<(), String> {
        let place = fleet.add(role, Release::New).await;
        let uid = fleet.members[place].uid.clone();
        if !self.admins.is_empty() {
            return self.all(&uid, |word| word.selectable).await.map(drop);
        }
        let began = now();
        while !fleet.members[place].is_used() {
            if began.elapsed() > FIRST {
                self.rolled.unused += 1;
                break;
            }
            sleep(EVERY).await;
        }
        Ok(())
    }

    /// Withdraws, waits until nobody has anything there, ends the engine.
    async fn remove(&mut self, fleet: &mut Fleet, place: Option<usize>) -> Result<(), String> {
        let place = place.ok_or("no old engine is left")?;
        fleet.withdraw(place);
        let uid = fleet.members[place].uid.clone();
        if self.admins.is_empty() {
            let idle = fleet.idle(place, SETTLE, GRACE).await;
            self.rolled.cut += u32::from(!idle);
        } else {
            self.all(&uid, |word| !word.selectable).await?;
            fleet.members[place].acknowledged = Some(now());
            let words = self.all(&uid, |word| word.quiesced.is_some()).await?;
            let longest = words.iter().filter_map(|word| word.quiesced).max().unwrap_or_default();
            self.rolled.quiesce_ms.insert(fleet.members[place].name.clone(), ms(longest));
        }
        fleet.kill(place).await;
        sleep(self.pause).await;
        Ok(())
    }

    /// Until all routers say so of a Pod; what they said. A router that does not answer has not said so.
    async fn all(&self, uid: &str, is: impl Fn(&Word) -> bool) -> Result<Vec<Word>, String> {
        let began = now();
        loop {
            let mut words = Vec::new();
            for admin in self.admins {
                words.push(admin.word(uid).await);
            }
            let said: Option<Vec<Word>> = words.into_iter().collect();
            if let Some(said) = said
                && said.iter().all(&is)
            {
                return Ok(said);
            }
            if began.elapsed() > LIMIT {
                return Err(format!("routers do not say of {uid} what was waited for"));
            }
            sleep(EVERY).await;
        }
    }
}

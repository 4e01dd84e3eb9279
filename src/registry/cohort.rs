//! Cohorts: what may serve together, and what share of the new requests each gets (design: an operator's weight over
//! prefill/decode cohorts, decided once for each request before either leg).
//!
//! A snapshot's cohorts are built from its endpoints and the split in force. Without a split each pairing token (or, where
//! configured, each revision) is a cohort, weighted by what it can carry.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Role;
use super::endpoint::Endpoint;
use super::groups::Groups;
use super::shares::{Counts, Shares};
use super::split::{Split, takes};
use crate::config::{CohortsBy, SplitEntry};
use crate::metrics::UNCOVERED;

/// Name of the one cohort of a service whose endpoints are all alike.
const ALL: &str = "all";

/// Endpoints that serve together.
#[derive(Debug)]
pub struct Cohort {
    pub name: Arc<str>,
    weight: Weight,
    /// By the order of [`Role::ALL`].
    lists: [Vec<Arc<Endpoint>>; 3],
    groups: Groups,
    /// What it was given, over every snapshot that has a cohort of this name.
    pub counts: Arc<Counts>,
    /// Requests decided for it under this split.
    since: Arc<AtomicU64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weight {
    /// Relative to the other cohorts' weights.
    Fixed(u64),
    /// Selectable endpoints of the scarcer role.
    Capacity,
}

/// What a request needs of a cohort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A prefill and a decode that pair.
    Pair,
    /// An endpoint of this role, alone.
    One(Role),
}

impl Cohort {
    pub fn of(&self, role: Role) -> &[Arc<Endpoint>] {
        &self.lists[role as usize]
    }

    /// A request was decided for it.
    #[inline]
    pub fn request(&self) {
        self.counts.request();
        self.since.fetch_add(1, Ordering::Relaxed);
    }

    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Its share of the new requests, relative to the others'; 0: none at all (I2).
    pub fn weight(&self, need: Need) -> u64 {
        match self.weight {
            Weight::Fixed(weight) => weight,
            Weight::Capacity => self.capacity(need),
        }
    }

    /// The weight that a split gives it. `None`: it is weighted by what it can carry.
    pub fn fixed_weight(&self) -> Option<u64> {
        match self.weight {
            Weight::Fixed(weight) => Some(weight),
            Weight::Capacity => None,
        }
    }

    fn capacity(&self, need: Need) -> u64 {
        match need {
            Need::Pair => self.selectable(Role::Prefill).min(self.selectable(Role::Decode)),
            Need::One(role) => self.selectable(role),
        }
    }

    /// How many of this role may be given a new request.
    pub fn selectable(&self, role: Role) -> u64 {
        self.of(role).iter().filter(|e| e.is_selectable()).count() as u64
    }

    /// Why it cannot take a request now; `None`: it can. `usable`: what an attempt may still use.
    pub fn lacks(&self, need: Need, usable: impl Fn(&Endpoint) -> bool) -> Option<Uncovered> {
        let has = |role: Role| self.of(role).iter().any(|e| usable(e));
        match need {
            Need::One(role) if has(role) => None,
            Need::One(_) => Some(Uncovered::NoEndpoint),
            Need::Pair if !has(Role::Prefill) => Some(Uncovered::NoPrefill),
            Need::Pair if !has(Role::Decode) => Some(Uncovered::NoDecode),
            Need::Pair if !self.groups.are_split() => None,
            Need::Pair => {
                let paired = |p: &Arc<Endpoint>| usable(p) && self.groups.has_partner(p, &usable);
                let some = self.of(Role::Prefill).iter().any(paired);
                (!some).then_some(Uncovered::NoPair)
            }
        }
    }
}

/// Why a cohort with a weight takes nothing; in the order of [`UNCOVERED`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uncovered {
    /// No selectable endpoint of the role that is asked for.
    NoEndpoint,
    NoPrefill,
    NoDecode,
    /// Both are there, and no two of them pair.
    NoPair,
}

impl Uncovered {
    pub const ALL: [Self; 4] = [Self::NoEndpoint, Self::NoPrefill, Self::NoDecode, Self::NoPair];

    pub const fn as_str(self) -> &'static str {
        UNCOVERED[self as usize]
    }
}

/// The cohorts of these endpoints; at least one.
pub(super) fn cohorts(
    lists: &[Vec<Arc<Endpoint>>; 3],
    by: CohortsBy,
    split: Option<&Split>,
    shares: &Shares,
) -> Vec<Arc<Cohort>> {
    if let Some(split) = split {
        let of = |entry: &SplitEntry| {
            cohort(&entry.name(), Weight::Fixed(entry.weight), lists, shares, |e| takes(entry, e))
        };
        return split.entries.iter().map(of).collect();
    }
    let word = |endpoint: &Endpoint| match by {
        CohortsBy::Token => endpoint.token.clone(),
        CohortsBy::Revision => endpoint.revision.clone(),
    };
    let mut words: BTreeSet<String> = lists.iter().flatten().map(|endpoint| word(endpoint)).collect();
    // No token pairs with every token; no revision is a release of its own.
    if by == CohortsBy::Token {
        words.remove("");
    }
    if words.len() < 2 {
        return vec![cohort(ALL, Weight::Capacity, lists, shares, |_| true)];
    }
    let each = |name: &String| {
        let takes = |endpoint: &Endpoint| {
            let word = word(endpoint);
            word == *name || by == CohortsBy::Token && word.is_empty()
        };
        cohort(if name.is_empty() { "none" } else { name }, Weight::Capacity, lists, shares, takes)
    };
    words.iter().map(each).collect()
}

fn cohort(
    name: &str,
    weight: Weight,
    lists: &[Vec<Arc<Endpoint>>; 3],
    shares: &Shares,
    takes: impl Fn(&Endpoint) -> bool,
) -> Arc<Cohort> {
    let lists = lists.each_ref().map(|list| list.iter().filter(|e| takes(e)).cloned().collect::<Vec<_>>());
    let groups = Groups::of(lists.iter().flatten());
    let name: Arc<str> = name.into();
    let (counts, since) = (shares.of(&name), shares.since(&name));
    Arc::new(Cohort { name, weight, lists, groups, counts, since })
}

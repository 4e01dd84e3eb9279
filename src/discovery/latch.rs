//! Eligibility mode `observed`: a role needs the endpoint-eligible mark once its fleet carries it.
//!
//! An operator that does not label a role yet must not empty it, and one that has begun must be able to withdraw by removing
//! the label. So a role latches once every Ready Pod of it carries the mark, or once at least half do and two relists passed
//! with no newly marked one; with none marked it never does. It never un-latches by itself; a state file keeps it over
//! restarts. Pure.

use std::collections::HashSet;

use crate::types::role::Role;

/// Relists without a newly marked Pod, after which half is enough.
const QUIET: u32 = 2;

/// One service's latches.
#[derive(Debug, Default, Clone)]
pub struct Latches([Latch; 3]);

#[derive(Debug, Default, Clone)]
struct Latch {
    on: bool,
    /// UIDs that were seen marked.
    marked: HashSet<String>,
    quiet: u32,
}

/// A Ready Pod of a role.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    pub uid: &'a str,
    pub marked: bool,
}

impl Latches {
    /// Those that are on, by the order of [`Role::ALL`].
    pub fn on(&self) -> [bool; 3] {
        [self.0[0].on, self.0[1].on, self.0[2].on]
    }

    /// From the state file.
    pub fn restore(&mut self, role: Role) {
        self.0[role as usize].on = true;
    }

    /// Looks at every Ready Pod of a role after a complete list; `relist`: a further one. Whether it latched just now.
    pub fn look<'a>(&mut self, role: Role, pods: impl Iterator<Item = Seen<'a>>, relist: bool) -> bool {
        let latch = &mut self.0[role as usize];
        if latch.on {
            return false;
        }
        let (mut ready, mut marked, mut newly) = (0, HashSet::new(), false);
        for pod in pods {
            ready += 1;
            if pod.marked {
                newly |= !latch.marked.contains(pod.uid);
                marked.insert(pod.uid.to_owned());
            }
        }
        latch.quiet = if newly { 0 } else { latch.quiet + u32::from(relist) };
        latch.marked = marked;
        let count = latch.marked.len();
        let half = count * 2 >= ready && latch.quiet >= QUIET;
        latch.on = count > 0 && (count == ready || half);
        latch.on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(latches: &mut Latches, marks: &[bool], relist: bool) -> bool {
        let uids: Vec<String> = (0..marks.len()).map(|n| n.to_string()).collect();
        let pods = uids.iter().zip(marks).map(|(uid, marked)| Seen { uid, marked: *marked });
        latches.look(Role::Prefill, pods, relist)
    }

    #[test]
    fn none_marked_never_latches() {
        let mut latches = Latches::default();
        for _ in 0..100 {
            assert!(!look(&mut latches, &[false, false], true));
        }
        assert!(!look(&mut latches, &[], true));
        assert_eq!(latches.on(), [false; 3]);
    }

    #[test]
    fn all_marked_latches_at_once_and_for_good() {
        let mut latches = Latches::default();
        assert!(look(&mut latches, &[true, true], false));
        assert!(!look(&mut latches, &[false, false], true), "only once");
        assert_eq!(latches.on(), [true, false, false]);
    }

    #[test]
    fn half_latches_after_two_quiet_relists() {
        let mut latches = Latches::default();
        assert!(!look(&mut latches, &[true, false, false, false], true));
        assert!(!look(&mut latches, &[true, true, false, false], true), "one more");
        assert!(!look(&mut latches, &[true, true, false, false], false), "an event is no relist");
        assert!(!look(&mut latches, &[true, true, false, false], true));
        assert!(look(&mut latches, &[true, true, false, false], true));
        let mut less = Latches::default();
        assert!((0..9).all(|_| !look(&mut less, &[true, false, false], true)), "a third is not enough");
    }

    #[test]
    fn a_restored_latch_is_on() {
        let mut latches = Latches::default();
        latches.restore(Role::Decode);
        assert_eq!(latches.on(), [false, true, false]);
    }
}

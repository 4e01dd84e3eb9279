//! `auto` values, from what the process is given.

use std::fs;

use crate::config::Limits;
use crate::upstream::Pool;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft descriptor limit to the hard one and returns it: sockets are what a router is made of.
pub(super) fn descriptors() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.unwrap_or(1 << 20).max(current.unwrap_or(0));
    match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
        Ok(()) => wanted,
        Err(_) => current.unwrap_or(1024),
    }
}

/// `limits.connections: auto`: each relayed request needs a descriptor on both sides, and a reserve stays for the rest.
pub(super) fn connections(descriptors: u64) -> usize {
    usize::try_from(descriptors * 2 / 5).unwrap_or(usize::MAX).max(16)
}

/// Whether the descriptors suffice for the worst case: every place in use on both sides, and every pool full. If not, what
/// that takes.
pub(super) fn too_few(descriptors: u64, connections: usize, endpoints: usize, threads: usize) -> Option<u64> {
    let both_sides = (connections as u64).saturating_mul(2);
    let pools = (endpoints as u64).saturating_mul(Pool::capacity(threads) as u64);
    let needed = both_sides.saturating_add(pools);
    (needed > descriptors).then_some(needed)
}

/// `limits.buffered_bytes: auto`: a quarter of the memory the control group allows, else 1 GiB.
fn buffered_bytes() -> u64 {
    const ELSE: u64 = 1 << 30;
    // Version 2, then version 1; "max" and the huge number version 1 shows for "none" mean no limit.
    ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .filter_map(|text| text.trim().parse::<u64>().ok())
        .find(|limit| *limit < 1 << 50)
        .map_or(ELSE, |limit| limit / 4)
}

/// The budget of buffered bytes that these limits mean: at least one whole body.
pub(super) fn budget(limits: &Limits) -> u64 {
    limits.buffered_bytes.unwrap_or_else(|| buffered_bytes().max(limits.body))
}

/// `threads: auto`.
pub(super) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_held_against_connections_on_both_sides_and_full_pools() {
        let pools = 3 * Pool::capacity(2) as u64;
        assert_eq!(Pool::capacity(2), 2 * 32 + 256);
        assert_eq!(too_few(2000 + pools, 1000, 3, 2), None);
        assert_eq!(too_few(2000 + pools - 1, 1000, 3, 2), Some(2000 + pools));
        assert!(too_few(u64::MAX - 1, usize::MAX, usize::MAX, 1).is_some());
    }
}

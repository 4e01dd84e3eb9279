//! What an API server sends as an InferenceService. Nothing of it may end the process; weights are followed whole or not at all.
#![no_main]

use std::collections::HashSet;

use libfuzzer_sys::fuzz_target;
use tandem::discovery::ome::said;
use tandem::registry::Said;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let entries = match said(text) {
        Said::Weights(entries) => {
            assert_eq!(entries.iter().map(|entry| entry.weight).sum::<u64>(), 100);
            entries
        }
        Said::Stable(entries) => {
            assert!(entries.len() == 1 && entries[0].weight > 0 && !entries[0].prefill.is_empty());
            entries
        }
        Said::Unusable(why) => return assert!(!why.is_empty()),
        Said::Nothing | Said::Missing => return,
    };
    assert!((1..=64).contains(&entries.len()));
    let names: HashSet<String> = entries.iter().map(|entry| entry.name()).collect();
    assert!(names.len() == entries.len() && !names.contains(""));
});

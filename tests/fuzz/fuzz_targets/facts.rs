//! What engines say of themselves. Nothing of it may end the process, and what is kept of it is short.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tandem::config::{EngineKind, VllmConnector};
use tandem::discovery::facts::questions;
use tandem::registry::{EngineFacts, Fact};

fuzz_target!(|data: &[u8]| {
    for engine in [EngineKind::Plain, EngineKind::Sglang, EngineKind::Vllm(VllmConnector::Nixl)] {
        for (_, read) in questions(engine) {
            let mut facts = EngineFacts::default();
            read(data, &mut facts);
            for fact in Fact::ALL {
                assert!(facts.get(fact).is_none_or(|value| (1..=200).contains(&value.len())));
            }
            let before = facts.clone();
            read(data, &mut facts);
            assert_eq!(facts, before);
        }
    }
});

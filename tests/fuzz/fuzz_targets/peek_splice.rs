//! Any bytes as a request body: the peek takes and refuses exactly what `serde_json` does (with a nesting limit), its
//! places are right, and edited bodies are what the same edits on the parsed members give. The oracle is shared with
//! the unit tests.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| tandem::proxy::request::oracle::check(body));

//! Peek and splices.

use bytes::Bytes;
use tandem::proxy::dispatch::pair_bodies;
use tandem::proxy::request::id::RequestId;
use tandem::proxy::request::peek::peek;
use tandem::proxy::request::splice::without_owned;

use crate::bench::Bench;
use crate::inputs::{chat, prefilled};

pub(crate) fn run(bench: &mut Bench) {
    for (name, len) in [("200 B", 200), ("108 KB", 108 << 10), ("1 MB", 1 << 20)] {
        let body = chat(len, true);
        bench.of(&format!("peek/{name}"), 16, || peek(&body));
    }
    let ids = Bytes::from(format!("{{\"input_ids\":[{}]}}", vec!["12345"; 18_000].join(",")));
    bench.of("peek/108 KB of token ids", 4, || peek(&ids));

    let id = RequestId::accept(b"0199a7c2-7f10-7abc-8000-3f1de0c0ffee").unwrap();
    for (name, len) in [("200 B", 200), ("108 KB", 108 << 10)] {
        let body = chat(len, true);
        let seen = peek(&body).unwrap();
        bench.of(&format!("splice/one leg, {name}"), 16, || without_owned(&body, &seen));
        bench.of(&format!("splice/SGLang pair, {name}"), 16, || pair_bodies::sglang(&body, &seen, &id));
        let answer = prefilled(16);
        bench.of(&format!("splice/vLLM pair, {name}"), 16, || {
            pair_bodies::vllm(&body, &seen, &answer).unwrap()
        });
    }
    let (body, answer) = (chat(200, true), prefilled(4_000));
    let seen = peek(&body).unwrap();
    bench.of("splice/vLLM pair, 4,000 blocks", 4, || pair_bodies::vllm(&body, &seen, &answer).unwrap());
}

//! Cost of the body peek, per body. Path covered: `proxy::request::peek::peek` alone, no I/O.
//!
//! `cargo bench --profile quick --bench peek`. Beside each: a skip by `serde_json` after a UTF-8 check, which is what
//! the peek would cost with that crate and still without a nesting limit.
#![expect(clippy::disallowed_methods, reason = "a bench reads the time")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::de::IgnoredAny;
use tandem::proxy::request::peek::peek;

fn chat(content: &str, len: usize) -> String {
    let mut body =
        String::from(r#"{"model":"mistral-7b-instruct","messages":[{"role":"system","content":"be brief"}"#);
    while body.len() < len {
        body.push_str(r#",{"role":"user","content":""#);
        for _ in 0..8 {
            body.push_str(content);
        }
        body.push_str("\"}");
    }
    body.push_str(r#"],"max_tokens":64,"temperature":0.7,"top_p":0.95,"stream":true,"stream_options":{"include_usage":true},"user":"u-1"}"#);
    body
}

/// Best of five runs of 200 ms each: the others were disturbed.
fn time(mut f: impl FnMut()) -> Duration {
    (0..5)
        .map(|_| {
            let (start, mut n) = (Instant::now(), 0u32);
            while start.elapsed() < Duration::from_millis(200) {
                for _ in 0..16 {
                    f();
                }
                n += 16;
            }
            start.elapsed() / n
        })
        .min()
        .unwrap_or_default()
}

fn main() {
    let plain =
        "The quick brown fox jumps over the lazy dog, twice, and then it rests for a while in the shade. ";
    let code = "    if value > limit {\\n        return Err(\\\"too large\\\");\\n    }\\n\\n";
    let chinese = "路由器把请求的前缀送到预填充引擎，然后由解码引擎继续生成。";
    let ids = format!("{{\"input_ids\":[{}]}}", vec!["12345"; 18_000].join(","));
    let bodies = [
        ("chat 2.6 KB", chat(plain, 2_100)),
        ("chat 108 KB", chat(plain, 107_500)),
        ("code 108 KB", chat(code, 107_500)),
        ("chinese 108 KB", chat(chinese, 107_500)),
        ("token ids 108 KB", ids),
    ];
    println!("{:18} {:>8} {:>12} {:>12}", "body", "bytes", "peek", "serde_json");
    for (name, body) in &bodies {
        let ours = time(|| drop(black_box(peek(black_box(body.as_bytes())))));
        let theirs = time(|| {
            let text = std::str::from_utf8(black_box(body.as_bytes())).unwrap_or_default();
            drop(black_box(serde_json::from_str::<IgnoredAny>(text)));
        });
        println!("{name:18} {:8} {ours:>12.2?} {theirs:>12.2?}", body.len());
    }
}

//! What single steps of the request path cost, in instructions: figures that a busy machine does not move.
//!
//! `python3 benches/counts.py` runs this under callgrind, where only [`bench::counted_part`] is counted, and compares with
//! `benches/counts.json`. `cargo bench --profile counts --bench counts` gives times instead. No I/O, no threads; set-up is outside
//! the counted part. Paths covered, in the order of a request: body peek, splices, cohort and endpoint, gate, upstream request
//! head, engine's head, chunked decoding, event observer, access line, and whole requests without the two sockets.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "a bench reads the time")]

mod bench;
mod bodies;
mod chat;
mod inputs;
mod select;
mod wire;

/// The router's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let mut bench = bench::Bench::from_arguments();
    bodies::run(&mut bench);
    select::run(&mut bench);
    wire::run(&mut bench);
    for case in chat::cases() {
        chat::chat(&mut bench, case);
    }
}

//! How often the request path allocates: whole requests and single events, in process, against a budget.
//!
//! The requests are those whose instructions are counted (`benches/counts`), with engines that are a buffer each: once as
//! hyper gives them to the pipeline (`chat/…`), once over a client's connection with hyper's server side (`whole/…`). The sockets
//! are not in it. The counts are the same in every
//! run. `cargo nextest run --test allocations --success-output final` prints the table.

#![expect(clippy::unwrap_used, reason = "steps shared with the bench, where nothing comes from outside")]

#[path = "../../benches/counts/chat.rs"]
mod chat;
#[path = "../../benches/counts/inputs.rs"]
mod inputs;
mod whole;

/// The bench's way to be told of steps; here they are counted.
mod bench {
    use std::hint::black_box;

    use allocation_counter::measure;

    /// Steps with their allocations and bytes.
    #[derive(Debug, Default)]
    pub(crate) struct Bench {
        pub(crate) steps: Vec<(String, f64, f64)>,
    }

    impl Bench {
        pub(crate) fn with<I, R>(
            &mut self,
            name: &str,
            times: u32,
            mut input: impl FnMut() -> I,
            mut step: impl FnMut(I) -> R,
        ) {
            let mut batch = || {
                // The same random choices each time.
                fastrand::seed(1);
                let mut inputs: Vec<I> = (0..times).map(|_| input()).collect();
                measure(|| inputs.drain(..).for_each(|input| drop(black_box(step(black_box(input))))))
            };
            // Lazy tables, pools and buffers that grow once belong to no request.
            for _ in 0..3 {
                batch();
            }
            let found = batch();
            let each = |total: u64| total as f64 / f64::from(times);
            self.steps.push((name.to_owned(), each(found.count_total), each(found.bytes_total)));
        }
    }
}

/// Most a step may take: allocations, exactly what they are now, and bytes, a little more than now (types change their sizes).
/// One allocation for five events over a connection: the engine has the next event at once, so hyper still holds the last frames
/// when the buffer that they were read into is used up. An event that is written before the next one comes takes none.
const BUDGET: [(&str, f64, f64); 12] = [
    ("chat/one leg", 15.0, 8_000.0),
    ("chat/one leg, 108 KB", 15.0, 8_000.0),
    ("chat/SGLang pair", 40.0, 20_000.0),
    ("chat/vLLM pair", 36.0, 18_000.0),
    ("chat/stream of 200 events, one leg", 16.0, 8_000.0),
    ("chat/one event", 0.0, 0.0),
    ("whole/one leg", 22.0, 18_000.0),
    ("whole/one leg, 108 KB", 22.0, 150_000.0),
    ("whole/SGLang pair", 47.0, 30_000.0),
    ("whole/vLLM pair", 43.0, 28_000.0),
    ("whole/stream of 200 events, one leg", 65.0, 64_000.0),
    ("whole/one event", 0.25, 225.0),
];

#[test]
fn allocations_stay_within_their_budget() {
    let steps = [steps("chat", chat::chat), steps("whole", whole::whole)].concat();
    println!("{:36} {:>11} {:>9}", "for each", "allocations", "bytes");
    for (name, count, bytes) in &steps {
        println!("{name:36} {count:11.2} {bytes:9.0}");
    }
    let names: Vec<&str> = steps.iter().map(|(name, ..)| &**name).collect();
    assert_eq!(names, BUDGET.map(|(name, ..)| name), "every step has a budget");
    let over =
        steps.iter().zip(BUDGET).filter(|((_, count, bytes), most)| *count > most.1 || *bytes > most.2);
    let over: Vec<_> = over.collect();
    assert!(
        over.is_empty(),
        "more than the budget; if that is meant, it is changed here, with the reason in the commit: {over:?}"
    );
}

/// All cases `by` one way, and what one event more of a stream takes.
fn steps(kind: &str, by: impl Fn(&mut bench::Bench, chat::Case)) -> Vec<(String, f64, f64)> {
    let mut bench = bench::Bench::default();
    for case in chat::cases() {
        by(&mut bench, case);
    }
    let mut shorter = bench::Bench::default();
    by(&mut shorter, chat::stream(100));
    let (long, short) = (bench.steps.last().unwrap(), shorter.steps.last().unwrap());
    let event = (format!("{kind}/one event"), (long.1 - short.1) / 100.0, (long.2 - short.2) / 100.0);
    bench.steps.push(event);
    bench.steps
}

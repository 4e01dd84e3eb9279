//! What a line may contain, and that the sink never costs more than lines.

use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::config::{LogFormat, LogSink};
use crate::metrics::{Metrics, Vocabulary};

fn record(model: &str) -> AccessRecord<'_> {
    AccessRecord {
        request_id: "0199a7c2-7f10-7abc-8000-3f1de0c0ffee",
        peer: IpAddr::from([10, 0, 0, 9]),
        protocol: "h2",
        method: "POST",
        route: "chat_completions",
        model: Some(model),
        service: "chat",
        endpoint: Some("http://10.0.0.7:8000"),
        pair: Some(AccessPair {
            prefill: "http://10.0.0.3:8000",
            prefill_us: Some(61_020),
            decode_us: Some(18_400),
            handoff_us: Some(73),
            spans: Some(["0af7651916cd43dd8448eb211c80319c", "53ce929d0e0e4736", "00f067aa0ba902b7"]),
        }),
        cohort: Some("r2"),
        split_version: Some(3),
        stream: true,
        status: 200,
        outcome: Outcome::Ok,
        error: None,
        attempts: 2,
        retried: &[("prefill", "busy")],
        budget_exhausted: false,
        bytes_in: 2611,
        bytes_out: 48_213,
        ttfb_us: Some(81_250),
        duration_us: 2_250_113,
        events: 212,
        longest_gap_us: Some(31_007),
    }
}

fn text(format: LogFormat, record: &AccessRecord<'_>) -> String {
    let mut out = Vec::new();
    line::write(&mut out, format, &mut Stamp::default(), 1_795_984_680_123, record);
    String::from_utf8(out).unwrap()
}

fn json(record: &AccessRecord<'_>) -> Value {
    serde_json::from_str(&text(LogFormat::Json, record)).unwrap()
}

fn metrics() -> AccessLogMetrics {
    let words = Vocabulary { routes: &[], error_codes: &[], retry_reasons: &[], phases: &[] };
    Metrics::new(&words).unwrap().router.access_log.clone()
}

fn config(sink: LogSink, sample: f64) -> config::AccessLog {
    config::AccessLog { sink, format: LogFormat::Json, sample }
}

#[test]
fn the_documented_line_is_what_is_written() {
    let document = include_str!("../../../docs/access-log.md");
    let line = text(LogFormat::Json, &record("mistral-7b"));
    assert!(document.contains(&line), "{line}");
    let with_error = AccessRecord { error: Some("no_endpoint"), budget_exhausted: true, ..record("m") };
    let Value::Object(fields) = json(&with_error) else { panic!("not an object") };
    let documented: Vec<&str> =
        document.lines().filter_map(|row| row.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(documented.len(), fields.len());
    assert!(documented.iter().all(|name| fields.contains_key(*name)), "{documented:?}");
}

#[test]
fn text_has_the_same_fields() {
    let line = text(LogFormat::Text, &record("a \"b\"\nc"));
    let expected = concat!(
        "2026-11-29T20:38:00.123Z request_id=\"0199a7c2-7f10-7abc-8000-3f1de0c0ffee\" peer=10.0.0.9 protocol=h2 ",
        "method=\"POST\" route=chat_completions model=\"a \\\"b\\\"\\nc\" service=\"chat\" ",
        "endpoint=\"http://10.0.0.7:8000\" prefill=\"http://10.0.0.3:8000\" cohort=\"r2\" split_version=3 stream=true status=200 outcome=ok attempts=2 retried=\"prefill_busy\" ",
        "bytes_in=2611 bytes_out=48213 ttfb_us=81250 prefill_us=61020 handoff_us=73 decode_us=18400 ",
        "duration_us=2250113 events=212 longest_gap_us=31007 trace_id=\"0af7651916cd43dd8448eb211c80319c\" ",
        "prefill_span_id=\"53ce929d0e0e4736\" decode_span_id=\"00f067aa0ba902b7\"\n",
    );
    assert_eq!(line, expected);
}

#[test]
fn a_model_is_cut_at_a_character_of_at_most_128_bytes() {
    let shown = |model: &str| json(&record(model))["model"].as_str().unwrap().to_owned();
    assert_eq!(shown(&"a".repeat(128)).len(), 128);
    assert_eq!(shown(&"a".repeat(129)).len(), 128);
    assert_eq!(shown(&format!("{}é", "a".repeat(127))), "a".repeat(127));
    assert_eq!(shown(&"😀".repeat(40)), "😀".repeat(32));
    assert_eq!(shown(&format!("a{}", "😀".repeat(40))), format!("a{}", "😀".repeat(31)));
}

#[test]
fn nothing_that_moves_a_cursor_or_turns_text_appears_as_itself() {
    let hostile: String = (0..0x20_u32)
        .chain(0x7f..0xa0)
        .chain([0x200e, 0x200f])
        .chain(0x2028..0x202f)
        .chain(0x2066..0x206a)
        .filter_map(char::from_u32)
        .collect();
    for part in hostile.chars() {
        for format in [LogFormat::Json, LogFormat::Text] {
            let line = text(format, &record(&format!("x{part}y")));
            assert!(!line.trim_end_matches('\n').contains(part), "{part:?} in {line:?}");
        }
        assert_eq!(json(&record(&format!("x{part}y")))["model"], format!("x{part}y"));
    }
    assert_eq!(json(&record("é€—’\u{c2}"))["model"], "é€—’\u{c2}");
}

#[test]
fn a_mapped_peer_is_shown_as_the_address_it_is() {
    let peer = |peer| json(&AccessRecord { peer, ..record("m") })["peer"].clone();
    assert_eq!(peer(IpAddr::from(Ipv6Addr::LOCALHOST)), "::1");
    assert_eq!(peer("::ffff:192.0.2.255".parse().unwrap()), "192.0.2.255");
}

proptest! {
    #[test]
    fn any_text_gives_one_line_of_valid_json(model in any::<String>(), id in any::<String>(), method in "\\PC*") {
        let record = AccessRecord { request_id: &id, method: &method, endpoint: Some(&model), ..record(&model) };
        let line = text(LogFormat::Json, &record);
        prop_assert_eq!(line.matches('\n').count(), 1);
        prop_assert_eq!(&line[line.len() - 2..], "}\n");
        let value: Value = serde_json::from_str(&line).unwrap();
        prop_assert!(model.starts_with(value["model"].as_str().unwrap()));
        prop_assert!(id.starts_with(value["request_id"].as_str().unwrap()));
        prop_assert_eq!(text(LogFormat::Text, &record).matches('\n').count(), 1);
    }
}

/// A sink that takes nothing while the gate is shut.
struct Gated(Arc<AtomicBool>);

impl Write for Gated {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        while !self.0.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl From<File> for Gated {
    fn from(_: File) -> Self {
        unreachable!("not reopened")
    }
}

#[test]
fn a_stuck_sink_never_blocks_and_every_lost_line_is_counted() {
    let metrics = metrics();
    let open = Arc::new(AtomicBool::new(false));
    let config = config(LogSink::Stdout, 1.0);
    let sink = AccessSink::with_target(&config, metrics.clone(), Gated(Arc::clone(&open)), None).unwrap();
    let log = sink.handle();
    let start = clock::now();
    let lines = 20_000;
    for _ in 0..lines {
        log.log(&record("m"));
    }
    let spent = clock::now() - start;
    assert!(spent < Duration::from_secs(5), "{spent:?}");
    let dropped = metrics.dropped_lines.get();
    assert!(dropped > 0, "8 MB of lines went into a queue of 2 MB");
    assert_eq!(metrics.lines.get(), 0);
    open.store(true, Ordering::Release);
    assert!(sink.close(Duration::from_secs(20)));
    assert_eq!(metrics.lines.get() + metrics.dropped_lines.get(), lines);
    log.log(&record("m"));
    log.flush();
    assert_eq!(metrics.lines.get() + metrics.dropped_lines.get(), lines + 1, "after close: dropped, counted");
}

#[test]
fn closing_a_stuck_sink_gives_up_after_its_time() {
    let open = Arc::new(AtomicBool::new(false));
    let config = config(LogSink::Stdout, 1.0);
    let sink = AccessSink::with_target(&config, metrics(), Gated(Arc::clone(&open)), None).unwrap();
    let log = sink.handle();
    log.log(&record("m"));
    log.flush();
    let start = clock::now();
    assert!(!sink.close(Duration::from_millis(50)));
    assert!(clock::now() - start < Duration::from_secs(5));
    open.store(true, Ordering::Release);
}

#[test]
fn close_writes_what_every_handle_holds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("access.log");
    let metrics = metrics();
    let sink = AccessSink::start(&config(LogSink::File(path.clone()), 1.0), metrics.clone()).unwrap();
    let (a, b) = (sink.handle(), sink.handle());
    a.log(&record("a"));
    b.log(&record("b"));
    sink.handle().log(&record("c"));
    assert!(sink.close(Duration::from_secs(20)));
    let written = std::fs::read_to_string(path).unwrap();
    let mut models: Vec<String> = written
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["model"].as_str().unwrap().to_owned())
        .collect();
    models.sort();
    assert_eq!(models, ["a", "b", "c"]);
    assert_eq!(metrics.lines.get(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_line_waits_at_most_200_ms_for_its_flush() {
    let metrics = metrics();
    let open = Arc::new(AtomicBool::new(true));
    let config = config(LogSink::Stdout, 1.0);
    let sink = AccessSink::with_target(&config, metrics.clone(), Gated(open), None).unwrap();
    let log = sink.handle();
    let waits = |log: &AccessLog| log.0.as_ref().is_some_and(|local| local.pending.lock().batch.lines > 0);
    log.log(&record("m"));
    tokio::time::advance(Duration::from_millis(199)).await;
    log.flush_if_due(clock::now());
    assert!(waits(&log));
    tokio::time::advance(Duration::from_millis(1)).await;
    log.flush_if_due(clock::now());
    assert!(!waits(&log));
    drop(log);
    tokio::time::resume();
    assert!(sink.close(Duration::from_secs(20)));
    assert_eq!(metrics.lines.get(), 1);
}

#[test]
fn sampling_spares_only_what_went_well() {
    let dir = tempfile::tempdir().unwrap();
    for (sample, expected) in [(0.0, 400..=400), (0.5, 500..=700), (1.0, 800..=800)] {
        let path = dir.path().join(sample.to_string());
        let sink = AccessSink::start(&config(LogSink::File(path.clone()), sample), metrics()).unwrap();
        let log = sink.handle();
        for _ in 0..400 {
            log.log(&record("m"));
            log.log(&AccessRecord { outcome: Outcome::ClientCancelled, ..record("m") });
        }
        assert!(sink.close(Duration::from_secs(20)));
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text.matches("client_cancelled").count(), 400);
        assert!(expected.contains(&text.lines().count()), "{sample}: {}", text.lines().count());
    }
}

#[test]
fn reopening_follows_a_rotated_file() {
    let dir = tempfile::tempdir().unwrap();
    let (path, rotated) = (dir.path().join("log"), dir.path().join("log.1"));
    let sink = AccessSink::start(&config(LogSink::File(path.clone()), 1.0), metrics()).unwrap();
    let log = sink.handle();
    log.log(&record("before"));
    log.flush();
    std::fs::rename(&path, &rotated).unwrap();
    assert!(sink.reopen());
    log.log(&record("after"));
    assert!(sink.close(Duration::from_secs(20)));
    assert!(std::fs::read_to_string(rotated).unwrap().contains("before"));
    let after = std::fs::read_to_string(path).unwrap();
    assert!(after.contains("after") && !after.contains("before"));
}

#[test]
fn off_writes_nothing_and_a_missing_directory_is_an_error() {
    let sink = AccessSink::start(&config(LogSink::Off, 1.0), metrics()).unwrap();
    sink.handle().log(&record("m"));
    assert!(sink.reopen() && sink.close(Duration::ZERO));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("none").join("log");
    assert!(AccessSink::start(&config(LogSink::File(path), 1.0), metrics()).is_err());
}

/// Takes `room` bytes, then fails until more is allowed; keeps what it took.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<(usize, Vec<u8>)>>);

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (room, kept) = &mut *self.0.lock();
        if *room == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let taken = bytes.len().min(*room);
        *room -= taken;
        kept.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl From<File> for Disk {
    fn from(_: File) -> Self {
        unreachable!("not reopened")
    }
}

#[test]
fn a_full_disk_damages_one_line_and_is_counted() {
    let metrics = metrics();
    let disk = Disk::default();
    let width = text(LogFormat::Json, &record("m")).len();
    disk.0.lock().0 = width + 10;
    let config = config(LogSink::Stdout, 1.0);
    let sink = AccessSink::with_target(&config, metrics.clone(), disk.clone(), None).unwrap();
    let log = sink.handle();
    for _ in 0..3 {
        log.log(&record("m"));
    }
    log.flush();
    while metrics.write_errors.get() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    disk.0.lock().0 = usize::MAX;
    log.log(&record("m"));
    assert!(sink.close(Duration::from_secs(20)));
    assert_eq!((metrics.lines.get(), metrics.dropped_lines.get(), metrics.write_errors.get()), (2, 2, 1));
    let written = String::from_utf8(disk.0.lock().1.clone()).unwrap();
    let valid: Vec<bool> = written.lines().map(|line| serde_json::from_str::<Value>(line).is_ok()).collect();
    assert_eq!(valid, [true, false, true], "{written}");
}

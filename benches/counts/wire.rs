//! What is written to engines, read from them, seen in passing, and logged.

use std::fs::File;

use bytes::{Bytes, BytesMut};
use http::Method;
use tandem::config::{AccessLog, LogFormat, LogSink};
use tandem::metrics::{Metrics, Vocabulary};
use tandem::proxy::relay::Observer;
use tandem::proxy::request::headers::{Credentials, Forward, write_head};
use tandem::telemetry::access::{AccessPair, AccessRecord, AccessSink};
use tandem::types::outcome::Outcome;
use tandem::upstream::{BodyFraming, Decoder, Frame, parse};

use crate::bench::Bench;
use crate::inputs::{self, DONE, STREAM_HEAD, chunk, event};

pub(crate) fn run(bench: &mut Bench) {
    let forward = Forward {
        authority: "10.0.0.7:8000",
        peer: "10.0.0.9",
        tls: false,
        credentials: Credentials::Pass,
        cookies: false,
        plain_answer: false,
        span: None,
        request_id: b"0123456789abcdef-0199a7c2-7f10-7abc-8000-3f1de0c0ffee",
        cohort: Some(("r2", 3)),
    };
    let parts = inputs::parts(200);
    let out = || BytesMut::with_capacity(2048);
    bench.with("head/written to an engine", 16, out, |mut out| {
        write_head(&mut out, &parts, &forward, Some(200));
        out
    });
    for (name, bytes) in [("plain", inputs::answer()), ("stream", Bytes::from_static(STREAM_HEAD.as_bytes()))]
    {
        let buffer = || BytesMut::from(&bytes[..]);
        bench.with(&format!("head/engine's, {name}"), 16, buffer, |mut buffer| {
            let head = parse(&mut buffer, &Method::POST).unwrap().unwrap();
            (head, buffer)
        });
    }
    let events: Vec<String> = (0..64).map(event).collect();
    let chunks: String =
        events.iter().map(|event| chunk(event)).collect::<String>() + &chunk(DONE) + "0\r\n\r\n";
    let stream = || (Decoder::new(BodyFraming::Chunked), BytesMut::from(chunks.as_bytes()));
    bench.with("decode/64 events in one read", 4, stream, |(mut decoder, mut buffer)| {
        while let Frame::Data(data) = decoder.step(&mut buffer).unwrap() {
            drop(data);
        }
        assert!(decoder.is_done());
    });
    let one = chunk(&events[0]);
    let step = || (Decoder::new(BodyFraming::Chunked), BytesMut::from(one.as_bytes()));
    bench.with("decode/one event", 64, step, |(mut decoder, mut buffer)| decoder.step(&mut buffer).unwrap());

    let observer = || Observer::new(Some(b"text/event-stream; charset=utf-8"), false);
    bench.with("observe/one event", 64, observer, |mut observer| observer.see(events[0].as_bytes(), false));
    let all = events.concat() + DONE;
    bench.with("observe/64 events in one read", 4, observer, |mut observer| {
        observer.see(all.as_bytes(), true)
    });
    access(bench);
}

fn access(bench: &mut Bench) {
    let words = Vocabulary { routes: &["chat"], error_codes: &[], retry_reasons: &[], phases: &["running"] };
    let metrics = Metrics::new(&words).unwrap();
    for (name, format) in [("JSON", LogFormat::Json), ("text", LogFormat::Text)] {
        let config = AccessLog { sink: LogSink::Off, format, sample: 1.0 };
        let null = File::options().write(true).open("/dev/null").unwrap();
        let sink = AccessSink::to(&config, metrics.router.access_log.clone(), null).unwrap();
        let log = sink.handle();
        // A buffer is handed over at 32 KiB: what is counted stays below that, from an empty one on.
        bench.with(&format!("access/a line of {name}"), 16, || (), |()| log.log(&record()));
        log.flush();
    }
}

fn record() -> AccessRecord<'static> {
    AccessRecord {
        request_id: "0199a7c2-7f10-7abc-8000-3f1de0c0ffee",
        peer: [10, 0, 0, 9].into(),
        protocol: "h1",
        method: "POST",
        route: "chat_completions",
        model: Some("mistral-7b-instruct"),
        service: "llm",
        endpoint: Some("http://10.0.0.7:8000"),
        pair: Some(AccessPair {
            prefill: "http://10.0.0.3:8000",
            prefill_us: Some(61_020),
            decode_us: Some(18_400),
            handoff_us: Some(73),
            spans: None,
        }),
        cohort: Some("r2"),
        split_version: Some(3),
        stream: true,
        status: 200,
        outcome: Outcome::Ok,
        error: None,
        attempts: 1,
        retried: &[],
        budget_exhausted: false,
        bytes_in: 2611,
        bytes_out: 48_213,
        ttfb_us: Some(81_250),
        duration_us: 2_250_113,
        events: 212,
        longest_gap_us: Some(31_007),
    }
}

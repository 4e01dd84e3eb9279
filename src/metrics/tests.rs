//! The list of names, the registries and `docs/metrics.md` say the same; endpoint series come and go with endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::names::{ALL, Family, Kind, Page, Stability};
use super::*;
use crate::types::clock;
use crate::types::outcome::{LegOutcome, Outcome};

const WORDS: Vocabulary = Vocabulary {
    routes: &["chat_completions", "completions", "unknown"],
    error_codes: &["invalid_json", "no_endpoint"],
    retry_reasons: &["connect_failed", "busy"],
    phases: &["running", "unready", "draining"],
};

fn metrics() -> Arc<Metrics> {
    Metrics::new(&WORDS).unwrap()
}

fn seen(route: usize, outcome: Outcome) -> Observed {
    let first_byte = Some(Duration::from_millis(80));
    Observed { route, outcome, duration: Duration::from_millis(700), first_byte }
}

/// One of everything.
fn exercised() -> (Arc<Metrics>, EndpointMetrics) {
    let metrics = metrics();
    let service = metrics.requests.service("svc").unwrap();
    service.ended(seen(0, Outcome::Ok));
    service.leg(LegOutcome::Ok);
    service.leg_time("decode", Duration::from_millis(700), Some(Duration::from_millis(80)));
    service.leg_time("mixed", Duration::from_millis(700), None);
    service.handed_over(Duration::from_millis(1));
    service.retry("mixed", "busy");
    service.budget_exhausted();
    metrics.router.error("no_endpoint");
    let endpoint = metrics.endpoints.for_endpoint("http://10.0.0.1:8000", "mixed");
    endpoint.leg(LegOutcome::Ok, Duration::from_millis(700), Some(Duration::from_millis(80)));
    let pods = metrics.discovery.service("svc").unwrap();
    pods.list_failed("timeout");
    pods.watch_ended("end");
    pods.latched("prefill");
    metrics.discovery.set_endpoints("svc", "not_ready", 1, 1);
    metrics.discovery.refresh_ages();
    metrics.cohorts.set_version("svc", 1);
    let (requests, passed_on, selectable) = (5, [0, 1, 0, 0], [1, 2, 0]);
    metrics.cohorts.set(&[CohortState {
        service: "svc",
        cohort: "r1",
        requests,
        passed_on,
        weight: 9,
        selectable,
    }]);
    let source = metrics.sources.service("svc").unwrap();
    source.said("weights");
    source.failed("timeout");
    metrics.sources.refresh_ages();
    let words = ["n", "i", "h"].map(str::to_owned);
    let [namespace, inferenceservice, hash] = words;
    let revision = Revision { namespace, inferenceservice, component: "engine", hash };
    let of_revision = metrics.endpoints.for_revision("http://10.0.0.1:8000", "mixed", revision);
    of_revision.revision.as_ref().unwrap().ended(Outcome::Ok, None);
    drop(endpoint);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    metrics.tasks.watch("main", runtime.handle());
    (metrics, of_revision)
}

/// name → (type, labels) of what a scrape shows.
fn scraped(registry: &Registry) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let describe = |family: &prometheus::proto::MetricFamily| {
        let labels = family.get_metric()[0].get_label().iter().map(|l| l.name().to_owned()).collect();
        (family.name().to_owned(), (format!("{:?}", family.get_field_type()).to_lowercase(), labels))
    };
    registry.gather().iter().map(describe).collect()
}

fn listed(page: Page) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let describe = |family: &Family| {
        let labels = family.labels.iter().map(|l| (*l).to_owned()).collect();
        (family.name.to_owned(), (format!("{:?}", family.kind).to_lowercase(), labels))
    };
    ALL.iter().filter(|family| family.page == page).map(describe).collect()
}

#[test]
#[cfg(target_os = "linux")]
fn a_scrape_shows_exactly_the_listed_families() {
    let (metrics, _endpoint) = exercised();
    assert_eq!(scraped(&metrics.main), listed(Page::Main));
    assert_eq!(scraped(&metrics.fleet), listed(Page::Endpoints));
}

#[test]
fn the_document_and_the_list_agree() {
    let document = include_str!("../../docs/metrics.md");
    let mut rows = BTreeSet::new();
    for line in
        document.lines().filter(|line| line.starts_with("| `tandem_") || line.starts_with("| `process_"))
    {
        let cells: Vec<String> =
            line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect();
        assert!(rows.insert(cells), "written twice: {line}");
    }
    let row = |family: &Family| {
        let mut labels = family.labels.to_vec();
        labels.sort_unstable();
        let kind = format!("{:?}", family.kind).to_lowercase();
        let stability = format!("{:?}", family.stability).to_lowercase();
        vec![family.name.to_owned(), kind, labels.join(", "), stability, family.help.replace('`', "")]
    };
    let expected: BTreeSet<Vec<String>> = ALL.iter().map(row).collect();
    assert_eq!(rows, expected);
    for word in [Stability::Stable, Stability::Unstable] {
        assert!(document.contains(&format!("**{}**", format!("{word:?}").to_lowercase())));
    }
}

#[test]
fn names_follow_the_conventions() {
    for family in ALL {
        let name = family.name;
        assert!(name.starts_with("tandem_") || name.starts_with("process_"), "{name}");
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
        assert_eq!(name.ends_with("_total"), family.kind == Kind::Counter, "{name}");
        assert!(family.kind != Kind::Histogram || name.ends_with("_seconds"), "{name}");
        for wrong in ["_ms", "_milli", "_percent", "_kb"] {
            assert!(!name.contains(wrong), "{name}");
        }
        assert!(family.help.ends_with('.') && !family.help.contains('|'), "{name}");
    }
}

#[test]
fn an_outcome_is_counted_under_its_route_and_service() {
    let metrics = metrics();
    let (a, b) = (metrics.requests.service("a").unwrap(), metrics.requests.service("b").unwrap());
    a.ended(seen(0, Outcome::Ok));
    a.ended(seen(0, Outcome::Ok));
    a.ended(seen(1, Outcome::Forced));
    b.ended(seen(1, Outcome::Ok));
    let text = metrics.render();
    for line in [
        r#"tandem_requests_total{outcome="ok",route="chat_completions",service="a"} 2"#,
        r#"tandem_requests_total{outcome="forced",route="completions",service="a"} 1"#,
        r#"tandem_requests_total{outcome="ok",route="completions",service="b"} 1"#,
        r#"tandem_request_duration_seconds_count{outcome="ok",service="a"} 2"#,
        r#"tandem_time_to_first_byte_seconds_bucket{service="a",le="0.1"} 3"#,
    ] {
        assert!(text.lines().any(|l| l == line), "{line} not in\n{text}");
    }
    assert_eq!(text.matches("tandem_requests_total{").count(), 3);
}

#[test]
fn a_route_beyond_the_vocabulary_counts_nothing_and_does_not_panic() {
    let metrics = metrics();
    metrics.requests.service("a").unwrap().ended(seen(99, Outcome::Ok));
    assert!(!metrics.render().contains("tandem_requests_total{"));
}

#[test]
fn only_the_current_phase_is_one() {
    let metrics = metrics();
    let line = |phase, value| format!("tandem_shutdown_phase{{phase=\"{phase}\"}} {value}\n");
    assert!(metrics.render().contains(&line("running", 1)));
    metrics.router.phase("draining");
    let text = metrics.render();
    assert!(text.contains(&line("draining", 1)) && text.contains(&line("running", 0)));
}

/// What the API server told, as a scrape shows it.
#[tokio::test(start_paused = true)]
async fn ages_of_a_view_grow_until_it_is_told_anew() {
    let metrics = metrics();
    let pods = metrics.discovery.service("svc").unwrap();
    let shown = |view: &str, watch: &str| {
        metrics.discovery.refresh_ages();
        let text = metrics.render();
        for (of, age) in [("view", view), ("watch", watch)] {
            let line = format!("tandem_discovery_{of}_age_seconds{{service=\"svc\"}} {age}\n");
            assert!(text.contains(&line), "{line} not in\n{text}");
        }
    };
    tokio::time::advance(Duration::from_secs(3)).await;
    shown("3", "3");
    pods.list_applied();
    pods.watch_opened();
    tokio::time::advance(Duration::from_secs(20)).await;
    pods.watch_heard();
    shown("20", "0");
    pods.list_failed("timeout");
    pods.list_discarded();
    shown("20", "0");
}

#[test]
fn what_alerts_look_at_is_there_before_it_happens() {
    let metrics = metrics();
    let pods = metrics.discovery.service("svc").unwrap();
    let before = metrics.render();
    for (family, label) in [
        ("discovery_skipped_objects_total", "reason=\"no_port\""),
        ("discovery_relists_total", "result=\"error\""),
        ("mass_withdrawals_total", "role=\"decode\""),
        ("discovery_drift_total", ""),
    ] {
        let comma = if label.is_empty() { "" } else { "," };
        let line = format!("tandem_{family}{{{label}{comma}service=\"svc\"}}");
        assert!(before.contains(&format!("{line} 0\n")), "{line} not in\n{before}");
    }
    pods.skipped("no_port");
    pods.list_failed("timeout");
    pods.mass_withdrawal("decode");
    let series = |text: &str, family: &str| text.matches(&format!("tandem_{family}{{")).count();
    let after = metrics.render();
    for family in ["discovery_skipped_objects_total", "discovery_relists_total", "mass_withdrawals_total"] {
        assert_eq!(series(&after, family), series(&before, family), "{family}");
    }
}

#[test]
fn a_reason_that_was_there_stays_with_zero() {
    let metrics = metrics();
    let line = |family: &str, reason: &str, n: u64| {
        format!("tandem_{family}{{reason=\"{reason}\",service=\"svc\"}} {n}\n")
    };
    metrics.discovery.set_endpoints("svc", "not_ready", 2, 0);
    let text = metrics.render();
    assert!(text.contains(&line("endpoints", "not_ready", 2)), "{text}");
    assert!(!text.contains("tandem_pods_without_endpoint{"), "no series for what never was: {text}");
    metrics.discovery.set_endpoints("svc", "not_ready", 0, 1);
    let text = metrics.render();
    assert!(text.contains(&line("endpoints", "not_ready", 0)), "{text}");
    assert!(text.contains(&line("pods_without_endpoint", "not_ready", 1)), "{text}");
}

#[test]
fn a_held_amount_leaves_the_gauge_with_its_holder() {
    let metrics = metrics();
    let gauge = &metrics.router.buffered_bytes;
    let mut held = Held::new(gauge, 10);
    held.grow(32);
    assert_eq!(gauge.get(), 42);
    drop(held);
    assert_eq!(gauge.get(), 0);
}

#[test]
fn endpoint_series_end_with_the_last_guard_of_their_url() {
    let metrics = metrics();
    let url = "http://10.0.0.1:8000";
    let old = metrics.endpoints.for_endpoint(url, "mixed");
    let other = metrics.endpoints.for_endpoint("http://10.0.0.2:8000", "mixed");
    old.leg(LegOutcome::Error, Duration::from_secs(1), None);
    let readded = metrics.endpoints.for_endpoint(url, "mixed");
    drop(old);
    readded.leg(LegOutcome::Error, Duration::from_secs(1), None);
    let line =
        format!("tandem_endpoint_requests_total{{outcome=\"error\",role=\"mixed\",url=\"{url}\"}} 2\n");
    assert!(metrics.render_endpoints().contains(&line));
    drop(readded);
    let text = metrics.render_endpoints();
    assert!(!text.contains(url), "{text}");
    assert!(text.contains("http://10.0.0.2:8000"));
    assert_eq!(metrics.endpoints.len(), 1);
    drop(other);
    assert_eq!(metrics.render_endpoints(), "");
}

#[test]
fn a_returning_url_is_visible_again_and_starts_at_zero() {
    let metrics = metrics();
    for _ in 0..2 {
        let guard = metrics.endpoints.for_endpoint("http://a", "mixed");
        guard.dialed();
        let line = "tandem_endpoint_dials_total{role=\"mixed\",url=\"http://a\"} 1\n";
        assert!(metrics.render_endpoints().contains(line));
    }
}

#[test]
fn roles_of_one_url_are_separate_series() {
    let metrics = metrics();
    let prefill = metrics.endpoints.for_endpoint("http://a", "prefill");
    let decode = metrics.endpoints.for_endpoint("http://a", "decode");
    prefill.set_load(&EndpointLoad {
        in_flight: 1,
        carried: [0, 0, 1, 0, 2],
        idle: 0,
        withdrawn: Some(Duration::from_secs(9)),
        dispatched_s: 7,
    });
    drop(decode);
    let text = metrics.render_endpoints();
    let labels = "role=\"prefill\",url=\"http://a\"";
    for (series, value) in [
        (format!("in_flight{{{labels}}}"), 1),
        (format!("carried{{kind=\"handoff\",{labels}}}"), 2),
        (format!("withdrawn_seconds{{{labels}}}"), 9),
        (format!("last_dispatch_timestamp_seconds{{{labels}}}"), 7),
        (format!("quiesced{{{labels}}}"), 0),
        (format!("selectable{{{labels}}}"), 0),
    ] {
        assert!(text.contains(&format!("tandem_endpoint_{series} {value}\n")), "{series}: {text}");
    }
    assert!(!text.contains("role=\"decode\""));
}

#[test]
fn endpoints_beyond_the_bound_are_counted_and_not_exported() {
    let dropped = prometheus::IntCounter::new("dropped", "x").unwrap();
    let registry = Registry::new();
    let families =
        EndpointFamilies::new(&registry, 2, dropped.clone(), RevisionFamilies::new(&registry).unwrap())
            .unwrap();
    let first = families.for_endpoint("http://a", "mixed");
    let _second = families.for_endpoint("http://b", "mixed");
    let third = families.for_endpoint("http://c", "mixed");
    let again = families.for_endpoint("http://a", "mixed");
    assert_eq!(dropped.get(), 1, "a known url is not a new one");
    third.leg(LegOutcome::Ok, Duration::from_secs(1), None);
    assert!(!render(&registry).contains("http://c"));
    drop((third, first, again));
    let fourth = families.for_endpoint("http://d", "mixed");
    assert!(render(&registry).contains("http://d"), "the place of a gone endpoint is free");
    drop(fourth);
}

#[test]
fn per_url_histograms_are_two_with_at_most_ten_buckets() {
    let (metrics, _endpoint) = exercised();
    let text = metrics.render_endpoints();
    for family in [names::ENDPOINT_TTFB, names::ENDPOINT_DURATION] {
        let buckets = text.matches(&format!("{}_bucket{{", family.name)).count();
        assert!((1..=10).contains(&buckets), "{buckets}");
    }
    assert_eq!(text.matches("# TYPE").count() - text.matches(" histogram\n").count(), 12);
    assert_eq!(text.matches(" histogram\n").count(), 2);
}

#[test]
fn guards_that_race_for_one_url_leave_no_series_behind() {
    let metrics = metrics();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let guard = metrics.endpoints.for_endpoint("http://a", "mixed");
                    guard.leg(LegOutcome::Ok, Duration::ZERO, None);
                    assert!(!metrics.endpoints.is_empty());
                }
            });
        }
    });
    assert_eq!(metrics.render_endpoints(), "");
}

#[tokio::test(start_paused = true)]
async fn gaps_reach_the_counters_at_most_once_a_second() {
    let metrics = metrics();
    let service = metrics.requests.service("svc").unwrap();
    let mut gaps = GapStats::default();
    let mut changes = 0;
    for _ in 0..30 {
        let before = service.stream_events.get();
        gaps.arrived(1, clock::now(), &service);
        changes += u32::from(service.stream_events.get() != before);
        tokio::time::advance(Duration::from_millis(100)).await;
    }
    assert_eq!(changes, 2, "2.9 s of stream");
    tokio::time::advance(Duration::from_secs(4)).await;
    gaps.arrived(3, clock::now(), &service);
    gaps.flush(&service);
    assert_eq!((gaps.events, service.stream_events.get(), service.stream_gaps.get()), (33, 33, 32));
    assert_eq!(gaps.longest, Duration::from_millis(4100));
    assert!((service.stream_gap_seconds.get() - 7.0).abs() < 1e-6, "{}", service.stream_gap_seconds.get());
}

#[test]
fn a_cohort_that_nobody_names_any_more_has_no_series() {
    let metrics = metrics();
    let of = |cohort, requests| CohortState {
        service: "svc",
        cohort,
        requests,
        passed_on: [0; 4],
        weight: 1,
        selectable: [0; 3],
    };
    metrics.cohorts.set(&[of("r1", 5), of("r2", 7)]);
    metrics.cohorts.set(&[of("r2", 9)]);
    let text = metrics.render();
    assert!(!text.contains("cohort=\"r1\""), "{text}");
    assert!(text.contains("tandem_cohort_requests_total{cohort=\"r2\",service=\"svc\"} 9\n"), "{text}");
}

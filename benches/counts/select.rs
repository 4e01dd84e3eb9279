//! Cohort, endpoint and gate: from a snapshot to holds, which are given back.

use std::sync::Arc;

use tandem::config::{EngineKind, Policies, Policy, Service, SplitEntry, StaticEndpoint};
use tandem::ledger::{Hold, Holder};
use tandem::metrics::{Metrics, Vocabulary};
use tandem::proxy::route::{Excluded, StickyKey, decide, pick_decode, pick_prefill, pick_role};
use tandem::registry::{self, Need, Role, View, Writer};

use crate::bench::Bench;

const POLICIES: [(&str, Policy); 3] = [
    ("round_robin", Policy::RoundRobin),
    ("least_in_flight", Policy::LeastInFlight),
    ("power_of_two", Policy::PowerOfTwo),
];

/// Cohorts where there are some.
const REVISIONS: [&str; 3] = ["r1", "r2", "r3"];

/// Endpoints, of revisions in turn.
fn endpoints(net: u8, count: usize, cohorts: usize) -> Vec<StaticEndpoint> {
    let one = |n: usize| {
        let mut at = StaticEndpoint::parse(&format!("http://10.{net}.{}.{}:8000", n / 250, n % 250)).unwrap();
        REVISIONS[n % cohorts].clone_into(&mut at.revision);
        at
    };
    (0..count).map(one).collect()
}

/// A snapshot of one service, its endpoints shared among so many cohorts by a split where there are several.
fn view(mut service: Service, policy: Policy, cohorts: usize) -> View {
    service.policy = Policies { mixed: policy, prefill: policy, decode: policy };
    let share = |(n, revision): (usize, &&str)| SplitEntry {
        revision: Some((*revision).to_owned()),
        weight: [90, 9, 1][n],
        ..SplitEntry::default()
    };
    service.split = (cohorts > 1).then(|| REVISIONS.iter().enumerate().map(share).collect());
    let words = Vocabulary { routes: &["chat"], error_codes: &[], retry_reasons: &[], phases: &["running"] };
    let metrics = Metrics::new(&words).unwrap();
    // The writer is not run: its first snapshot is what is wanted.
    Writer::new(&[service], 2, &metrics.endpoints).1
}

pub(crate) fn run(bench: &mut Bench) {
    let one = |service: &registry::Service, key: Option<&StickyKey>| {
        let excluded = Excluded::default();
        let decision = decide(service, Need::One(Role::Mixed), key, &excluded, None).unwrap();
        pick_role(service, &decision.cohort, Role::Mixed, &excluded).unwrap()
    };
    let pair = |service: &registry::Service, key: Option<&StickyKey>| {
        let excluded = Excluded::default();
        let decision = decide(service, Need::Pair, key, &excluded, None).unwrap();
        let prefill = pick_prefill(service, &decision.cohort, &excluded).unwrap();
        let decode = pick_decode(service, &decision.cohort, prefill.endpoint(), &excluded).unwrap();
        (prefill, decode)
    };
    for count in [10, 1_000] {
        for (policy_name, policy) in POLICIES {
            for (cohorts, cohorts_name) in [(1, "one cohort"), (3, "split of 3")] {
                let mixed = Service::plain("llm", endpoints(0, count, cohorts));
                let mixed = view(mixed, policy, cohorts);
                let service = Arc::clone(&mixed.load().services[0]);
                bench.of(&format!("select/{policy_name}, {cohorts_name}, {count}"), 16, || {
                    one(&service, None)
                });
                if cohorts == 1 && policy == Policy::LeastInFlight {
                    let _held: Vec<_> =
                        service.cohorts[0].of(Role::Mixed).iter().map(|e| Hold::take(e).unwrap()).collect();
                    bench.of(&format!("select/{policy_name}, one cohort, all busy, {count}"), 16, || {
                        one(&service, None)
                    });
                }
                if cohorts > 1 {
                    let sticky = || one(&service, Some(&StickyKey::new("llm", b"session-0199a7c27f10")));
                    bench.of(&format!("select/{policy_name}, sticky, {count}"), 16, sticky);
                }
            }
            let sides = |net| endpoints(net, count / 2, 3);
            let pairs = Service::pairs("llm", EngineKind::Sglang, sides(1), sides(2));
            let pairs = view(pairs, policy, 3);
            let service = Arc::clone(&pairs.load().services[0]);
            bench.of(&format!("select/{policy_name}, pair of 3 cohorts, {count}"), 16, || {
                pair(&service, None)
            });
        }
    }
    gate(bench);
}

fn gate(bench: &mut Bench) {
    let service = view(Service::plain("llm", endpoints(0, 2, 1)), Policy::RoundRobin, 1);
    let endpoint = Arc::clone(&service.load().services[0].endpoints[0]);
    bench.of("gate/take and return", 64, || {
        endpoint.gate().try_hold().unwrap();
        endpoint.gate().release();
    });
    bench.of("gate/hold with its last look", 64, || {
        let hold = Hold::take(&endpoint).unwrap();
        drop(hold.last_look(&endpoint.stages).unwrap());
    });
}

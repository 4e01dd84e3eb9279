//! Pairing tokens: a prefill of one is never decoded by an engine of another (I1).

use std::collections::{HashMap, HashSet};

use tandem::config::Dialect;
use tandem::testkit::engine::EngineHandle;
use tandem::testkit::kube::{FakeKube, PodSpec};
use tokio::time::sleep;

use super::rig::*;

const TOKEN: &str = "tandem.dev/pairing-token";

fn member(name: &str, ip: &str, role: &str, token: &str) -> PodSpec {
    let pod = pod(name, ip).label(ROLE, role);
    if token.is_empty() { pod } else { pod.label(TOKEN, token) }
}

/// Which prefill prepared what each decode decoded, by the end of the request's id.
fn pairs(
    prefills: &HashMap<String, EngineHandle>,
    decodes: &HashMap<String, EngineHandle>,
) -> HashSet<(String, String)> {
    let ids = |engine: &EngineHandle| {
        let requests = engine.log.requests_to(CHAT);
        requests
            .iter()
            .filter_map(|r| r.headers.get("x-request-id")?.get(17..).map(str::to_owned))
            .collect::<HashSet<_>>()
    };
    let mut found = HashSet::new();
    for (p, prefill) in prefills {
        let prepared = ids(prefill);
        for (d, decode) in decodes {
            if ids(decode).intersection(&prepared).next().is_some() {
                found.insert((p.clone(), d.clone()));
            }
        }
    }
    found
}

#[tokio::test(start_paused = true)]
async fn i1_a_fleet_of_mixed_tokens_never_pairs_unequal_ones() {
    // The name of each engine is its token; `-`: none, which pairs with any.
    let api = FakeKube::new();
    let (ps, ds) = (["v1", "v2", "v3", "-"], ["v1", "v2", "v4", "-"]);
    let token = |name: &str| if name == "-" { String::new() } else { name.to_owned() };
    let ip = |side: usize, n: usize| format!("192.0.2.{}", side * 10 + n + 1);
    for (n, name) in ps.iter().enumerate() {
        api.create(member(&format!("p{n}"), &ip(0, n), "prefill", &token(name)));
    }
    for (n, name) in ds.iter().enumerate() {
        api.create(member(&format!("d{n}"), &ip(1, n), "decode", &token(name)));
    }
    let world = World::new(with(NIXL, Dialect::Tandem), api);
    let serve = |side: usize, names: [&str; 4]| -> HashMap<String, EngineHandle> {
        let one = |(n, name): (usize, &str)| (name.to_owned(), world.serve(&ip(side, n), vllm_either(name)));
        names.into_iter().enumerate().map(one).collect()
    };
    let (prefills, decodes) = (serve(0, ps), serve(1, ds));
    world.ready().await;
    let load = world.load(4, ms(2));
    for round in 0..20 {
        // One decode comes and goes meanwhile: the decisions begin anew each time.
        let mark = if round % 2 == 0 { None } else { Some("true") };
        world.api.update("default", &format!("d{}", round / 2 % 3), |pod| set_label(pod, ELIGIBLE, mark));
        sleep(ms(100)).await;
    }
    load.end_well().await;
    let found = pairs(&prefills, &decodes);
    assert!(found.len() >= 8, "{found:?}");
    for (p, d) in &found {
        assert!(p == d || p == "-" || d == "-", "{p} with {d}");
    }
    sleep(secs(40)).await;
    let (p, d): (Vec<_>, Vec<_>) = (prefills.values().collect(), decodes.values().collect());
    world.end_of_pairs(&p, &d).await;
}

/// Without a partner of its token a prefill is given nothing, and nobody else's is taken instead.
#[tokio::test(start_paused = true)]
async fn i1_a_prefill_without_a_partner_gets_nothing() {
    let api = FakeKube::new();
    api.create(member("p", A, "prefill", "v1"));
    api.create(member("d", B, "decode", "v2"));
    let world = World::new(with(NIXL, Dialect::Tandem), api);
    let (p, d) = (world.serve(A, vllm_either("p")), world.serve(B, vllm_either("d")));
    world.ready().await;
    assert_eq!(world.ask(5).await, [503; 5]);
    assert_eq!((chats(&p), chats(&d)), (0, 0));
    // Another pair beside it serves alone.
    world.api.create(member("p2", C, "prefill", "v2"));
    let p2 = world.serve(C, vllm_either("p2"));
    world.within(SOON, "a pair", || world.selectable().len() == 3).await;
    assert_eq!(world.ask(20).await, [200; 20]);
    assert_eq!((chats(&p), chats(&p2)), (0, 20));
    world.api.force_delete("default", "p2");
    world.within(SOON, "gone", || world.selectable().len() == 2).await;
    // The token of the decode becomes that of the prefill: another incarnation.
    world.api.update("default", "d", |pod| set_label(pod, TOKEN, Some("v1")));
    world.within(SOON, "paired", || world.endpoint(B).unwrap().pairing_token.as_deref() == Some("v1")).await;
    assert_eq!(world.ask(5).await, [200; 5]);
    sleep(secs(40)).await;
    world.end_of_pairs(&[&p, &p2], &[&d]).await;
}

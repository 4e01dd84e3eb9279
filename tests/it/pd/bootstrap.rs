//! A decode that fails because its prefill's bootstrap server is not there (B43 d).

use tandem::config::{Policies, Policy, StaticEndpoint};
use tandem::engine::{EngineConfig, Role, Running, State, Wire, start};
use tandem::testkit::engine::Step;
use tandem::testkit::engine::openai::error;
use tandem::testkit::fixtures::post_chat;
use tandem::testkit::memory::DialFault;
use tandem::testkit::router::{TestRouter, config};

use super::rig::*;

async fn engine(role: Role) -> Running {
    start(EngineConfig::new(Wire::Sglang, role).scaled(0.005)).await.unwrap()
}

/// A port of this machine on which nothing listens.
fn closed_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn endpoint(engine: &Running) -> StaticEndpoint {
    StaticEndpoint::parse(&format!("http://{}", engine.addr)).unwrap()
}

/// Prefills with the bootstrap port that the router believes they have, and one decode.
async fn router(prefills: &[(&Running, u16)], decode: &Running) -> TestRouter {
    let mut config = config(&["unused:80".to_owned()]);
    let service = &mut config.services[0];
    service.endpoints.clear();
    service.engine = SGLANG;
    service.policy = Policies::all(Policy::RoundRobin);
    for (prefill, port) in prefills {
        service.prefill.push(StaticEndpoint { bootstrap_port: Some(*port), ..endpoint(prefill) });
    }
    service.decode = vec![endpoint(decode)];
    TestRouter::start(config).await
}

fn sum(router: &TestRouter, name: &str, labels: &[(&str, &str)]) -> f64 {
    router.scrape().sum(name, labels)
}

/// The mock decode does what the real one does: it asks the bootstrap server, and gives up after a while.
#[tokio::test]
async fn b43_a_closed_bootstrap_port_is_the_prefills_error_and_another_prefill_serves() {
    let (dark, good, decode) =
        tokio::join!(engine(Role::Prefill), engine(Role::Prefill), engine(Role::Decode));
    let port = good.side_addr.unwrap().port();
    let router = router(&[(&dark, closed_port()), (&good, port)], &decode).await;
    let mut client = router.client().await;
    let answer = client.request(&post_chat(body(true))).await.unwrap();
    assert!(answer.status() == 200 && answer.is_complete());
    let row = [("reason", "no_bootstrap"), ("role", "prefill")];
    assert_eq!(sum(&router, "tandem_retries_total", &row), 1.0);
    client.close();
    for engine in [&dark, &good, &decode] {
        engine.wait(secs(5), State::is_idle).await.unwrap();
    }
    let failed = [("outcome", "error"), ("role", "prefill")];
    assert_eq!(sum(&router, "tandem_endpoint_requests_total", &failed), 1.0);
    assert_eq!(sum(&router, "tandem_endpoint_ejections_total", &[("role", "prefill")]), 1.0);
    assert_eq!(router.access_lines()[0]["retried"], "prefill_no_bootstrap");
}

#[tokio::test]
async fn b43_with_no_other_prefill_the_client_is_told_which_side_failed() {
    let (dark, decode) = tokio::join!(engine(Role::Prefill), engine(Role::Decode));
    let router = router(&[(&dark, closed_port())], &decode).await;
    for stream in [true, false] {
        let answer = router.client().await.request(&post_chat(body(stream))).await.unwrap();
        let code = answer.json()["error"]["code"].as_str().map(str::to_owned);
        assert_eq!((answer.status(), code.as_deref()), (502, Some("prefill_no_bootstrap")));
    }
    for engine in [&dark, &decode] {
        engine.wait(secs(5), State::is_idle).await.unwrap();
    }
}

/// What says nothing about the decodes' way to the prefill leaves the error where it came from.
#[tokio::test(start_paused = true)]
async fn a_bootstrap_port_that_answers_or_is_silent_leaves_the_blame_with_the_decode() {
    for fault in [DialFault::None, DialFault::BlackHole] {
        let rig = rig(SGLANG, vec![chat(Step::Stall)], vec![chat(error(500, "mine"))]);
        if fault == DialFault::BlackHole {
            rig.net.set_fault("p0:8998", fault);
        }
        let reply = rig.ask(H1, true).await;
        assert_eq!(
            (reply.status, reply.json()["error"]["message"].as_str()),
            (500, Some("mine")),
            "{fault:?}"
        );
        assert!(reply.took <= ms(500));
        tokio::time::sleep(secs(1)).await;
        assert_eq!((rig.legs("decode", "error"), rig.legs("prefill", "cancelled")), (1.0, 1.0));
    }
}

//! Drain annotations with a deadline, and what they cut.

use serde_json::Value;
use tandem::config::Dialect;
use tandem::registry::report::{Entry, Filter};
use tandem::testkit::kube::{FakeKube, set_ready};
use tandem::types::clock::wall_ms;
use tandem::types::drain_order::rfc3339;
use tokio::time::sleep;

use super::rig::*;

const DRAIN: &str = "tandem.dev/drain";

fn annotate(world: &World, value: Option<&str>) {
    world.api.update("default", "a", |pod| {
        let annotations = &mut pod["metadata"]["annotations"];
        match value {
            Some(value) => annotations[DRAIN] = value.into(),
            None => *annotations = Value::Object(serde_json::Map::new()),
        }
    });
}

/// So many seconds from now.
fn at(seconds: u64) -> String {
    rfc3339(wall_ms() + seconds * 1000)
}

fn entry(world: &World) -> Entry {
    let filter = Filter { url: Some(format!("http://{A}:8000")), ..Filter::default() };
    world.router.admin.reporter.report(&filter).endpoints.remove(0)
}

/// One Pod with a stream of ten minutes on it.
async fn streaming() -> (World, tandem::testkit::engine::EngineHandle, tokio::task::JoinHandle<(u16, bool)>) {
    let api = FakeKube::new();
    api.create(pod("a", A));
    let world = World::new(plain(Dialect::Tandem), api);
    let a = world.serve(A, slow(A, 600, secs(1)));
    world.ready().await;
    let stream = world.stream().await;
    (world, a, stream)
}

#[tokio::test(start_paused = true)]
async fn an_annotation_that_forces_cuts_at_its_deadline_also_a_pod_that_is_ill_leaving_or_gone() {
    for scene in ["drained", "not ready", "terminating", "gone"] {
        let (world, a, stream) = streaming().await;
        annotate(&world, Some(&format!("new disk; deadline={}; force", at(60))));
        world.within(SOON, "drained", || world.reason(A).as_deref() == Some("drain_annotation")).await;
        assert!(world.detail(A).starts_with("new disk; deadline=") && world.detail(A).ends_with("; force"));
        sleep(secs(20)).await;
        match scene {
            "not ready" => {
                world.api.update("default", "a", |pod| set_ready(pod, "False", None));
                sleep(secs(1)).await;
                world.api.update("default", "a", |pod| set_ready(pod, "True", None));
                sleep(secs(1)).await;
                world.api.update("default", "a", |pod| set_ready(pod, "False", None));
            }
            "terminating" => _ = world.api.delete("default", "a"),
            "gone" => _ = world.api.force_delete("default", "a"),
            _ => {}
        }
        sleep(secs(if scene == "not ready" { 36 } else { 38 })).await;
        let said = entry(&world);
        assert_eq!((said.in_flight.decode, said.force, said.selectable), (1, true, false), "{scene}");
        assert!((0..3000).contains(&said.deadline_in_ms.unwrap()), "{said:?}");
        sleep(secs(3)).await;
        let said = entry(&world);
        assert_eq!((said.in_flight.total(), said.forced), (0, 1), "{scene}");
        assert_eq!(stream.await.unwrap(), (200, false));
        world.end(&[&a]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_without_force_or_one_that_was_taken_back_or_put_off_cuts_nothing() {
    for scene in ["no force", "removed", "put off", "not a deadline"] {
        let (world, a, stream) = streaming().await;
        let value = match scene {
            "no force" => format!("x; deadline={}", at(60)),
            "not a deadline" => "x; deadline=soon; force".to_owned(),
            _ => format!("x; deadline={}; force", at(60)),
        };
        annotate(&world, Some(&value));
        sleep(secs(58)).await;
        assert_eq!(world.reason(A).as_deref(), Some("drain_annotation"));
        match scene {
            "removed" => annotate(&world, None),
            "put off" => annotate(&world, Some(&format!("x; deadline={}; force", at(6000)))),
            _ => {}
        }
        sleep(secs(300)).await;
        assert_eq!((entry(&world).in_flight.decode, entry(&world).forced), (1, 0), "{scene}");
        assert_eq!(world.selectable().len(), usize::from(scene == "removed"));
        assert_eq!(stream.await.unwrap(), (200, true), "{scene}");
        world.end(&[&a]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_in_the_past_cuts_at_once() {
    let (world, a, stream) = streaming().await;
    annotate(&world, Some("x; deadline=2020-01-01T00:00:00Z; force"));
    world.within(secs(1), "empty", || entry(&world).in_flight.total() == 0).await;
    assert_eq!((stream.await.unwrap(), entry(&world).forced), ((200, false), 1));
    world.end(&[&a]).await;
}

//! Pods come, qualify, lose what qualifies them, and go.

use tandem::config::Dialect;
use tandem::testkit::kube::{FakeKube, set_ready};
use tandem::types::clock::now;
use tokio::time::sleep;

use super::rig::*;

#[tokio::test(start_paused = true)]
async fn an_eligible_ready_pod_serves_until_its_label_goes() {
    let api = FakeKube::new();
    api.create(pod("a", A));
    api.create(pod("b", B));
    let world = World::new(plain(Dialect::Tandem), api);
    let (a, b) = (world.engine(A), world.engine(B));
    world.ready().await;
    assert_eq!(world.selectable(), [A, B]);
    assert_eq!(world.ask(10).await, [200; 10]);
    let at = now();
    world.api.update("default", "a", |pod| {
        pod["metadata"]["labels"].as_object_mut().unwrap().remove("tandem.dev/endpoint-eligible");
    });
    world.until("withdrawn", || world.selectable() == [B]).await;
    assert!(at.elapsed() < ms(50), "{:?}", at.elapsed());
    assert_eq!(world.reason(A).as_deref(), Some("not_eligible"));
    let before = a.log.requests().len();
    assert_eq!(world.ask(10).await, [200; 10]);
    assert_eq!(a.log.requests().len(), before);
    assert!(b.log.requests().len() >= 10);
    world.api.update("default", "a", |pod| {
        pod["metadata"]["labels"]["tandem.dev/endpoint-eligible"] = "true".into();
    });
    world.until("back", || world.selectable() == [A, B]).await;
    world.router.assert_invariants(&[&a, &b]).await;
}

#[tokio::test(start_paused = true)]
async fn each_way_out_has_its_reason() {
    let api = FakeKube::new();
    for n in 1..=4 {
        api.create(pod(&format!("p{n}"), &format!("192.0.2.{n}")));
    }
    let world = World::new(plain(Dialect::Tandem), api);
    world.ready().await;
    assert_eq!(world.selectable().len(), 4);
    world.api.update("default", "p1", |pod| set_ready(pod, "False", None));
    world.api.delete("default", "p2");
    world.api.force_delete("default", "p3");
    world.api.update("default", "p4", |pod| {
        pod["metadata"]["annotations"]["tandem.dev/drain"] = "maintenance".into();
    });
    world.until("none left", || world.selectable().is_empty()).await;
    let reasons = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"].map(|ip| world.reason(ip).unwrap());
    assert_eq!(reasons, ["not_ready", "terminating", "deleted", "drain_annotation"]);
    assert_eq!(world.endpoint("192.0.2.4").unwrap().detail.as_deref(), Some("maintenance"));
    world.api.finish_delete("default", "p2");
    sleep(secs(20)).await;
    assert!(world.endpoint("192.0.2.2").is_none() && world.endpoint("192.0.2.3").is_none(), "forgotten");
    assert_eq!(world.ask(1).await, [503]);
}

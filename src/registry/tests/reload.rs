use super::*;
use crate::config::StaticEndpoint;

#[test]
fn pods_stay_when_the_configuration_is_read_again() {
    let mut config = pods(EngineKind::Plain, "chat");
    let mut rig = Rig::new(&[config.clone()]);
    rig.up("a", 1, "192.0.2.1");
    let endpoint = rig.of("a");
    rig.drain(endpoint.id, true);
    config.retries.max = 7;
    let (done, mut answer) = oneshot::channel();
    rig.writer.apply(Change::Services(vec![config], done));
    assert_eq!(answer.try_recv().map(|replaced| (replaced.added, replaced.removed)), Ok((0, 0)));
    assert!(Arc::ptr_eq(&endpoint, &rig.of("a")));
    rig.up("a", 1, "192.0.2.1");
    assert_eq!(rig.words(), ["a admin_drain"], "it keeps everything");
    assert_eq!(rig.view.load().services[0].config.retries.max, 7);
}

#[test]
fn static_endpoints_and_pods_live_side_by_side() {
    let mut config = pods(EngineKind::Plain, "chat");
    config.endpoints = vec![StaticEndpoint::parse("http://192.0.2.1:8000").unwrap()];
    let mut rig = Rig::new(&[config.clone()]);
    rig.up("a", 1, "192.0.2.2");
    assert_eq!(rig.words(), ["a selectable", "static selectable"]);
    config.endpoints.clear();
    let (done, mut answer) = oneshot::channel();
    rig.writer.apply(Change::Services(vec![config], done));
    rig.settle();
    assert_eq!(answer.try_recv().map(|replaced| replaced.removed), Ok(1));
    assert_eq!(rig.words(), ["a selectable"]);
    assert_eq!(rig.departed()[0].reason(), Reason::Removed);
}

use super::*;
use crate::config::{self, Dialect, PodDiscovery};
use crate::metrics::{Metrics, Vocabulary};
use crate::registry::Change;
use crate::types::role::Role;

fn listener(pod: &Arc<PodId>) -> Listener {
    Listener {
        host: "192.0.2.1".to_owned(),
        port: 8000,
        role: Role::Mixed,
        bootstrap_port: None,
        model: None,
        revision: String::new(),
        token: String::new(),
        pod: Some(Arc::clone(pod)),
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_called_known_before_its_snapshot_is_out() {
    let pods = Some(PodDiscovery::of(Dialect::Tandem, [("app".to_owned(), "llm".to_owned())].into()));
    let service = config::Service { pods, ..config::Service::plain("default", Vec::new()) };
    let words = Vocabulary { routes: &[], error_codes: &[], retry_reasons: &[], phases: &[] };
    let metrics = Metrics::new(&words).unwrap();
    let (mut writer, view, _changes) = Writer::new(&[service], 1, &metrics.endpoints);
    let pod = Arc::new(PodId { namespace: "n".to_owned(), name: "p".to_owned(), uid: "u".to_owned() });
    let verdict = PodVerdict::Register { listeners: vec![listener(&pod)], epoch: 0 };
    let update = PodUpdate { service: 0, pod, born: Born::default(), verdict };
    // As the first list of a router comes: other threads read meanwhile, the admin's among them.
    writer.apply(Change::Pods(PodBatch { updates: vec![update], listed: vec![0] }));
    let snapshot = view.load();
    assert_eq!(snapshot.services[0].sync.now(), Synced::Listed);
    assert_eq!(snapshot.services[0].all().count(), 1);
}

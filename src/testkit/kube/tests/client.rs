//! The real client library understands it.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;

use super::*;

#[tokio::test(start_paused = true)]
async fn pods_are_listed_by_the_client() {
    let fake = FakeKube::new();
    let uid = fake.create(pod("a").ip("192.0.2.1").port("http", 8000));
    let pods: Api<Pod> = Api::namespaced(fake.client(), "default");
    let listed = pods.list(&ListParams::default().labels("app=llm")).await.unwrap();
    assert_eq!(listed.metadata.resource_version.as_deref(), Some("101"));
    let first = &listed.items[0];
    assert_eq!(first.metadata.uid.as_ref(), Some(&uid));
    assert_eq!(first.status.as_ref().unwrap().pod_ip.as_deref(), Some("192.0.2.1"));
    assert_eq!(first.spec.as_ref().unwrap().containers[0].ports.as_ref().unwrap()[0].container_port, 8000);
}

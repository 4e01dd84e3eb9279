//! Scenarios that hold before every API server, real or fake: documented API behaviour only.
//!
//! There is no kubelet in them. Pods carry a scheduler's name that nobody has, so they stay where they are; what a kubelet
//! would say of them (phase, address, Ready) is patched into their status. Each has 127.0.0.1 for its address and ports of its
//! own, in the annotation that the `tandem` dialect reads; an engine of this process listens there. The router is the built
//! binary, and reaches the API server through a [`Proxy`], which can cut, refuse and swallow.
//!
//! Who judges: the engines' own logs, the admin API, and a watch of this process ([`Witness`]) that tells when an event came.

mod cluster;
mod engines;
mod lag;
mod load;
pub mod pods;
mod proxy;
mod rights;
mod rollouts;
mod router;
pub mod scenes;
mod witness;

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

pub use cluster::Cluster;
pub use engines::Engines;
pub use lag::Lag;
pub use load::Load;
pub use pods::Blueprint;
pub use proxy::Proxy;
pub use router::Router;
pub use witness::Witness;

use tandem::testkit::eventually::eventually_async;

/// Calls a macro with the names of all scenarios.
macro_rules! every_scene {
    ($tests:ident) => {
        $tests! {
            the_first_list_makes_ready
            two_hundred_pods_come_and_go_at_once
            a_lost_label_takes_the_requests_within_50_ms
            each_way_out_and_back
            a_namesake_at_the_same_address_is_another_endpoint
            a_second_pod_takes_over_an_address
            another_port_is_another_endpoint
            a_role_is_followed
            pairs_wait_for_the_bootstrap_server
            a_half_open_watch_is_repaired_by_the_next_list
            a_network_that_swallows_everything_is_noticed
            a_cut_watch_loses_nothing
            a_router_may_start_before_its_api_server
            an_api_server_that_is_away_costs_no_request
            an_api_server_that_restarts_costs_no_request
            a_missing_right_is_named_and_waited_for
            a_storm_of_pods_costs_no_request
            a_storm_of_pairs_costs_no_request
            weights_follow_an_inference_service
        }
    };
}
pub(crate) use every_scene;

/// For whatever should happen soon: an event, an answer.
pub const SOON: Duration = Duration::from_secs(10);
/// How long after its withdrawal an endpoint may still see a request that was on its way (I3).
const MARGIN: Duration = Duration::from_millis(50);

/// Plays a scenario and clears up, also after a panic.
pub async fn run<F: Future<Output = ()>>(cluster: Cluster, scene: impl FnOnce(Arc<Cluster>) -> F) {
    let cluster = Arc::new(cluster);
    let mut scene = Box::pin(scene(Arc::clone(&cluster)));
    let played = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| scene.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await;
    drop(scene);
    cluster.clear().await;
    if let Err(panic) = played {
        resume_unwind(panic);
    }
}

/// Waits until this holds; the last word of the probe is in the panic.
async fn until<T, E: std::fmt::Debug, F: Future<Output = Result<T, E>>>(
    what: &str,
    limit: Duration,
    probe: impl FnMut() -> F,
) -> T {
    eventually_async(limit, what, probe).await
}

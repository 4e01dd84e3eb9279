//! Prefill/decode pairs of mock SGLang engines.

use std::sync::Arc;

use tandem::config::EngineKind;
use tandem::engine::{EngineConfig, Role, Running, Wire, start};
use tandem::testkit::fixtures::{chat_body, post_chat};
use tokio::time::sleep;

use super::super::pods::{BOOTSTRAP, ROLE};
use super::super::{Blueprint, Cluster, Load, Proxy, Router, SOON};
use super::{SELDOM, ms};

pub(super) const CHAT: &str = "/v1/chat/completions";

pub(super) async fn sglang(role: Role) -> Running {
    let config = EngineConfig::new(Wire::Sglang, role).scaled(0.05);
    start(EngineConfig { log: 1_000_000, ..config }).await.unwrap()
}

/// With its bootstrap port, if it is a prefill.
pub(super) fn sglang_pod(name: &str, engine: &Running, role: &str) -> Blueprint {
    let pod = Blueprint::new(name, engine.addr.port()).label(ROLE, role);
    match engine.side_addr {
        Some(side) => pod.annotation(BOOTSTRAP, &side.port().to_string()),
        None => pod,
    }
}

/// What the configuration says of the service.
pub(super) fn sglang_service() -> String {
    format!("engine: {{ kind: {} }}", EngineKind::Sglang.as_str())
}

fn chats(engine: &Running) -> usize {
    engine.log.read(|records| records.to(CHAT).count())
}

pub async fn pairs_wait_for_the_bootstrap_server(cluster: Arc<Cluster>) {
    let (prefill, decode) = (sglang(Role::Prefill).await, sglang(Role::Decode).await);
    // Its bootstrap server, behind a door that is shut first.
    let door = Proxy::to(&prefill.side_addr.unwrap().to_string());
    door.shut().await;
    let (p, d) = (prefill.addr.port(), decode.addr.port());
    let port = door.addr.port().to_string();
    cluster.create(&sglang_pod("prefill", &prefill, "prefill").annotation(BOOTSTRAP, &port)).await;
    cluster.create(&sglang_pod("decode", &decode, "decode")).await;
    let router = Router::of_kind(&cluster, SELDOM, &sglang_service()).await;
    router.until_ready(SOON).await;
    router.until_selectable(&[d], SOON).await;
    router.until_reason(&p.to_string(), "probing").await;
    assert_eq!(router.ask(1).await, [503], "no prefill yet");
    assert_eq!(chats(&decode), 0, "a decode alone gets nothing");

    door.open();
    router.until_selectable(&[p, d], SOON).await;
    let mut client = router.process.client().await;
    let answer = client.request(&post_chat(chat_body("tiny", false))).await.unwrap();
    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert_eq!((chats(&prefill), chats(&decode)), (1, 1));
    assert_eq!(decode.state().count("corrupted"), 0);
    router.observers_agree().await;

    // Its process restarts: what was learnt of it has to be learnt again.
    door.shut().await;
    cluster.say_ready("prefill", "False").await;
    router.until_selectable(&[d], SOON).await;
    cluster.say_ready("prefill", "True").await;
    router.until_reason(&p.to_string(), "probing").await;
    sleep(ms(300)).await;
    assert_eq!(router.ask(1).await, [503]);
    door.open();
    router.until_selectable(&[p, d], SOON).await;
}

/// The role label decides, whatever a Pod was before.
pub async fn a_role_is_followed(cluster: Arc<Cluster>) {
    let prefills = [sglang(Role::Prefill).await, sglang(Role::Prefill).await];
    let decodes = [sglang(Role::Decode).await, sglang(Role::Decode).await];
    for (i, prefill) in prefills.iter().enumerate() {
        cluster.create(&sglang_pod(&format!("p{i}"), prefill, "prefill")).await;
    }
    for (i, decode) in decodes.iter().enumerate() {
        cluster.create(&sglang_pod(&format!("d{i}"), decode, "decode")).await;
    }
    let ports: Vec<u16> = prefills.iter().chain(&decodes).map(|engine| engine.addr.port()).collect();
    let router = Router::of_kind(&cluster, SELDOM, &sglang_service()).await;
    router.until_ready(SOON).await;
    router.until_selectable(&ports, SOON).await;
    let load = Load::on(&router, 2);

    // A decode that calls itself a prefill: the decode is gone, the prefill waits for a bootstrap server.
    cluster.set_label("d1", ROLE, Some("prefill")).await;
    router.until_selectable(&ports[..3], SOON).await;
    router.until_reason(&ports[3].to_string(), "probing").await;
    let flipped = router.endpoint(ports[3]).await.unwrap();
    assert_eq!(flipped.role, "prefill");
    sleep(ms(200)).await;
    let before = chats(&decodes[1]);
    sleep(ms(300)).await;
    assert_eq!(chats(&decodes[1]), before);

    cluster.set_label("d1", ROLE, Some("neither")).await;
    super::super::until("no role", SOON, || async {
        let reason = router.reason(&ports[3].to_string()).await;
        if reason.as_deref() == Some("wrong_role") { Ok(()) } else { Err(reason) }
    })
    .await;
    cluster.set_label("d1", ROLE, Some("decode")).await;
    router.until_selectable(&ports, SOON).await;
    assert_eq!(router.endpoint(ports[3]).await.unwrap().role, "decode");
    super::super::until("requests again", SOON, || async {
        let now = chats(&decodes[1]);
        if now > before { Ok(()) } else { Err(now) }
    })
    .await;
    router.observers_agree().await;
    load.none_failed().await;
    assert_eq!(decodes.iter().map(|d| d.state().count("corrupted")).sum::<u64>(), 0);
}

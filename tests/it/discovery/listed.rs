//! Endpoints of the configuration: spelled in many ways, named, reloaded (B85, B156), and an address of both families to listen on.

use serde_json::{Value, json};
use tandem::config::StaticEndpoint;
use tandem::testkit::client::RawClient;
use tandem::testkit::engine::openai::chat_json;
use tandem::testkit::engine::{Engine, Script};
use tandem::testkit::fixtures::{chat_body, post_chat};
use tandem::testkit::kube::FakeKube;
use tandem::testkit::router::config;
use tokio::time::sleep;

use super::rig::*;
use crate::process::{Process, poll};

/// Whoever answers to the name changes while connections are kept busy all the time.
#[tokio::test(start_paused = true)]
async fn b156_what_a_name_stands_for_now_gets_its_share_within_a_minute() {
    for (host, moves) in [("engines.default.svc", true), ("192.0.2.1", false)] {
        let mut config = config(&[]);
        config.services[0].endpoints = vec![StaticEndpoint::parse(&format!("http://{host}:8000")).unwrap()];
        let world = World::new(config, FakeKube::new());
        let old = world.serve(host, slow("old", 3, ms(20)));
        let load = world.load(4, ms(250));
        sleep(secs(20)).await;
        // New connections go to the new one; the old one is still there.
        let new = world.serve(host, slow("new", 3, ms(20)));
        sleep(secs(60)).await;
        let before = (chats(&old), chats(&new));
        sleep(secs(5)).await;
        load.end_well().await;
        let during = (chats(&old) - before.0, chats(&new) - before.1);
        assert_eq!((during.0 == 0, during.1 > 0), (moves, moves), "{host}: {during:?}");
        world.router.assert_invariants(&[&old, &new]).await;
    }
}

struct Rig {
    process: Process,
    dir: tempfile::TempDir,
    port: u16,
    reloads: usize,
}

fn yaml(urls: &[String]) -> String {
    let mixed: Vec<Value> = urls.iter().map(|url| json!({ "url": url })).collect();
    let service = json!({ "name": "chat", "discovery": { "static": { "mixed": mixed } } });
    format!("services: [{service}]\n")
}

impl Rig {
    /// Whether it was taken over, and what is listed then.
    async fn reload(&mut self, urls: &[String]) -> (bool, Vec<Value>) {
        std::fs::write(self.dir.path().join("router.yaml"), yaml(urls)).unwrap();
        self.process.signal(rustix::process::Signal::HUP);
        self.reloads += 1;
        let reloads = async || {
            let scrape = self.process.scrape().await;
            ["ok", "error"].map(|result| scrape.sum("tandem_config_reloads_total", &[("result", result)]))
        };
        #[expect(clippy::cast_precision_loss, reason = "a handful")]
        let wanted = self.reloads as f64;
        poll("the reload", async || reloads().await.iter().sum::<f64>() >= wanted).await;
        let good = self.process.scrape().await.sum("tandem_config_last_reload_successful", &[]);
        (good > 0.5, self.endpoints().await)
    }

    async fn endpoints(&self) -> Vec<Value> {
        let listed = self.process.admin_get("/endpoints").await.json();
        let all = listed["endpoints"].as_array().unwrap().clone();
        all.into_iter().filter(|e| e["reason"] != "removed").collect()
    }

    fn spell(&self, spelling: &str) -> String {
        spelling.replace("PORT", &self.port.to_string())
    }
}

/// One endpoint, one id, whatever its spelling; twice the same is a mistake, and another place takes it out.
#[tokio::test]
async fn b85_every_spelling_of_an_endpoint_is_that_endpoint() {
    let engine = Engine::start_tcp(Script::always(chat_json("hello"))).await;
    let port = engine.addr().port();
    let dir = tempfile::tempdir().unwrap();
    let first = format!("http://localhost:{port}");
    let process = Process::from_yaml(&yaml(&[first]), dir.path(), &["--shutdown-delay", "0"]).await;
    let mut rig = Rig { process, dir, port, reloads: 0 };
    let id = rig.endpoints().await[0]["id"].clone();
    for spelling in ["http://localhost:PORT/", "HTTP://LocalHost:PORT", "http://LOCALHOST:0PORT"] {
        let url = rig.spell(spelling);
        let (_, now_is) = rig.reload(std::slice::from_ref(&url)).await;
        assert_eq!((now_is.len(), &now_is[0]["id"]), (1, &id), "{url}");
        assert_eq!(now_is[0]["url"], rig.spell("http://localhost:PORT"));
        // What is listed resolves at once.
        let id = id.as_str().unwrap();
        for (method, draining) in [("PUT", true), ("DELETE", false)] {
            let answer = rig.process.admin_call(method, &format!("/endpoints/{id}/drain"), &[]).await;
            assert_eq!((answer.status(), answer.json()["draining"].as_bool()), (200, Some(draining)));
        }
    }
    for pair in
        [["http://localhost:PORT", "http://LOCALHOST:PORT/"], ["http://localhost:80", "http://localhost"]]
    {
        let (good, now_is) = rig.reload(&pair.map(|spelling| rig.spell(spelling))).await;
        assert!(!good, "{pair:?} are one endpoint");
        assert_eq!((now_is.len(), &now_is[0]["id"]), (1, &id), "nothing changed");
    }
    for bad in ["localhost:PORT", "http://localhost:PORT/v1", "https://localhost:PORT", "http://127.1:PORT"] {
        let (good, now_is) = rig.reload(&[rig.spell(bad)]).await;
        assert!(!good && now_is[0]["id"] == id, "{bad}");
    }
    let elsewhere = "http://192.0.2.77:8000".to_owned();
    let (good, now_is) = rig.reload(std::slice::from_ref(&elsewhere)).await;
    assert!(good && now_is.len() == 1 && now_is[0]["url"] == elsewhere.as_str(), "{now_is:?}");
    let back = rig.spell("http://LOCALHOST:PORT/");
    let (good, now_is) = rig.reload(&[back]).await;
    assert!(good && now_is.len() == 1 && now_is[0]["id"] != id, "a new one: what was removed is gone");
    let mut client = rig.process.client().await;
    assert_eq!(client.request(&post_chat(chat_body("m", false))).await.unwrap().status(), 200);
    // The maps are as small as they were.
    let scrape = rig.process.scrape().await;
    assert_eq!(scrape.sum("tandem_endpoints", &[("reason", "selectable")]), 1.0);
}

/// `[::]` takes connections of both families.
#[tokio::test]
async fn b154_the_front_door_listens_on_both_families() {
    let engine = Engine::start_tcp(Script::always(chat_json("hello"))).await;
    let mut config = config(&[engine.addr().to_string()]);
    config.listen = "[::]:0".parse().unwrap();
    config.admin.listen = "[::1]:0".parse().unwrap();
    config.shutdown.delay = ms(0);
    config.access_log.sink = tandem::config::LogSink::Off;
    let started = tandem::app::start(config, None, None).unwrap();
    assert!(started.front.is_ipv6());
    for ip in ["::1", "127.0.0.1"] {
        let at = std::net::SocketAddr::new(ip.parse().unwrap(), started.front.port());
        let mut client = RawClient::connect(at).await;
        assert_eq!(client.request(&post_chat(chat_body("m", false))).await.unwrap().status(), 200, "{ip}");
    }
    started.leave(std::future::ready(())).await;
}

//! The same over HTTP on loopback, on the real clock.

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;

const SOON: Duration = Duration::from_millis(50);

async fn client(server: &FakeServer, who: Credentials<'_>) -> (Client, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let read = Kubeconfig::read_from(server.kubeconfig(dir.path(), who)).unwrap();
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.unwrap();
    (Client::try_from(config).unwrap(), dir)
}

async fn count(client: &Client) -> Result<usize, u16> {
    match Api::<Pod>::default_namespaced(client.clone()).list(&ListParams::default()).await {
        Ok(list) => Ok(list.items.len()),
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(_) => Err(0),
    }
}

/// Opens a watch by hand and reads its head.
async fn raw_watch(server: &FakeServer) -> TcpStream {
    let mut stream = TcpStream::connect(server.addr()).await.unwrap();
    let request = format!("GET {PODS}?watch=1&resourceVersion=100 HTTP/1.1\r\nhost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("transfer-encoding: chunked"), "{head}");
    stream
}

async fn rest(mut stream: TcpStream) -> String {
    let mut text = String::new();
    let read = tokio::time::timeout(Duration::from_secs(10), stream.read_to_string(&mut text));
    // A reset is an end too.
    let _ = read.await.expect("the connection ends");
    text
}

#[tokio::test]
async fn a_kubeconfig_leads_to_it_with_a_token_or_a_file_of_one() {
    let fake = FakeKube::new();
    fake.create(pod("a"));
    fake.accept_tokens(&["A", "B"]);
    let server = fake.serve().await;
    assert_eq!(count(&client(&server, Credentials::Token("A")).await.0).await, Ok(1));
    assert_eq!(count(&client(&server, Credentials::TokenFile("B")).await.0).await, Ok(1));
    assert_eq!(count(&client(&server, Credentials::TokenFile("C")).await.0).await, Err(401));
    assert_eq!(count(&client(&server, Credentials::Nobody).await.0).await, Err(401));
    let tokens: Vec<_> = fake.requests().into_iter().map(|r| r.token.unwrap_or_default()).collect();
    assert_eq!(tokens, ["A", "B", "C", ""]);
}

#[tokio::test]
async fn watches_end_cleanly_or_are_cut() {
    let fake = FakeKube::new();
    let server = fake.serve().await;
    let mut stream = raw_watch(&server).await;
    fake.create(pod("a"));
    fake.end_watches();
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n0\r\n\r\n") {
        text.push(stream.read_u8().await.unwrap());
    }
    assert!(String::from_utf8(text).unwrap().contains("\"ADDED\""));
    let stream = raw_watch(&server).await;
    fake.update("default", "a", |_| {});
    fake.cut_watches();
    let text = rest(stream).await;
    assert!(text.contains("\"MODIFIED\"") && !text.ends_with("0\r\n\r\n"), "{text}");
}

#[tokio::test]
async fn whoever_leaves_is_noticed() {
    let fake = FakeKube::new();
    let server = fake.serve().await;
    let stream = raw_watch(&server).await;
    assert_eq!(fake.open_watches(), 1);
    drop(stream);
    fake.until("no watch", |fake| fake.open_watches() == 0).await;
}

#[tokio::test]
async fn it_stops_and_comes_back_on_the_same_port() {
    let fake = FakeKube::new();
    let mut server = fake.serve().await;
    let (client, _dir) = client(&server, Credentials::Nobody).await;
    let stream = raw_watch(&server).await;
    server.stop().await;
    assert_eq!(rest(stream).await, "", "cut in the middle");
    assert_eq!(count(&client).await, Err(0));
    fake.create(pod("a"));
    server.restart().await;
    assert_eq!(count(&client).await, Ok(1));
}

#[tokio::test]
async fn a_drain_keeps_open_watches_for_a_while() {
    let fake = FakeKube::new();
    let mut server = fake.serve().await;
    let stream = raw_watch(&server).await;
    let addr = server.addr();
    tokio::join!(server.shut_down(SOON), async {
        fake.create(pod("a"));
        assert!(rest(stream).await.contains("\"ADDED\""), "served while it drains");
    });
    assert!(TcpStream::connect(addr).await.is_err());
}

#[tokio::test]
async fn a_black_hole_says_nothing_and_closes_nothing() {
    let fake = FakeKube::new();
    let server = fake.serve().await;
    let mut stream = raw_watch(&server).await;
    server.black_hole(true);
    fake.create(pod("a"));
    let mut new = TcpStream::connect(server.addr()).await.unwrap();
    new.write_all(b"GET /version HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    for stream in [&mut stream, &mut new] {
        assert!(tokio::time::timeout(SOON, stream.read_u8()).await.is_err(), "no byte and no end");
    }
    assert_eq!(fake.open_watches(), 1);
    server.black_hole(false);
    stream.read_u8().await.unwrap();
    new.read_u8().await.unwrap();
}

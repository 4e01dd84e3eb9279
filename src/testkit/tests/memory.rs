use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::testkit::memory::{DialFault, MemoryNet, MemoryStream};
use crate::types::clock::now;

#[tokio::test]
async fn a_dropped_end_is_a_fin_and_an_armed_one_a_reset_after_the_data() {
    for reset in [false, true] {
        let (mut near, mut far) = MemoryStream::pair(64);
        near.write_all(b"last words").await.unwrap();
        if reset {
            near.arm_reset();
        }
        drop(near);
        let mut received = Vec::new();
        let end = far.read_to_end(&mut received).await;
        assert_eq!(received, b"last words");
        assert_eq!(end.err().map(|error| error.kind()), reset.then_some(ErrorKind::ConnectionReset));
    }
}

#[tokio::test]
async fn a_name_routes_to_its_listener_and_is_refused_without_one() {
    let net = MemoryNet::new();
    let refused = |result: std::io::Result<MemoryStream>| result.err().map(|error| error.kind());
    assert_eq!(refused(net.dial("a").await), Some(ErrorKind::ConnectionRefused));
    let (mut a, mut b) = (net.listen("a"), net.listen("b:81"));
    let mut to_a = net.dial_host("a", 80).await.unwrap();
    let mut to_b = net.dial_host("b", 81).await.unwrap();
    to_a.write_all(b"A").await.unwrap();
    to_b.write_all(b"B").await.unwrap();
    assert_eq!(a.accept().await.unwrap().read_u8().await.unwrap(), b'A');
    assert_eq!(b.accept().await.unwrap().read_u8().await.unwrap(), b'B');
    drop(a);
    assert_eq!(refused(net.dial("a").await), Some(ErrorKind::ConnectionRefused));
    assert_eq!((net.dials("a"), net.dials("b:81")), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn dials_can_be_refused_delayed_and_never_answered() {
    let net = MemoryNet::new();
    let _listener = net.listen("a");
    net.set_fault("a", DialFault::Refuse);
    assert_eq!(net.dial("a").await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    net.set_fault("a", DialFault::Delay(Duration::from_secs(3)));
    let started = now();
    net.dial("a").await.unwrap();
    assert_eq!(now() - started, Duration::from_secs(3));
    net.set_fault("a", DialFault::BlackHole);
    let dial = tokio::time::timeout(Duration::from_hours(1), net.dial("a"));
    assert!(dial.await.is_err());
}

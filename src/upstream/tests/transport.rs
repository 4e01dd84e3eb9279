use std::collections::HashMap;
use std::net::Ipv4Addr;

use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::*;

fn dial_of(known: Arc<Mutex<Vec<SocketAddr>>>) -> TcpDial {
    TcpDial { names: Arc::new(Names::new(move |_| Ok(known.lock().clone()))) }
}

/// Listeners on one port of several addresses of the loopback network.
async fn listeners(last: std::ops::Range<u8>, port: u16) -> Vec<TcpListener> {
    let mut all = Vec::new();
    for n in last {
        let port = all.first().map_or(port, |first: &TcpListener| first.local_addr().unwrap().port());
        all.push(TcpListener::bind((Ipv4Addr::new(127, 0, 0, n), port)).await.unwrap());
    }
    all
}

async fn shares(dial: &TcpDial, port: u16, dials: usize) -> HashMap<IpAddr, usize> {
    let mut shares = HashMap::new();
    for _ in 0..dials {
        let Io::Tcp(stream) = dial.dial("engines", port).await.unwrap() else { panic!("not TCP") };
        *shares.entry(stream.peer_addr().unwrap().ip()).or_default() += 1;
    }
    shares
}

#[tokio::test]
async fn b156_every_address_of_a_name_gets_its_share_of_new_connections() {
    let first = listeners(1..3, 0).await;
    let at =
        |listeners: &[TcpListener]| listeners.iter().map(|l| l.local_addr().unwrap()).collect::<Vec<_>>();
    let known = Arc::new(Mutex::new(at(&first)));
    let (dial, port) = (dial_of(Arc::clone(&known)), at(&first)[0].port());
    let two = shares(&dial, port, 60).await;
    assert!(two.len() == 2 && two.values().all(|n| *n >= 10), "{two:?}");
    let more = listeners(3..7, port).await;
    known.lock().extend(at(&more));
    // What was looked up is good for a second.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let six = shares(&dial, port, 180).await;
    assert!(six.len() == 6 && six.values().all(|n| *n >= 10), "{six:?}");
    // Those that refuse are passed over.
    drop((first, more.into_iter().skip(1).collect::<Vec<_>>()));
    let four = listeners(4..5, port).await;
    assert_eq!(shares(&dial, port, 20).await.values().sum::<usize>(), 20);
    drop(four);
}

#[test]
fn the_family_that_the_system_prefers_stays_first() {
    let at = |text: &str| text.parse::<SocketAddr>().unwrap();
    for _ in 0..50 {
        let mut mixed = [at("[::1]:1"), at("[::2]:1"), at("127.0.0.1:1"), at("[::3]:1")];
        begin_anywhere(&mut mixed);
        assert!(mixed[0].is_ipv6() && mixed[1].is_ipv6());
        assert_eq!(mixed[2..], [at("127.0.0.1:1"), at("[::3]:1")]);
        let mut one = [at("127.0.0.1:1"), at("[::1]:1")];
        begin_anywhere(&mut one);
        assert_eq!(one[0], at("127.0.0.1:1"));
    }
    begin_anywhere(&mut []);
}

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use tokio::time::timeout;

use super::*;

const AT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);
const SHORT: Duration = Duration::from_millis(5);

/// Names whose look-ups wait for a word each, and how many have begun.
fn hanging() -> (Names, Arc<AtomicUsize>, mpsc::Sender<()>) {
    let (go, wait) = mpsc::channel();
    let (begun, wait) = (Arc::new(AtomicUsize::new(0)), Mutex::new(wait));
    let count = Arc::clone(&begun);
    let names = Names::new(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        let _ = wait.lock().recv();
        Ok(vec![AT])
    });
    (names, begun, go)
}

#[tokio::test]
async fn a_hanging_look_up_is_the_only_one_of_its_name_however_many_dials_give_up_on_it() {
    let (names, begun, go) = hanging();
    for _ in 0..20 {
        assert!(timeout(SHORT, names.resolve("engine", 80)).await.is_err());
    }
    assert_eq!(begun.load(Ordering::SeqCst), 1);
    go.send(()).unwrap();
    // What it finds at last serves those who wait now.
    let (a, b) = tokio::join!(names.resolve("engine", 80), names.resolve("engine", 81));
    assert_eq!((a.unwrap()[0].port(), b.unwrap()[0].port()), (80, 81));
    assert_eq!(begun.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn all_names_together_have_a_bounded_number_of_look_ups() {
    let (names, begun, go) = hanging();
    for n in 0..AT_ONCE + 10 {
        assert!(timeout(Duration::from_millis(1), names.resolve(&format!("e{n}"), 80)).await.is_err());
    }
    // Those behind the lock have begun too.
    assert_eq!(names.places.available_permits(), 0);
    assert!(begun.load(Ordering::SeqCst) <= AT_ONCE);
    drop(go);
    assert!(names.resolve("one more", 80).await.is_ok());
}

#[tokio::test]
async fn failures_are_shared_too_and_nothing_is_kept_for_long() {
    let begun = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&begun);
    let names = Names::new(move |_| match count.fetch_add(1, Ordering::SeqCst) {
        0 => Err(io::Error::from_raw_os_error(24)),
        _ => Ok(vec![AT]),
    });
    for _ in 0..3 {
        assert_eq!(names.resolve("engine", 80).await.unwrap_err().raw_os_error(), Some(24));
    }
    assert_eq!(begun.load(Ordering::SeqCst), 1);
    tokio::time::pause();
    tokio::time::advance(FRESH).await;
    tokio::time::resume();
    assert!(names.resolve("engine", 80).await.is_ok());
    assert_eq!(begun.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn names_that_nobody_asks_for_are_forgotten() {
    let names = Names::new(|_| Ok(vec![AT]));
    for n in 0..KEPT + 5 {
        names.resolve(&n.to_string(), 80).await.unwrap();
    }
    assert!(names.known.lock().len() <= KEPT);
}

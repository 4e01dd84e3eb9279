use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body::Frame;
use parking_lot::Mutex;
use proptest::prelude::*;
use tower_service::Service;

use super::*;

/// What arrives, piece by piece; then the end, a break, or nothing more for ever.
struct Pieces(VecDeque<Bytes>, End);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Clean,
    Broken,
    Never,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match (self.0.pop_front(), self.1) {
            (Some(piece), _) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            (None, End::Clean) => Poll::Ready(None),
            (None, End::Broken) => Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into()))),
            (None, End::Never) => Poll::Pending,
        }
    }
}

/// Answers one request with this status and these pieces.
#[derive(Clone)]
struct Server(u16, Arc<Mutex<Option<Pieces>>>);

impl Service<http::Request<Body>> for Server {
    type Response = Response<Pieces>;
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<Response<Pieces>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let query = request.uri().query().unwrap_or_default();
        for part in ["watch=true", "resourceVersion=5", "allowWatchBookmarks=true", "labelSelector=app%3Dllm"]
        {
            assert!(query.contains(part), "{part} in {query}");
        }
        let pieces = self.1.lock().take().expect("one request");
        std::future::ready(Ok(Response::builder().status(self.0).body(pieces).unwrap()))
    }
}

async fn open(status: u16, pieces: Vec<Vec<u8>>, end: End) -> Result<Watch, Failure> {
    let pieces = Pieces(pieces.into_iter().map(Bytes::from).collect(), end);
    let client = Client::new(Server(status, Arc::new(Mutex::new(Some(pieces)))), "ns");
    let scope = Scope { namespace: None, selector: "app=llm".to_owned(), object: None };
    Watch::open(&client, &scope, 5).await
}

/// Every event, and how it ended.
async fn all(mut watch: Watch) -> (Vec<Event>, Result<(), Kind>) {
    let mut events = Vec::new();
    loop {
        match watch.next().await {
            Ok(Some(event)) => events.push(event),
            Ok(None) => return (events, Ok(())),
            Err(failure) => return (events, Err(failure.kind)),
        }
    }
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn run(pieces: Vec<Vec<u8>>, end: End) -> (Vec<Event>, Result<(), Kind>) {
    all(open(200, pieces, end).await.unwrap()).await
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_says_why() {
    let body = br#"{"kind":"Status","message":"slow down","code":429,"details":{"retryAfterSeconds":2}}"#;
    let failure = open(429, vec![body.to_vec()], End::Clean).await.unwrap_err();
    assert_eq!((failure.kind, failure.message.as_str()), (Kind::Throttled, "slow down"));
    assert_eq!(failure.retry_after, Some(Duration::from_secs(2)));
    assert_eq!(open(410, vec![], End::Clean).await.unwrap_err().kind, Kind::Expired);
    assert_eq!(open(502, vec![b"<html>".to_vec()], End::Clean).await.unwrap_err().kind, Kind::Server);
    assert_eq!(
        open(500, vec![], End::Never).await.unwrap_err().kind,
        Kind::Timeout,
        "a refusal without an end"
    );
}

fn line(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

const POD: &str = r#"{"metadata":{"uid":"u","namespace":"ns","name":"p","resourceVersion":"7"}}"#;

fn deleted() -> Event {
    Event::Deleted(Identity {
        uid: Some("u".into()),
        namespace: "ns".into(),
        name: "p".into(),
        version: Some(7),
    })
}

#[test]
fn each_kind_of_line_is_its_event() {
    for kind in ["ADDED", "MODIFIED"] {
        assert_eq!(event(line(kind, POD).as_bytes()), Ok(Event::Changed(POD.to_owned())));
    }
    assert_eq!(event(line("DELETED", POD).as_bytes()), Ok(deleted()));
    assert_eq!(event(line("BOOKMARK", POD).as_bytes()), Ok(Event::Bookmark(Some(7))));
    assert_eq!(event(line("BOOKMARK", "{}").as_bytes()), Ok(Event::Bookmark(None)));
    // Keys in another order, and more of them.
    let odd = format!("{{\"object\":{POD},\"x\":[1],\"type\":\"DELETED\"}}");
    assert_eq!(event(odd.as_bytes()), Ok(deleted()));
}

#[test]
fn an_error_event_is_the_failure_it_names() {
    for (status, kind, wait) in [
        (r#"{"kind":"Status","code":410,"reason":"Expired","message":"too old"}"#, Kind::Expired, None),
        (r#"{"code":429,"details":{"retryAfterSeconds":3}}"#, Kind::Throttled, Some(3)),
        (r#"{"code":401}"#, Kind::Unauthorized, None),
        (r#"{"code":403}"#, Kind::Forbidden, None),
        (r#"{"code":500,"details":null}"#, Kind::Server, None),
        ("{}", Kind::Server, None),
        ("null", Kind::Server, None),
        ("\"what\"", Kind::Server, None),
    ] {
        let Ok(Event::Error(failure)) = event(line("ERROR", status).as_bytes()) else { panic!("{status}") };
        assert_eq!((failure.kind, failure.retry_after), (kind, wait.map(Duration::from_secs)), "{status}");
        assert!(!failure.message.is_empty());
    }
}

#[test]
fn what_is_no_event_is_a_failure() {
    for text in [
        "<html>",
        "{}",
        "null",
        "{\"type\":\"ADDED\"}",
        "{\"object\":{}}",
        "{\"type\":5,\"object\":{}}",
        "{\"type\":\"ADDED\",\"object\":{}",
        "{\"type\":\"ADDED\",\"object\":{}} {}",
        "{\"type\":\"SOMETHING\",\"object\":{}}",
        "\u{0}",
    ] {
        assert_eq!(event(text.as_bytes()).map_err(|failure| failure.kind), Err(Kind::Invalid), "{text}");
    }
    assert_eq!(event(b"\xff\xfe").map_err(|failure| failure.kind), Err(Kind::Invalid));
}

#[test]
fn a_watch_ends_cleanly_only_between_two_lines() {
    let whole = line("DELETED", POD).into_bytes();
    assert_eq!(run(vec![whole.clone()], End::Clean), (vec![deleted()], Ok(())));
    assert_eq!(run(vec![], End::Clean), (vec![], Ok(())));
    assert_eq!(run(vec![whole.clone()], End::Broken), (vec![deleted()], Err(Kind::Connection)));
    let half = [whole.clone(), whole[..10].to_vec()].concat();
    assert_eq!(run(vec![half], End::Clean), (vec![deleted()], Err(Kind::Connection)), "a proxy cut it");
    assert_eq!(run(vec![whole], End::Never), (vec![deleted()], Err(Kind::Timeout)), "half-open");
}

#[test]
fn blank_lines_say_nothing_and_garbage_ends_it() {
    let text = format!("\n \r\n\t\n{}\r\n\n", line("DELETED", POD).trim_end());
    assert_eq!(run(vec![text.into_bytes()], End::Clean), (vec![deleted()], Ok(())));
    let text = format!("{}<html>\n{}", line("DELETED", POD), line("DELETED", POD));
    assert_eq!(run(vec![text.into_bytes()], End::Clean), (vec![deleted()], Err(Kind::Invalid)));
}

#[test]
fn a_line_without_an_end_is_given_up() {
    let piece = vec![b'x'; 1 << 20];
    assert_eq!(
        run(vec![piece.clone(); 4], End::Never),
        (vec![], Err(Kind::Timeout)),
        "as much as an object may have"
    );
    assert_eq!(run(vec![piece; 5], End::Never), (vec![], Err(Kind::Invalid)));
}

#[test]
fn an_object_of_the_largest_size_is_an_event() {
    let large = format!("{{\"metadata\":{{\"uid\":\"u\"}},\"x\":\"{}\"}}", "y".repeat(3 << 20));
    let text = line("MODIFIED", &large).into_bytes();
    let pieces = text.chunks(64 << 10).map(<[u8]>::to_vec).collect();
    assert_eq!(run(pieces, End::Clean), (vec![Event::Changed(large)], Ok(())));
}

fn lines() -> impl Strategy<Value = String> {
    let one = prop_oneof![
        Just(line("ADDED", POD)),
        Just(line("MODIFIED", "{\"x\":\"é\\n🌍\"}")),
        Just(line("DELETED", POD)),
        Just(line("BOOKMARK", POD)),
        Just(line("ERROR", "{\"code\":410}")),
        Just("\n".to_owned()),
    ];
    prop::collection::vec(one, 0..12).prop_map(|lines| lines.concat())
}

proptest! {
    /// However the bytes are cut into pieces, the events are the same.
    #[test]
    fn any_split_gives_the_same_events(
        text in lines(),
        mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        end in prop_oneof![Just(End::Clean), Just(End::Broken), Just(End::Never)],
        torn in 0usize..30,
    ) {
        let mut bytes = text.into_bytes();
        bytes.truncate(bytes.len().saturating_sub(torn));
        let mut at: Vec<usize> = cuts.drain(..).map(|cut| cut.index(bytes.len() + 1)).collect();
        at.extend([0, bytes.len()]);
        at.sort_unstable();
        let pieces = at.windows(2).map(|two| bytes[two[0]..two[1]].to_vec()).collect();
        prop_assert_eq!(run(pieces, end), run(vec![bytes], end));
    }
}

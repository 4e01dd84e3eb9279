use super::*;
use crate::types::clock::now;

const QUERY: &str = "resourceVersion=100";

async fn opened(fake: &FakeKube) -> Lines {
    Lines::open(&fake.entry(), QUERY).await
}

#[tokio::test(start_paused = true)]
async fn refusals_come_in_order_then_the_lasting_one_until_it_is_lifted() {
    let fake = FakeKube::new();
    fake.push(RequestKind::List, Fault::throttled(5));
    fake.push(RequestKind::List, Fault::Pass);
    fake.always(RequestKind::List, Some(Fault::status(403)));
    let throttled = list(&fake, "").await;
    assert_eq!((throttled.code, throttled.retry_after.as_deref()), (429, Some("5")));
    assert_eq!(throttled.body, "Too many requests, please try again later.\n", "no Status: as a real one");
    assert_eq!(list(&fake, "").await.code, 200);
    for _ in 0..2 {
        let refused = list(&fake, "").await;
        assert_eq!((refused.code, &refused.body["reason"]), (403, &json!("Forbidden")));
        assert!(refused.body["message"].as_str().unwrap().starts_with("pods is forbidden: User"));
    }
    assert_eq!(opened(&fake).await.next().await, Said::Nothing, "watches are another kind");
    fake.always(RequestKind::List, None);
    assert_eq!(list(&fake, "").await.code, 200);
    for (code, reason) in [(401, "Unauthorized"), (500, "InternalError"), (503, "ServiceUnavailable")] {
        fake.push(RequestKind::List, Fault::status(code));
        let got = list(&fake, "").await;
        assert_eq!(
            (got.code, &got.body["reason"], &got.body["kind"]),
            (code, &json!(reason), &json!("Status"))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_has_faults_of_its_own() {
    let fake = FakeKube::with_replicas(2);
    fake.replica(1).always(RequestKind::List, Some(Fault::status(500)));
    fake.push_n(RequestKind::List, &Fault::status(503), 2);
    let balanced = fake.balanced();
    let mut codes = Vec::new();
    for _ in 0..4 {
        codes.push(send(&balanced, "GET", PODS, "", &Value::Null).await.code);
    }
    assert_eq!(codes, [503, 503, 200, 500], "in turn, queued before lasting");
    assert_eq!(fake.requests().iter().map(|r| r.replica).collect::<Vec<_>>(), [0, 1, 0, 1]);
    fake.push(RequestKind::Watch, Fault::Pass);
    assert_eq!(fake.faults_left(), 1);
    fake.replica(1).clear_faults();
    assert_eq!(send(&fake.replica(1).entry(), "GET", PODS, "", &Value::Null).await.code, 200);
    fake.clear_faults();
    assert_eq!(fake.faults_left(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_watch_can_be_refused_failed_and_silent() {
    let fake = FakeKube::new();
    fake.push(RequestKind::Watch, Fault::status(410));
    let got = list(&fake, "watch=true&resourceVersion=100").await;
    assert_eq!((got.code, &got.body["reason"]), (410, &json!("Expired")));
    fake.push(RequestKind::Watch, Fault::InStream { code: 500 });
    assert_eq!(opened(&fake).await.events(2).await, ["ERROR 500", "End"]);
    fake.push(RequestKind::Watch, Fault::Silence);
    let mut silent = Lines::open(&fake.entry(), "timeoutSeconds=60&allowWatchBookmarks=1").await;
    fake.create(pod("a"));
    assert_eq!(silent.within(Duration::from_hours(2)).await, Said::Nothing);
    fake.create(pod("b"));
    assert_eq!(silent.next().await, Said::Nothing, "its time has been up for long");
    assert_eq!(fake.open_watches(), 1);
    fake.cut_watches();
    assert_eq!(silent.next().await, Said::Broken, "also a silent one can be cut");
}

#[tokio::test(start_paused = true)]
async fn answers_can_be_late_in_two_ways_or_never_come() {
    let fake = FakeKube::new();
    fake.create(pod("a"));
    for (fault, seen) in
        [(Fault::Pass.after(Duration::from_secs(9)), 0), (Fault::Late(Duration::from_secs(9)), 1)]
    {
        let name = format!("b{seen}");
        fake.create(pod(&name));
        fake.push(RequestKind::List, fault);
        let started = now();
        let (got, ()) = tokio::join!(list(&fake, "labelSelector=app"), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            fake.force_delete("default", &name);
        });
        assert_eq!(started.elapsed().as_secs(), 9);
        assert_eq!(
            got.names().contains(&name.as_str()),
            seen == 1,
            "as of its arrival, or as of its delivery"
        );
    }
    fake.push(RequestKind::List, Fault::BlackHole);
    assert!(tokio::time::timeout(Duration::from_hours(1), list(&fake, "")).await.is_err());
    assert_eq!(fake.requests().last().unwrap().status, None);
    fake.push(RequestKind::List, Fault::Refuse);
    let request = Request::get(PODS).body(Bytes::new()).unwrap();
    assert!(fake.entry().answer(request).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn bodies_break_where_they_are_told_to() {
    let fake = FakeKube::new();
    fake.create(pod("a"));
    fake.push(RequestKind::Watch, Fault::Cut { after: 20 });
    let mut watch = opened(&fake).await;
    assert_eq!(watch.next().await, Said::Broken);
    assert_eq!(watch.buffer, br#"{"type":"ADDED","obj"#);
    fake.push(RequestKind::List, Fault::Cut { after: 5 });
    let request = Request::get(PODS).body(Bytes::new()).unwrap();
    let response = fake.entry().answer(request).await.unwrap();
    assert!(response.into_body().collect().await.is_err());
    for (fault, said) in [(Fault::Stall { after: 5 }, 5), (Fault::Silence, 0)] {
        fake.push(RequestKind::List, fault);
        let request = Request::get(PODS).body(Bytes::new()).unwrap();
        let mut body = fake.entry().answer(request).await.unwrap().into_body();
        let mut read = 0;
        while let Ok(frame) = tokio::time::timeout(Duration::from_hours(1), body.frame()).await {
            read += frame.expect("no end").unwrap().into_data().unwrap().len();
        }
        assert_eq!(read, said);
    }
}

#[tokio::test(start_paused = true)]
async fn nonsense_comes_before_the_truth() {
    let fake = FakeKube::new();
    fake.create(pod("a"));
    fake.push(RequestKind::Watch, Fault::garbage("<html>\n"));
    let mut watch = opened(&fake).await;
    assert_eq!(watch.next().await, Said::Line(json!("<html>")));
    assert_eq!(watch.event().await, "ADDED a@101");
    fake.push(RequestKind::Watch, Fault::huge_line(1 << 20));
    let Said::Line(Value::String(line)) = opened(&fake).await.next().await else { panic!("no line") };
    assert_eq!(line.len(), 1 << 20);
    fake.push(RequestKind::List, Fault::garbage("{"));
    assert_eq!(list(&fake, "").await.body, "{");
    fake.push(RequestKind::List, Fault::Raw { code: 502, content_type: "text/html", body: "<html>".into() });
    assert_eq!((list(&fake, "").await.code, fake.lists()), (502, 2));
}

#[tokio::test(start_paused = true)]
async fn open_watches_do_as_they_are_told_after_what_was_made_before() {
    for (command, last) in [
        (FakeKube::end_watches as fn(&FakeKube), "End"),
        (FakeKube::cut_watches, "Broken"),
        (FakeKube::tear_watches, "Broken"),
        (|fake| fake.fail_watches(410), "ERROR 410"),
        (FakeKube::silence_watches, "Nothing"),
    ] {
        let fake = FakeKube::new();
        let mut watch = opened(&fake).await;
        fake.create(pod("a"));
        fake.inject("MODIFIED", &json!({ "metadata": { "name": "ghost", "resourceVersion": "5" } }));
        fake.create(pod("b"));
        assert_eq!(watch.events(3).await, ["ADDED a@101", "MODIFIED ghost@5", "ADDED b@102"]);
        fake.update("default", "b", |_| {});
        assert_eq!(watch.event().await, "MODIFIED b@103");
        command(&fake);
        fake.create(pod("late"));
        assert_eq!(watch.event().await, last, "and not what was made after");
    }
}

#[tokio::test(start_paused = true)]
async fn changes_are_lost_for_watches_and_never_for_lists() {
    let fake = FakeKube::new();
    fake.create(pod("a"));
    fake.create(pod("b"));
    let mut open = Lines::open(&fake.entry(), "resourceVersion=102").await;
    fake.lose_next(1);
    fake.force_delete("default", "a");
    fake.update("default", "b", |_| {});
    assert_eq!(open.events(2).await, ["MODIFIED b@104", "Nothing"]);
    let mut again = Lines::open(&fake.entry(), "resourceVersion=102").await;
    assert_eq!(again.events(2).await, ["MODIFIED b@104", "Nothing"], "not replayed either");
    assert_eq!(list(&fake, "").await.names(), ["b"]);
    fake.lose_where(|change| change.after().is_none() && change.name() == "b");
    fake.delete("default", "b");
    fake.finish_delete("default", "b");
    fake.lose_nothing();
    fake.create(pod("b"));
    assert_eq!(open.events(3).await, ["MODIFIED b@105", "ADDED b@107", "Nothing"]);
}

#[tokio::test(start_paused = true)]
async fn changes_are_doubled_delayed_overtaken_and_reversed() {
    let fake = FakeKube::new();
    let mut watch = opened(&fake).await;
    fake.duplicate_next(1);
    fake.create(pod("a"));
    fake.create(pod("b"));
    assert_eq!(watch.events(4).await, ["ADDED a@101", "ADDED a@101", "ADDED b@102", "Nothing"]);
    let minute = Duration::from_mins(1);
    fake.delay_next(1, minute);
    fake.update("default", "a", |_| {});
    fake.update("default", "b", |_| {});
    assert_eq!(watch.within(Duration::from_secs(59)).await, Said::Nothing);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(watch.events(3).await, ["MODIFIED a@103", "MODIFIED b@104", "Nothing"]);
    fake.overtake_next(1, minute);
    fake.force_delete("default", "a");
    fake.create(pod("a"));
    assert_eq!(watch.events(2).await, ["ADDED a@106", "Nothing"]);
    tokio::time::sleep(minute).await;
    assert_eq!(watch.events(2).await, ["DELETED a@105", "Nothing"]);
    fake.reverse_next(2);
    fake.force_delete("default", "b");
    assert_eq!(watch.event().await, "Nothing", "the second one is not made yet");
    fake.create(pod("b"));
    fake.update("default", "b", |_| {});
    assert_eq!(watch.events(4).await, ["ADDED b@108", "DELETED b@107", "MODIFIED b@109", "Nothing"]);
}

#[tokio::test(start_paused = true)]
async fn tokens_are_accepted_by_list() {
    let fake = FakeKube::new();
    fake.accept_tokens(&["A"]);
    let (a, b) = (fake.entry().with_token("A"), fake.entry().with_token("B"));
    assert_eq!(list(&fake, "").await.code, 401);
    assert_eq!(send(&b, "GET", PODS, "", &Value::Null).await.body["reason"], "Unauthorized");
    let mut open = Lines::open(&a, QUERY).await;
    fake.accept_tokens(&["B"]);
    fake.create(pod("a"));
    assert_eq!(open.event().await, "ADDED a@101", "an open watch outlives its token");
    fake.cut_watches();
    assert_eq!(open.event().await, "Broken");
    assert_eq!(send(&a, "GET", PODS, "", &Value::Null).await.code, 401);
    assert_eq!(send(&b, "GET", PODS, "", &Value::Null).await.names(), ["a"]);
    let tokens: Vec<_> = fake.requests().into_iter().map(|r| (r.token, r.status)).collect();
    let token = |t: &str| Some(t.to_owned());
    let expected = [(None, 401), (token("B"), 401), (token("A"), 200), (token("A"), 401), (token("B"), 200)];
    assert_eq!(tokens, expected.map(|(token, status)| (token, Some(status))));
}

#[tokio::test(start_paused = true)]
async fn every_request_is_recorded() {
    let fake = FakeKube::with_replicas(2);
    tokio::time::sleep(Duration::from_secs(5)).await;
    list(&fake, "limit=3&labelSelector=a%3Db").await;
    let watch = Lines::open(&fake.replica(1).entry(), QUERY).await;
    assert_eq!((fake.lists(), fake.watches(), fake.open_watches()), (1, 1, 1));
    assert_eq!((fake.replica(0).open_watches(), fake.replica(1).open_watches()), (0, 1));
    let requests = fake.requests();
    assert_eq!(requests[0].at, now());
    assert_eq!((requests[0].method.as_str(), requests[0].path.as_str()), ("GET", PODS));
    assert_eq!(requests[0].param("labelSelector").as_deref(), Some("a=b"));
    assert_eq!((requests[1].kind, requests[1].replica), (RequestKind::Watch, 1));
    drop(watch);
    assert_eq!((fake.watches(), fake.open_watches()), (1, 0), "whoever leaves is not served");
    let waiting = tokio::join!(fake.until("a second list", |fake| fake.lists() == 2), list(&fake, ""));
    assert_eq!(waiting.1.code, 200);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "waited 60s for a list")]
async fn waiting_for_what_never_happens_fails() {
    FakeKube::new().until("a list", |fake| fake.lists() == 1).await;
}

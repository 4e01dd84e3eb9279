use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::discovery::pod::{Phase, Ready};

fn pod(uid: &str, version: u64) -> Arc<Pod> {
    Arc::new(Pod {
        id: Arc::new(PodId { namespace: "ns".into(), name: "p".into(), uid: uid.to_owned() }),
        version,
        created: 1,
        deleting: false,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        phase: Phase::Running,
        ready: Ready::True,
        addresses: Vec::new(),
        unusable: Vec::new(),
        ports: Vec::new(),
        restarts: 0,
    })
}

/// UIDs and versions, as words: `a@5`.
fn known(tracker: &Tracker) -> Vec<String> {
    let mut known: Vec<String> =
        tracker.pods().map(|known| format!("{}@{}", known.pod.id.uid, known.pod.version)).collect();
    known.sort_unstable();
    known
}

fn list(tracker: &mut Tracker, version: u64, pods: &[(&str, u64)]) -> Option<usize> {
    let pods = pods.iter().map(|(uid, version)| pod(uid, *version)).collect();
    match tracker.list(version, pods, &[]) {
        Listed::Discarded => None,
        Listed::Applied(news) => Some(news.len()),
    }
}

#[test]
fn an_event_counts_only_if_it_is_newer() {
    let mut tracker = Tracker::default();
    assert!(matches!(tracker.apply(pod("a", 5)), Some(News::Changed(known)) if known.pod.version == 5));
    assert!(tracker.apply(pod("a", 5)).is_none(), "twice");
    assert!(tracker.apply(pod("a", 4)).is_none(), "late");
    assert!(tracker.apply(pod("a", 7)).is_some());
    assert_eq!(known(&tracker), ["a@7"]);
    assert_eq!(tracker.get("a").map(|known| known.born), Some(Born { created: 1, version: 5 }));
}

#[test]
fn a_deletion_counts_at_its_version_whatever_its_object_says() {
    let mut tracker = Tracker::default();
    tracker.apply(pod("a", 5));
    assert!(tracker.delete("a", 4).is_none(), "of before");
    assert_eq!(known(&tracker), ["a@5"]);
    assert!(matches!(tracker.delete("a", 6), Some(News::Gone(id, Reason::Deleted)) if id.uid == "a"));
    assert!(tracker.delete("a", 6).is_none(), "twice");
    assert!(tracker.apply(pod("a", 5)).is_none(), "the tombstone knows better");
    assert!(tracker.apply(pod("a", 6)).is_none());
    assert!(known(&tracker).is_empty());
}

#[test]
fn an_object_and_its_deletion_at_one_version_is_gone() {
    let mut tracker = Tracker::default();
    tracker.apply(pod("a", 5));
    assert!(tracker.delete("a", 5).is_some());
    assert!(tracker.apply(pod("a", 5)).is_none());
}

#[test]
fn a_tombstone_yields_to_a_newer_version_of_the_same_uid() {
    let mut tracker = Tracker::default();
    tracker.apply(pod("a", 5));
    tracker.delete("a", 6);
    assert!(tracker.apply(pod("a", 7)).is_some(), "its label is back");
    assert_eq!(tracker.tombstones(), 0);
    assert_eq!(tracker.get("a").map(|known| known.born.version), Some(7));
    tracker.delete("a", 8);
    assert_eq!(list(&mut tracker, 9, &[("a", 9)]), Some(1), "and so it does to a list");
    assert_eq!((known(&tracker), tracker.tombstones()), (vec!["a@9".to_owned()], 0));
}

#[test]
fn the_deletion_of_an_unknown_pod_stops_its_late_events() {
    let mut tracker = Tracker::default();
    assert!(tracker.delete("a", 6).is_none());
    assert!(tracker.delete("a", 4).is_none(), "an older one takes nothing back");
    assert!(tracker.apply(pod("a", 5)).is_none());
    assert!(tracker.apply(pod("a", 7)).is_some());
}

#[test]
fn absence_from_a_list_counts_only_for_what_is_not_newer() {
    let mut tracker = Tracker::default();
    tracker.apply(pod("old", 5));
    tracker.apply(pod("same", 10));
    tracker.apply(pod("new", 11));
    assert_eq!(list(&mut tracker, 10, &[]), Some(2));
    assert_eq!(known(&tracker), ["new@11"]);
}

#[test]
fn a_list_older_than_the_newest_is_discarded_whole() {
    let mut tracker = Tracker::default();
    assert_eq!(list(&mut tracker, 10, &[("a", 4)]), Some(1));
    assert_eq!(list(&mut tracker, 9, &[("b", 9)]), None);
    assert_eq!(list(&mut tracker, 10, &[("a", 4)]), Some(0), "the same again tells nothing");
    assert_eq!((known(&tracker), tracker.listed()), (vec!["a@4".to_owned()], 10));
}

#[test]
fn an_unknown_pod_that_is_older_than_the_newest_list_is_gone() {
    let mut tracker = Tracker::default();
    list(&mut tracker, 10, &[]);
    assert!(tracker.apply(pod("a", 9)).is_none());
    assert!(tracker.apply(pod("a", 10)).is_none());
    assert!(tracker.apply(pod("a", 11)).is_some());
}

#[test]
fn an_applied_list_covers_what_left_before_it() {
    let mut tracker = Tracker::default();
    for (uid, version) in [("a", 3), ("b", 4), ("c", 12)] {
        tracker.delete(uid, version);
    }
    assert_eq!(tracker.tombstones(), 3);
    list(&mut tracker, 10, &[]);
    assert_eq!(tracker.tombstones(), 1, "only what is newer than the list");
    assert!(tracker.apply(pod("a", 2)).is_none() && tracker.apply(pod("c", 11)).is_none());
}

#[test]
fn an_object_that_cannot_be_read_stays_what_it_was() {
    let mut tracker = Tracker::default();
    tracker.apply(pod("a", 5));
    assert!(
        matches!(tracker.list(9, vec![], &["a".into(), "b".into()]), Listed::Applied(news) if news.is_empty())
    );
    assert_eq!(known(&tracker), ["a@5"]);
}

#[test]
fn tombstones_are_bounded_and_what_is_forgotten_stays_old() {
    let mut tracker = Tracker::default();
    let most = MOST_TOMBSTONES as u64;
    for n in 1..=most + 10 {
        tracker.delete(&n.to_string(), n);
    }
    assert_eq!(tracker.tombstones(), MOST_TOMBSTONES);
    assert!(tracker.apply(pod("3", 2)).is_none(), "its tombstone is gone, and it is still old");
    assert!(tracker.apply(pod("new", most + 20)).is_some());
    // The same UID again and again is one tombstone.
    let mut tracker = Tracker::default();
    (1..100).for_each(|n| _ = tracker.delete("a", n));
    assert_eq!((tracker.tombstones(), tracker.ages.len()), (1, 1));
}

/// What really happened: at each version, from 1 on, one UID is there (again or changed) or has left.
#[derive(Debug, Clone)]
struct History(Vec<(usize, bool)>);

/// What a client is told of it, in this order.
#[derive(Debug, Clone)]
enum Told {
    Event(Index),
    /// The state as of a version, 0 included.
    List(Index),
}

const UIDS: [&str; 4] = ["a", "b", "c", "d"];

impl History {
    /// The version of the last change of a UID up to `version`, and whether it was there after that.
    fn at(&self, uid: usize, version: usize) -> Option<(usize, bool)> {
        let changes = self.0[..version].iter().enumerate().rev();
        changes.into_iter().find(|(_, (of, _))| *of == uid).map(|(n, (_, there))| (n + 1, *there))
    }

    fn listed(&self, version: usize) -> Vec<(&'static str, u64)> {
        let pod = |uid: usize| {
            let (changed, there) = self.at(uid, version)?;
            there.then_some((UIDS[uid], changed as u64))
        };
        (0..UIDS.len()).filter_map(pod).collect()
    }
}

fn told() -> impl Strategy<Value = Told> {
    prop_oneof![4 => any::<Index>().prop_map(Told::Event), 1 => any::<Index>().prop_map(Told::List)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever is told, how often and in whatever order: of each UID the state at the newest version told of it counts.
    #[test]
    fn every_delivery_ends_where_the_newest_fact_is(
        history in prop::collection::vec((0..UIDS.len(), prop::bool::weighted(0.7)), 1..40).prop_map(History),
        told in prop::collection::vec(told(), 0..80),
    ) {
        let mut tracker = Tracker::default();
        // By UID: the newest version told.
        let mut newest = [0; UIDS.len()];
        let mut floor = 0;
        for told in told {
            let before = known(&tracker);
            let news = match told {
                Told::Event(index) => {
                    let at = index.index(history.0.len());
                    let (uid, there) = history.0[at];
                    let version = at as u64 + 1;
                    newest[uid] = newest[uid].max(at + 1);
                    let news = if there {
                        tracker.apply(pod(UIDS[uid], version))
                    } else {
                        tracker.delete(UIDS[uid], version)
                    };
                    usize::from(news.is_some())
                }
                Told::List(index) => {
                    let version = index.index(history.0.len() + 1);
                    let news = list(&mut tracker, version as u64, &history.listed(version));
                    prop_assert_eq!(news.is_none(), version < floor, "only older ones are discarded");
                    floor = floor.max(version);
                    newest.iter_mut().for_each(|newest| *newest = (*newest).max(version));
                    news.unwrap_or(0)
                }
            };
            let expected: Vec<String> = (0..UIDS.len())
                .filter_map(|uid| {
                    let (version, there) = history.at(uid, newest[uid])?;
                    there.then(|| format!("{}@{version}", UIDS[uid]))
                })
                .collect();
            let after = known(&tracker);
            prop_assert_eq!(&after, &expected);
            let uid = |word: &String| word.split('@').next().map(str::to_owned);
            let changed = |a: &[String], b: &[String]| {
                let differ = a.iter().filter(|word| !b.contains(word)).filter_map(uid);
                differ.collect::<HashSet<_>>()
            };
            let all: HashSet<_> = changed(&before, &after).union(&changed(&after, &before)).cloned().collect();
            prop_assert_eq!(news, all.len(), "news are exactly what changed: {:?} to {:?}", before, after);
            prop_assert!(tracker.tombstones() <= UIDS.len() && tracker.tombstones() == tracker.ages.len());
        }
    }
}

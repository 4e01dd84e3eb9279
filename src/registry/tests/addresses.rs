use super::*;

type Tweak = fn(&mut Listener);

#[test]
fn the_same_facts_are_the_same_endpoint_and_any_other_fact_a_new_one() {
    let changes: [(&str, Tweak); 7] = [
        ("address", |l| l.host = "192.0.2.9".into()),
        ("port", |l| l.port = 9000),
        ("role", |l| l.role = Role::Decode),
        ("model", |l| l.model = Some("m".into())),
        ("revision", |l| l.revision = "r".into()),
        ("token", |l| l.token = "t".into()),
        ("bootstrap port", |l| l.bootstrap_port = Some(8998)),
    ];
    for (what, change) in changes {
        let mut rig = Rig::plain();
        rig.up("a", 1, "192.0.2.1");
        let before = rig.of("a");
        let hold = Hold::take(&before).unwrap();
        rig.up("a", 1, "192.0.2.1");
        assert!(Arc::ptr_eq(&before, &rig.of("a")), "said again");
        let mut next = listener("a", "192.0.2.1");
        change(&mut next);
        rig.apply(vec![register("a", 1, vec![next])]);
        let after = rig.of("a");
        assert!(before.id != after.id && after.is_selectable() && after.holds() == 0, "{what}");
        assert_eq!(
            (before.is_selectable(), before.reason(), before.holds()),
            (false, Reason::Replaced, 1),
            "{what}"
        );
        assert_eq!(before.authority, "192.0.2.1:8000", "its holds keep the old facts");
        assert!(Arc::ptr_eq(&rig.departed()[0], &before));
        drop(hold);
        rig.up("a", 1, "192.0.2.1");
        if what == "bootstrap port" {
            assert_eq!(rig.of("a").id, after.id, "a source that does not know it says nothing about it");
        } else {
            assert_eq!(rig.of("a").id, before.id, "{what}: the same incarnation again, with its own counts");
            assert_eq!(rig.words(), ["a selectable"]);
        }
    }
}

#[test]
fn a_replaced_endpoint_is_withdrawn_before_the_new_one_can_be_seen() {
    let mut rig = Rig::plain();
    rig.up("a", 1, "192.0.2.1");
    let before = rig.of("a");
    let moved = register("a", 1, vec![listener("a", "192.0.2.2")]);
    rig.writer.apply(Change::Pods(PodBatch { updates: vec![moved], listed: vec![] }));
    assert!(!before.is_selectable(), "its gate does not wait for the snapshot");
    assert_eq!(rig.all().len(), 1, "and the new one does");
    rig.settle();
    assert_eq!(rig.words(), ["a selectable"]);
    assert_eq!(rig.of("a").host, "192.0.2.2");
}

#[test]
fn of_several_listeners_only_those_that_change_are_replaced() {
    let mut rig = Rig::plain();
    let at = |port| Listener { port, ..listener("a", "192.0.2.1") };
    rig.apply(vec![register("a", 1, vec![at(1), at(2)])]);
    let ids = |rig: &Rig| rig.all().iter().map(|e| (e.port, e.id)).collect::<HashMap<_, _>>();
    let before = ids(&rig);
    rig.apply(vec![register("a", 1, vec![at(2), at(3)])]);
    let after = ids(&rig);
    assert_eq!((after.len(), after[&2]), (2, before[&2]));
    rig.apply(vec![withdraw("a", Reason::NotReady)]);
    assert_eq!(rig.words(), ["a not_ready", "a not_ready"]);
}

#[test]
fn the_later_pod_has_the_address_in_whatever_order_they_come() {
    for older_first in [true, false] {
        let mut rig = Rig::plain();
        let order = if older_first { [("old", 1), ("new", 2)] } else { [("new", 2), ("old", 1)] };
        for (uid, created) in order {
            rig.up(uid, created, "192.0.2.1");
        }
        assert_eq!(rig.words(), ["new selectable", "old address_taken"], "{older_first}");
        // Said again, nothing changes.
        rig.up("old", 1, "192.0.2.1");
        assert_eq!(rig.words(), ["new selectable", "old address_taken"]);
        rig.apply(vec![update(0, "new", 0, PodVerdict::Gone(Reason::Deleted))]);
        assert_eq!(rig.words(), ["old selectable"], "who waited has it");
    }
}

#[test]
fn pods_of_one_second_are_told_apart_by_who_was_seen_first() {
    let mut rig = Rig::plain();
    for (uid, version) in [("later", 9), ("earlier", 8)] {
        let born = Born { created: 5, version };
        rig.apply(vec![PodUpdate { born, ..register(uid, 5, vec![listener(uid, "192.0.2.1")]) }]);
    }
    assert_eq!(rig.words(), ["earlier address_taken", "later selectable"]);
}

#[test]
fn an_address_stays_with_its_pod_while_that_may_listen_there() {
    let mut rig = Rig::plain();
    rig.up("old", 1, "192.0.2.1");
    rig.up("new", 2, "192.0.2.1");
    for reason in [Reason::NotReady, Reason::NotEligible, Reason::Terminating] {
        rig.apply(vec![withdraw("new", reason)]);
        rig.up("old", 1, "192.0.2.1");
        let new = format!("new {}", reason.as_str());
        assert_eq!(
            rig.words(),
            [new.as_str(), "old address_taken"],
            "requests would reach the new one's engine"
        );
    }
    rig.apply(vec![withdraw("new", Reason::NotRunning)]);
    assert_eq!(rig.words(), ["new not_running", "old selectable"]);
    rig.up("new", 2, "192.0.2.1");
    assert_eq!(rig.words(), ["new selectable", "old address_taken"]);
    rig.up("new", 2, "192.0.2.7");
    assert_eq!(rig.words(), ["new selectable", "old selectable"]);
}

#[test]
fn one_change_can_move_an_address_from_an_old_pod_to_a_new_one() {
    for swapped in [false, true] {
        let mut rig = Rig::plain();
        rig.up("a", 2, "192.0.2.1");
        let mut updates = vec![
            update(0, "a", 0, PodVerdict::Gone(Reason::NotListed)),
            register("b", 1, vec![listener("b", "192.0.2.1")]),
        ];
        if swapped {
            updates.reverse();
        }
        rig.apply(updates);
        assert_eq!(rig.words(), ["b selectable"], "{swapped}");
    }
}

#[test]
fn an_address_has_one_pod_over_all_services() {
    let mut rig = Rig::new(&[pods(EngineKind::Plain, "one"), pods(EngineKind::Plain, "two")]);
    let at = |service, uid: &str, created| PodUpdate {
        service,
        ..register(uid, created, vec![listener(uid, "192.0.2.1")])
    };
    rig.apply(vec![at(0, "old", 1), at(1, "old", 1)]);
    assert_eq!(rig.words(), ["old selectable", "old selectable"], "one Pod in both");
    rig.apply(vec![at(1, "new", 2)]);
    assert_eq!(rig.words(), ["new selectable", "old address_taken", "old address_taken"]);
    // While one service has the Pod, the address is not free.
    rig.apply(vec![at(0, "new", 2)]);
    rig.apply(vec![PodUpdate { service: 1, ..withdraw("new", Reason::WrongModel) }]);
    rig.apply(vec![at(0, "old", 1)]);
    assert_eq!(rig.words(), ["new selectable", "new wrong_model", "old address_taken", "old address_taken"]);
    rig.apply(vec![PodUpdate { service: 0, ..withdraw("new", Reason::NotRunning) }]);
    assert_eq!(rig.words(), ["new not_running", "new wrong_model", "old selectable", "old selectable"]);
}

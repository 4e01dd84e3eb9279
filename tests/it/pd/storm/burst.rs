//! B42: the decode's leg fails at the transport under a burst of long prompts; the prefill waits for ever in a room that
//! nobody joins.

use tandem::testkit::memory::DialFault;
use tandem::testkit::task::spawn;

use super::super::rig::{Proto, ms, secs};
use super::cases::{Case, Harm, Kind, Side, Stage};
use super::client::{Answer, Ask};
use super::judge::{Expect, expect, judge};
use super::legs::{Once, collect};
use super::rest;
use super::run::{finish, story};
use super::world::{GRACE, World};

const BURST: usize = 100;

fn ask(n: usize, kind: Kind, victims: u32) -> Ask {
    let proto = if n.is_multiple_of(2) { Proto::H1 } else { Proto::H2 };
    let case = Case {
        kind,
        side: Side::Decode,
        harm: Harm::Lost,
        stage: Stage::Sent,
        proto,
        stream: !n.is_multiple_of(3),
    };
    Ask { id: format!("b{n}"), case, victims, jitter: 0, words: 4000 }
}

async fn burst(world: &World, kind: Kind, victims: u32) -> Vec<(Ask, Option<Answer>)> {
    let asks: Vec<Ask> = (0..BURST).map(|n| ask(n, kind, victims)).collect();
    let running = asks.iter().cloned().map(|ask| {
        let net = world.net.clone();
        spawn(async move { ask.send(net).await })
    });
    let seen = finish(running.collect()).await;
    asks.into_iter().zip(seen).collect()
}

fn rooms(world: &World) -> usize {
    world.prefills.iter().map(|host| host.engine().state().rooms).sum()
}

#[tokio::test(start_paused = true)]
async fn b42_a_burst_whose_decodes_are_lost_leaves_no_prefill_in_a_room() {
    for (kind, victims) in
        [(Kind::Guarded, 0b111), (Kind::Guarded, 0b001), (Kind::Unguarded, 0b111), (Kind::Unguarded, 0b001)]
    {
        let mut world = World::new(kind);
        let answers = burst(&world, kind, victims).await;
        // Aborts are sent at once, and again after 200 ms; a pair without the guard is kept for the grace before.
        tokio::time::sleep(ms(300) + if kind == Kind::Unguarded { GRACE } else { ms(0) }).await;
        assert_eq!((rooms(&world), rest::router(&world)), (0, Ok(())), "{kind:?} {victims:b}");
        let (legs, mut once, mut lost) = (collect(&mut world), Once::default(), 0);
        for (ask, answer) in &answers {
            let legs = &legs[&ask.id];
            let expected = expect(ask, legs, answer.as_ref());
            lost += usize::from(expected != Expect::Whole);
            judge(ask, expected, answer.as_ref()).and_then(|_| once.check(legs)).unwrap();
            assert!(
                legs.len() == 2,
                "what a decode may have run is not repeated: {kind:?} {victims:b} {expected:?}\n{}",
                story(ask, legs)
            );
        }
        assert!(if victims == 0b111 { lost == BURST } else { lost > 10 && lost < 60 }, "{lost}");
        tokio::time::sleep(secs(5)).await;
        assert_eq!(rest::engines(&world), Ok(()));
        rest::corrupted(&world);
        world.router.assert_pair_invariants(&[], &[]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn b42_a_burst_whose_decodes_refuse_never_reaches_a_prefill() {
    let mut world = World::new(Kind::Guarded);
    for host in &world.decodes {
        world.net.set_fault(&host.name, DialFault::Refuse);
    }
    for (_, answer) in burst(&world, Kind::Guarded, 0).await {
        let answer = answer.unwrap();
        assert_eq!(
            (answer.status, answer.json()["error"]["code"].as_str()),
            (502, Some("upstream_connect_failed"))
        );
    }
    assert_eq!((rooms(&world), collect(&mut world).len()), (0, 0));
    world.router.assert_pair_invariants(&[], &[]).await;
}

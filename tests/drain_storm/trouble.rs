//! What befalls one router's view of the Pods, and its way to their engines. The truth is never touched.

use tandem::testkit::kube::FakeKube;
use tandem::testkit::memory::{DialFault, MemoryNet};
use tandem::types::clock::{Instant, now};

use super::host::address;
use super::ms;
use super::world::ROUTERS;

/// Trouble that is under way.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// When the API server's replica of a router knows everything again.
    behind: [Option<Instant>; ROUTERS],
    /// Dials that one router's engine at an address does not answer as it should.
    dials: Vec<(Instant, usize, u8)>,
    pub(super) count: u64,
}

impl Trouble {
    /// One more thing goes wrong for one router, or for the events of a change or two.
    pub(super) fn strike(&mut self, api: &FakeKube, random: &mut fastrand::Rng) {
        self.count += 1;
        let router = random.usize(..ROUTERS);
        match random.u8(..8) {
            0..=2 => {
                api.replica(router).freeze();
                self.behind[router] = Some(now() + ms(random.u64(50..3000)));
            }
            3 => api.replica(router).cut_watches(),
            4 => api.lose_next(random.usize(1..3)),
            5 => api.delay_next(random.usize(1..3), ms(random.u64(5..800))),
            6 => api.overtake_next(1, ms(random.u64(5..800))),
            _ => api.duplicate_next(2),
        }
    }

    pub(super) fn strike_dials(&mut self, nets: &[MemoryNet], ip: u8, random: &mut fastrand::Rng) {
        self.count += 1;
        let router = random.usize(..ROUTERS);
        let fault = match random.u8(..6) {
            0 => DialFault::Refuse,
            1 => DialFault::BlackHole,
            _ => DialFault::Delay(ms(random.u64(5..200))),
        };
        nets[router].set_fault(&address(ip), fault);
        self.dials.push((now() + ms(random.u64(100..1500)), router, ip));
    }

    /// What is over by now ends.
    pub(super) fn tick(&mut self, api: &FakeKube, nets: &[MemoryNet]) {
        for (router, behind) in self.behind.iter_mut().enumerate() {
            if behind.take_if(|until| *until <= now()).is_some() {
                api.replica(router).catch_up();
            }
        }
        self.dials.retain(|(until, router, ip)| {
            if *until > now() {
                return true;
            }
            nets[*router].set_fault(&address(*ip), DialFault::None);
            false
        });
    }

    /// All of it ends.
    pub(super) fn calm(&mut self, api: &FakeKube, nets: &[MemoryNet]) {
        api.clear_faults();
        api.lose_nothing();
        api.delay_next(0, ms(0));
        api.duplicate_next(0);
        for (router, behind) in self.behind.iter_mut().enumerate() {
            *behind = None;
            api.replica(router).catch_up();
        }
        for (_, router, ip) in self.dials.drain(..) {
            nets[router].set_fault(&address(ip), DialFault::None);
        }
        api.cut_watches();
    }
}

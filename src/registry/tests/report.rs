//! One row's ages are of one moment: they can be compared.

use super::*;
use crate::registry::Reporter;
use crate::registry::report::Filter;
use crate::types::boot::Boot;

#[test]
fn no_row_is_quiesced_for_longer_than_it_is_withdrawn() {
    let mut rig = Rig::plain();
    rig.up("a", 1, "10.0.0.1");
    rig.apply(vec![withdraw("a", Reason::NotReady)]);
    let reporter = Reporter::new(Arc::clone(&rig.view), Boot::now());
    // On a clock that runs: the last millisecond of one age may be the first of another that is read later.
    for _ in 0..30_000 {
        let report = reporter.report(&Filter::default());
        let row = &report.endpoints[0];
        assert_eq!(row.quiesced_for_ms, row.withdrawn_age_ms, "{row:?}");
    }
}

/// An address that changed hands: what was sent there for the Pod that had it may be on the engine of the one that has it.
#[test]
fn who_has_an_address_is_not_at_rest_before_what_was_sent_there_earlier_is_over() {
    let mut rig = Rig::plain();
    rig.up("old", 1, "10.0.0.1");
    let hold = Hold::take(&rig.of("old")).unwrap();
    rig.up("new", 2, "10.0.0.1");
    rig.apply(vec![withdraw("new", Reason::NotReady)]);
    let reporter = Reporter::new(Arc::clone(&rig.view), Boot::now());
    let of = |uid: &str| Filter { uid: Some(uid.to_owned()), ..Filter::default() };
    let row = |uid: &str| reporter.report(&of(uid)).endpoints[0].clone();
    assert_eq!((row("new").in_flight.total(), row("new").quiesced_for_ms), (0, None));
    assert!(!reporter.is_quiesced(&of("new")));
    drop(hold);
    assert!(row("new").quiesced_for_ms.is_some() && reporter.is_quiesced(&of("new")));
    // The other way round it is no question: what the later one carries was begun when the address was known to be its.
    let _hold = Hold::take(&rig.of("old"));
    rig.up("new", 2, "10.0.0.1");
    let _hold = Hold::take(&rig.of("new")).unwrap();
    assert!(row("old").quiesced_for_ms.is_some(), "{:?}", row("old"));
}

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

//! What every row has to say by itself.

use std::time::Duration;

use crate::registry::report::Entry;

/// `shared`: another row of its URL carries something, so it may not be at rest although it carries nothing itself.
///
/// # Errors
/// What does not fit.
pub(super) fn check(entry: &Entry, shared: bool, stale: Duration) -> Result<(), String> {
    let stale = u64::try_from(stale.as_millis()).unwrap_or(u64::MAX);
    let Entry { selectable, reason, in_flight, withdrawn_age_ms, quiesced_for_ms, .. } = entry;
    let idle = !selectable && in_flight.total() == 0;
    let wrong = [
        (*selectable == withdrawn_age_ms.is_some(), "selectable and withdrawn"),
        (*selectable == reason.is_some(), "a reason while it is selectable, or none while it is not"),
        (!idle && quiesced_for_ms.is_some(), "quiesced, and not withdrawn with nothing in flight"),
        (idle && quiesced_for_ms.is_none() && !shared, "withdrawn with nothing in flight, and not quiesced"),
        (*quiesced_for_ms > *withdrawn_age_ms && idle, "quiesced for longer than withdrawn"),
        (
            entry
                .last_dispatch_age_ms
                .zip(*quiesced_for_ms)
                .is_some_and(|(dispatch, q)| dispatch + stale + 1 < q),
            "a leg began after it was quiesced",
        ),
        (entry.role == "prefill" && in_flight.decode > 0, "a decode on a prefill"),
        (entry.role != "prefill" && in_flight.prefill + in_flight.handoff > 0, "a prefill on none"),
        (in_flight.values().iter().any(|n| *n > 1 << 20), "a count below zero"),
    ];
    match wrong.into_iter().find(|(wrong, _)| *wrong) {
        Some((_, what)) => Err(what.to_owned()),
        None => Ok(()),
    }
}

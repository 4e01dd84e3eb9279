//! What an endpoint's own state says, as gauges: set before a scrape instead of being kept beside that state.

use std::time::Duration;

use prometheus::{IntGauge, IntGaugeVec, Registry, Result};

use super::{build, names};

/// Kinds of what an endpoint carries, in the order of [`EndpointLoad::carried`]; the field names of `in_flight` in the in-flight
/// report.
pub const KINDS: [&str; 5] = ["waiting", "reserved", "prefill", "decode", "handoff"];

/// One endpoint's state, or what those of one URL and role have together: one that left may still carry requests when the
/// next one is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointLoad {
    pub in_flight: u64,
    pub carried: [u64; KINDS.len()],
    /// Pooled connections.
    pub idle: usize,
    /// For so long it takes no new requests. `None`: it does.
    pub withdrawn: Option<Duration>,
    /// Wall clock, seconds since the Unix epoch; 0: no leg began.
    pub dispatched_s: u64,
}

impl EndpointLoad {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let mut carried = self.carried;
        carried.iter_mut().zip(other.carried).for_each(|(sum, more)| *sum += more);
        Self {
            in_flight: self.in_flight + other.in_flight,
            carried,
            idle: self.idle + other.idle,
            withdrawn: self.withdrawn.zip(other.withdrawn).map(|(a, b)| a.min(b)),
            dispatched_s: self.dispatched_s.max(other.dispatched_s),
        }
    }

    fn is_quiesced(&self) -> bool {
        self.withdrawn.is_some() && self.carried.iter().all(|n| *n == 0)
    }
}

#[derive(Debug, Clone)]
pub(super) struct LoadVecs {
    in_flight: IntGaugeVec,
    carried: IntGaugeVec,
    idle: IntGaugeVec,
    selectable: IntGaugeVec,
    withdrawn: IntGaugeVec,
    dispatched: IntGaugeVec,
    quiesced: IntGaugeVec,
}

#[derive(Debug)]
pub(super) struct LoadGauges {
    in_flight: IntGauge,
    carried: [IntGauge; KINDS.len()],
    idle: IntGauge,
    selectable: IntGauge,
    withdrawn: IntGauge,
    dispatched: IntGauge,
    quiesced: IntGauge,
}

impl LoadVecs {
    pub(super) fn new(registry: &Registry) -> Result<Self> {
        Ok(Self {
            in_flight: build::gauge_vec(registry, &names::ENDPOINT_IN_FLIGHT)?,
            carried: build::gauge_vec(registry, &names::ENDPOINT_CARRIED)?,
            idle: build::gauge_vec(registry, &names::ENDPOINT_IDLE)?,
            selectable: build::gauge_vec(registry, &names::ENDPOINT_SELECTABLE)?,
            withdrawn: build::gauge_vec(registry, &names::ENDPOINT_WITHDRAWN)?,
            dispatched: build::gauge_vec(registry, &names::ENDPOINT_LAST_DISPATCH)?,
            quiesced: build::gauge_vec(registry, &names::ENDPOINT_QUIESCED)?,
        })
    }

    /// `labels`: role and URL.
    pub(super) fn children(&self, labels: &[&str; 2]) -> Result<LoadGauges> {
        let [role, url] = *labels;
        let carried = |kind| self.carried.get_metric_with_label_values(&[kind, role, url]);
        let [waiting, reserved, prefill, decode, handoff] = KINDS.map(carried);
        Ok(LoadGauges {
            in_flight: self.in_flight.get_metric_with_label_values(labels)?,
            carried: [waiting?, reserved?, prefill?, decode?, handoff?],
            idle: self.idle.get_metric_with_label_values(labels)?,
            selectable: self.selectable.get_metric_with_label_values(labels)?,
            withdrawn: self.withdrawn.get_metric_with_label_values(labels)?,
            dispatched: self.dispatched.get_metric_with_label_values(labels)?,
            quiesced: self.quiesced.get_metric_with_label_values(labels)?,
        })
    }

    pub(super) fn remove(&self, labels: &[&str; 2]) {
        let Self { in_flight, idle, selectable, withdrawn, dispatched, quiesced, .. } = self;
        for vec in [in_flight, idle, selectable, withdrawn, dispatched, quiesced] {
            let _ = vec.remove_label_values(labels);
        }
        for kind in KINDS {
            let _ = self.carried.remove_label_values(&[kind, labels[0], labels[1]]);
        }
    }
}

impl LoadGauges {
    pub(super) fn set(&self, load: &EndpointLoad) {
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.in_flight.set(signed(load.in_flight));
        for (gauge, n) in self.carried.iter().zip(load.carried) {
            gauge.set(signed(n));
        }
        self.idle.set(signed(load.idle as u64));
        self.selectable.set(i64::from(load.withdrawn.is_none()));
        self.withdrawn.set(signed(load.withdrawn.unwrap_or_default().as_secs()));
        self.dispatched.set(signed(load.dispatched_s));
        self.quiesced.set(i64::from(load.is_quiesced()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_at_one_url_are_quiet_when_both_are() {
        let out = |seconds| EndpointLoad {
            in_flight: 0,
            carried: [0; 5],
            idle: 1,
            withdrawn: Some(Duration::from_secs(seconds)),
            dispatched_s: seconds,
        };
        let both = out(3).and(out(7));
        assert_eq!((both.withdrawn, both.dispatched_s, both.idle), (Some(Duration::from_secs(3)), 7, 2));
        assert!(both.is_quiesced());
        let busy = EndpointLoad { in_flight: 2, carried: [0, 0, 0, 2, 1], ..out(3) };
        assert!(!busy.is_quiesced() && !busy.and(out(7)).is_quiesced());
        assert_eq!(busy.and(busy).carried, [0, 0, 0, 4, 2]);
        let back = EndpointLoad { withdrawn: None, ..out(3) };
        assert_eq!(out(7).and(back).withdrawn, None);
        assert!(!out(7).and(back).is_quiesced());
    }
}

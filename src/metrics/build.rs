//! From a row of `names` to a registered family. The only place that calls constructors of `prometheus`.

use prometheus::core::Collector;
use prometheus::{
    Counter, CounterVec, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, Result,
};

use super::names::{self, Family};

fn opts(family: &Family) -> Opts {
    Opts::new(family.name, family.help)
}

fn registered<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> Result<C> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

pub(super) fn counter(registry: &Registry, family: &Family) -> Result<IntCounter> {
    registered(registry, IntCounter::with_opts(opts(family))?)
}

pub(super) fn gauge(registry: &Registry, family: &Family) -> Result<IntGauge> {
    registered(registry, IntGauge::with_opts(opts(family))?)
}

pub(super) fn counter_vec(registry: &Registry, family: &Family) -> Result<IntCounterVec> {
    registered(registry, IntCounterVec::new(opts(family), family.labels)?)
}

pub(super) fn seconds_vec(registry: &Registry, family: &Family) -> Result<CounterVec> {
    registered(registry, CounterVec::new(opts(family), family.labels)?)
}

pub(super) fn gauge_vec(registry: &Registry, family: &Family) -> Result<IntGaugeVec> {
    registered(registry, IntGaugeVec::new(opts(family), family.labels)?)
}

pub(super) fn float_gauge_vec(registry: &Registry, family: &Family) -> Result<GaugeVec> {
    registered(registry, GaugeVec::new(opts(family), family.labels)?)
}

pub(super) fn histogram_vec(registry: &Registry, family: &Family, buckets: &[f64]) -> Result<HistogramVec> {
    let opts = HistogramOpts::new(family.name, family.help).buckets(buckets.to_vec());
    registered(registry, HistogramVec::new(opts, family.labels)?)
}

/// Unregistered metrics, for the process collector, which fills them at every scrape.
pub(super) fn loose_gauge(family: &Family) -> Result<IntGauge> {
    IntGauge::with_opts(opts(family))
}

pub(super) fn loose_gauge_vec(family: &Family) -> Result<IntGaugeVec> {
    IntGaugeVec::new(opts(family), family.labels)
}

pub(super) fn loose_counter(family: &Family) -> Result<Counter> {
    Counter::with_opts(opts(family))
}

pub(super) fn info(registry: &Registry) -> Result<()> {
    let family = &names::BUILD_INFO;
    let vec: GaugeVec = registered(registry, GaugeVec::new(opts(family), family.labels)?)?;
    vec.get_metric_with_label_values(&[env!("CARGO_PKG_VERSION")])?.set(1.0);
    Ok(())
}

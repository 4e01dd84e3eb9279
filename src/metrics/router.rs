//! Families of the process as a whole: no service, no endpoint.

use prometheus::{IntCounter, IntGauge, Registry, Result};

use super::{Vocabulary, build, names};

/// Handles; clone freely.
#[derive(Debug, Clone)]
pub struct RouterMetrics {
    /// Hold a [`Held`] of it per admitted request.
    pub in_flight: IntGauge,
    pub buffered_bytes: IntGauge,
    /// Hold a [`Held`] of it per client connection.
    pub connections: IntGauge,
    pub connections_accepted: IntCounter,
    pub accept_errors: IntCounter,
    pub forced_requests: IntCounter,
    pub access_log: AccessLogMetrics,
    pub api_keys: ReloadMetrics,
    /// Keys of the configuration file whose new values wait for a restart.
    pub restart_needed: IntGauge,
    config: ReloadMetrics,
    config_ok: IntGauge,
    errors: Box<[(&'static str, IntCounter)]>,
    phases: Box<[(&'static str, IntGauge)]>,
}

/// What became of access lines.
#[derive(Debug, Clone)]
pub struct AccessLogMetrics {
    pub lines: IntCounter,
    pub dropped_lines: IntCounter,
    pub write_errors: IntCounter,
}

/// What became of changes of a watched file.
#[derive(Debug, Clone)]
pub struct ReloadMetrics {
    pub ok: IntCounter,
    pub error: IntCounter,
}

impl RouterMetrics {
    pub(super) fn new(registry: &Registry, words: &Vocabulary) -> Result<Self> {
        let counter = |family| build::counter(registry, family);
        let gauge = |family| build::gauge(registry, family);
        let reloads = build::counter_vec(registry, &names::API_KEY_RELOADS)?;
        let configs = build::counter_vec(registry, &names::CONFIG_RELOADS)?;
        let errors = build::counter_vec(registry, &names::REQUEST_ERRORS)?;
        let phases = build::gauge_vec(registry, &names::SHUTDOWN_PHASE)?;
        let metrics = Self {
            in_flight: gauge(&names::REQUESTS_IN_FLIGHT)?,
            buffered_bytes: gauge(&names::BUFFERED_BYTES)?,
            connections: gauge(&names::CONNECTIONS)?,
            connections_accepted: counter(&names::CONNECTIONS_ACCEPTED)?,
            accept_errors: counter(&names::ACCEPT_ERRORS)?,
            forced_requests: counter(&names::FORCED_REQUESTS)?,
            access_log: AccessLogMetrics {
                lines: counter(&names::ACCESS_LOG_LINES)?,
                dropped_lines: counter(&names::ACCESS_LOG_DROPPED)?,
                write_errors: counter(&names::ACCESS_LOG_ERRORS)?,
            },
            api_keys: ReloadMetrics {
                ok: reloads.get_metric_with_label_values(&["ok"])?,
                error: reloads.get_metric_with_label_values(&["error"])?,
            },
            restart_needed: gauge(&names::CONFIG_RESTART_NEEDED)?,
            config: ReloadMetrics {
                ok: configs.get_metric_with_label_values(&["ok"])?,
                error: configs.get_metric_with_label_values(&["error"])?,
            },
            config_ok: gauge(&names::CONFIG_OK)?,
            errors: resolved(words.error_codes, |w| errors.get_metric_with_label_values(&[w]))?,
            phases: resolved(words.phases, |w| phases.get_metric_with_label_values(&[w]))?,
        };
        metrics.config_ok.set(1);
        if let Some(first) = words.phases.first() {
            metrics.phase(first);
        }
        Ok(metrics)
    }

    /// The router answered with an error of its own. Codes outside the vocabulary are not counted.
    pub fn error(&self, code: &'static str) {
        match self.errors.iter().find(|(word, _)| *word == code) {
            Some((_, counter)) => counter.inc(),
            None => debug_assert!(false, "error code {code} is not in the vocabulary"),
        }
    }

    /// The configuration file was read again.
    pub fn config_reloaded(&self, ok: bool) {
        if ok {
            self.config.ok.inc();
        } else {
            self.config.error.inc();
        }
        self.config_ok.set(i64::from(ok));
    }

    /// Whether the configuration file was good when it was last read.
    pub fn config_ok(&self) -> bool {
        self.config_ok.get() == 1
    }

    /// The process entered a shutdown phase: its series becomes 1, the others 0.
    pub fn phase(&self, current: &'static str) {
        for (word, gauge) in &self.phases {
            gauge.set(i64::from(*word == current));
        }
    }
}

fn resolved<T>(
    words: &'static [&'static str],
    resolve: impl Fn(&'static str) -> Result<T>,
) -> Result<Box<[(&'static str, T)]>> {
    words.iter().map(|word| Ok((*word, resolve(word)?))).collect()
}

/// An amount that stands in a gauge for as long as this lives (I4).
#[derive(Debug)]
#[must_use = "the gauge goes down when this is dropped"]
pub struct Held {
    gauge: IntGauge,
    amount: i64,
}

impl Held {
    pub fn new(gauge: &IntGauge, amount: i64) -> Self {
        gauge.add(amount);
        Self { gauge: gauge.clone(), amount }
    }

    /// One request, one connection.
    pub fn one(gauge: &IntGauge) -> Self {
        Self::new(gauge, 1)
    }

    /// For an amount that grows while it is held, such as buffered bytes.
    pub fn grow(&mut self, more: i64) {
        self.gauge.add(more);
        self.amount += more;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.gauge.sub(self.amount);
    }
}

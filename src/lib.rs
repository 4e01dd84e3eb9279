//! Tandem: a router for disaggregated prefill/decode inference engines.
//!
//! In reading order:
//!
//! * [`types`] — words shared by all planes; no I/O.
//! * [`config`] — the effective configuration and how it is read.
//! * [`proxy`] — the data path; its folders are the stages of a request, in order.
//! * [`upstream`] — connections to engines: our own strict HTTP/1.1 client and the per-endpoint pools.
//! * [`registry`] — which endpoints exist: one writer, immutable snapshots.
//! * [`discovery`] — which Pods there are, and what makes an endpoint of one: changes for the registry's writer.
//! * [`ledger`] — who carries what: the one-word gate and the holds on it.
//! * [`drain`] — leaving well: tasks with owners, shutdown phases, signals.
//! * [`engine`] — mock engines that speak the SGLang and vLLM wire, for demos, tests and load.
//! * [`admin`] — probes, metrics and operator routes, on a runtime of their own.
//! * [`metrics`], [`telemetry`] — names, counters, the access log.
//! * [`app`] — the only place that knows every plane; [`cli`] starts it.
//! * [`demo`] — mock engines and the router of `app` in one process, with something to look at.

pub mod admin;
pub mod app;
pub mod cli;
pub mod config;
pub mod demo;
pub mod discovery;
pub mod drain;
pub mod engine;
pub mod ledger;
pub mod metrics;
pub mod proxy;
pub mod registry;
pub mod telemetry;
#[cfg(any(test, feature = "testing"))]
pub mod testkit;
pub mod types;
pub mod upstream;

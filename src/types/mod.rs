//! Words shared by every plane. No I/O, no hyper, no kube: values, and the one place that reads the time.

pub mod boot;
pub mod build;
pub mod clock;
pub mod drain_order;
pub mod fact;
pub mod outcome;
pub mod role;

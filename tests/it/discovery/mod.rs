//! Endpoints that are Pods: what a router makes of an API server, whatever that says, and when.

mod basics;
mod cluster;
mod rig;

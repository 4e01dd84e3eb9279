//! Cohorts and splits with scripted engines as Pods: who got what is judged by the engines' own logs.
//!
//! * `rig` — Pods of several releases on a paused clock. `shares`, `stays` — what a split does, case by case.
//! * `draws`, `keys` — a million requests and sessions, on the function that decides (B93, B94, B98, R3).
//! * `sequences` — one request after the other (B97). `last_resort` — nobody with a weight is left (B102).
//! * `models` — two models with two groups each (B56).
//! * `fleet` — a router process before a stable release and a canary. `refused` — weights (B95). `restarts` — a canary that was
//!   taken back (B91, B100). `replicas` — four processes and the same sessions (R3).
//! * `told` — what clients and engines are told. `storm` — all of it at once, at random.

#![expect(clippy::cast_precision_loss, reason = "whole numbers, and shares of them")]

mod draws;
mod drift;
mod fleet;
mod keys;
mod last_resort;
mod models;
mod ome;
mod refused;
mod replicas;
mod restarts;
mod rig;
mod sequences;
mod shares;
mod stays;
mod storm;
mod told;

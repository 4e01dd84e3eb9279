//! Cohorts and splits with scripted engines as Pods: who got what is judged by the engines' own logs.

#![expect(clippy::cast_precision_loss, reason = "whole numbers, and shares of them")]

mod drift;
mod rig;
mod shares;
mod stays;

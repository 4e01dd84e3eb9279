//! Cohorts and splits with scripted engines as Pods: who got what is judged by the engines' own logs.

mod rig;
mod shares;
mod stays;

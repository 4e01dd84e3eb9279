//! The scenarios; the list that the tests are made of is `every_scene` in the module above.

mod away;
mod first;
mod identity;
mod pairs;
mod repair;
mod rights;
mod storm;
mod ways_out;
mod weights;

pub use away::*;
pub use first::*;
pub use identity::*;
pub use pairs::*;
pub use repair::*;
pub use rights::*;
pub use storm::*;
pub use ways_out::*;
pub use weights::*;

use std::time::Duration;

/// The default, and too long for any list to stand in for an event in these tests.
const SELDOM: Duration = Duration::from_secs(15);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

//! What routers' in-flight reports claim, held against what engines' logs say (R5).
//!
//! A row that is not `selectable` claims of one router and one Pod UID that nothing will begin there until it is selectable
//! again; with `quiesced_for_ms` also that nothing runs. [`Reports`] gathers what every report said and checks each row by itself;
//! [`Logs`] takes the engines' logs, and [`Reports::judge`] holds one piece of [`Work`] against all that was said.
//!
//! A router knows a Pod by its address. While it has not been told that another Pod is at the same one, what it sends there is
//! counted under the Pod that it knows: such work is judged by that UID's rows.

mod logs;
mod row;
mod told;
mod work;

#[cfg(test)]
mod tests;

pub use logs::{Logs, Site, VIA};
pub use told::{Limits, Reports};
pub use work::{Verdict, Work};

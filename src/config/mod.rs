//! Configuration: file, environment and flags become one validated [`RouterConfig`], or a list of every mistake.
//!
//! In the order of reading:
//!
//! * `source` — the three places values come from, each turned into a tree (`node`) whose values know where they stand;
//! * `schema` — names and shapes of the file against the table of all keys (`keys`);
//! * `reader`, `load` — values by key, the highest layer winning; `units`, `words`, `labels`, `endpoint` read one value
//!   each;
//! * `validate` — rules between keys;
//! * `problem` — a mistake: where, which key, what is wrong, what is allowed;
//! * `notes` — what is allowed and perhaps not meant;
//! * `print` — the effective configuration, in a form that loads back to itself.
//!
//! Nothing here reads the process environment or opens a file by itself, [`File::read`] excepted; secrets are kept as
//! paths and are opened by who uses them.

mod defaults;
mod diff;
mod discovery;
mod endpoint;
mod keys;
mod labels;
mod load;
mod node;
mod notes;
mod origin;
mod print;
mod problem;
mod reader;
mod reference;
mod router;
mod schema;
pub mod secret_file;
mod source;
mod split;
mod suggest;
#[cfg(test)]
mod tests;
mod units;
mod validate;
mod words;

pub use diff::{Changes, changes};
pub use discovery::*;
pub use keys::{KEYS, Key, OTHER_VARIABLES, Reload};
pub use load::load;
pub use notes::notes;
pub use origin::Origin;
pub use print::{Document, document, print};
pub use problem::{Place, Problem};
pub use reference::{row, schema};
pub use router::*;
pub use source::{File, FlagValue, Flags, Source};
pub use split::{CohortsBy, InferenceService, SplitEntry, Sticky, mistakes};
pub use units::{Wrong, duration};

//! Clients that hide nothing from a test.
//!
//! * [`RawClient`] — HTTP/1.1 by the byte: any request in any pieces, and a strict reader that says how an
//!   answer was framed and how it ended.
//! * [`H2Client`] — HTTP/2 by prior knowledge, with the frames that the server sent.

mod frames;
mod h2_client;
mod raw;
mod response;

pub use frames::{Frame, FrameKind, Frames, GoAway, Tap};
pub use h2_client::{BodyEnd, H2Client, H2Response, H2Stream};
pub use raw::{ClientError, RawClient};
pub use response::{BodyFraming, RawResponse, ResponseHead};

//! What a request and a stream may weigh. Thousands of streams are open at once: a future that grew by a careless
//! `let` across an await costs as much as a leak. The numbers are today's sizes with little room; raise them knowingly.

use std::mem::size_of;

use bytes::Bytes;
use hyper::body::Incoming;
use tandem::proxy::listener::Downstream;
use tandem::proxy::pipeline::handle;
use tandem::proxy::relay::{OutBody, Relay, Ticket};
use tandem::upstream::{Conn, Decoder, Head};

/// The size of what an `async fn` of four arguments returns.
fn future<A, B, C, D, F: Future>(_: impl FnOnce(A, B, C, D) -> F) -> usize {
    size_of::<F>()
}

#[track_caller]
fn within(what: &str, size: usize, budget: usize) {
    println!("{what}: {size} of {budget} bytes");
    assert!(size <= budget, "{what} takes {size} bytes, its budget is {budget}");
}

#[test]
fn the_future_of_one_request_stays_within_its_budget() {
    within("the pipeline of one request", future(handle::<Incoming>), 5120);
}

#[test]
fn an_idle_stream_stays_within_its_budget() {
    within("the relay of one stream", size_of::<Relay>(), 544);
    within("the ticket of one request", size_of::<Ticket>(), 320);
    within("the body that hyper holds", size_of::<OutBody>(), 48);
    within("an idle connection, without its buffer", size_of::<Conn>(), 112);
    within("a decoder", size_of::<Decoder>(), 32);
    within("an engine's head", size_of::<Head>(), 128);
    within("a frame", size_of::<Bytes>(), 32);
    within("what connections share with their streams", size_of::<Downstream>(), 128);
}

//! Both legs without a router in between: what a client does that knows its engines, and the least that two legs take.
//!
//! SGLang's legs are one request with the same bootstrap fields, sent at once. vLLM's decode is asked when the prefill
//! has said where its KV is, with exactly those parameters. Fields go to the front of the body, which is shared.

use std::net::SocketAddr;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::client::{Client, Times};
use crate::decode::{Answer, Fault};
use crate::plan::{Plan, Prefill, head};

/// Which engine's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Wire {
    Sglang,
    Vllm,
}

/// A connection to a prefill and one to a decode.
#[derive(Debug)]
pub struct Pair {
    prefill: Client,
    decode: Client,
    /// Where SGLang's decodes ask for rooms: here the prefill's own port.
    bootstrap: SocketAddr,
}

/// What of a prefill's answer the decode is given.
#[derive(Deserialize)]
struct Prefilled<'a> {
    #[serde(borrow)]
    kv_transfer_params: &'a RawValue,
}

impl Pair {
    /// Connects to both.
    ///
    /// # Errors
    /// [`Fault::Connect`].
    pub async fn connect(prefill: SocketAddr, decode: SocketAddr, read_buffer: usize) -> Result<Self, Fault> {
        Ok(Self {
            prefill: Client::connect(prefill, read_buffer).await?,
            decode: Client::connect(decode, read_buffer).await?,
            bootstrap: prefill,
        })
    }

    /// One request in two legs. The times are the decode's: its answer is the client's.
    ///
    /// # Errors
    /// The first thing that was wrong with either; the connections are of no further use then.
    pub async fn exchange(&mut self, plan: &Plan) -> Result<Times, Fault> {
        match &plan.prefill {
            Some(Prefill::Sglang(first_token)) => self.sglang(plan, first_token).await,
            Some(Prefill::Vllm(request)) => self.vllm(plan, request).await,
            None => Err(Fault::Unfinished),
        }
    }

    async fn sglang(&mut self, plan: &Plan, first_token: &Answer) -> Result<Times, Fault> {
        let (host, port, room) = (self.bootstrap.ip(), self.bootstrap.port(), fastrand::u64(..1 << 63));
        let fields = format!(r#""bootstrap_host":"{host}","bootstrap_port":{port},"bootstrap_room":{room}"#);
        let (front, rest) = with_fields(plan, &fields);
        let (_, times) = tokio::try_join!(
            self.prefill.exchange(front.as_bytes(), rest, first_token),
            self.decode.exchange(front.as_bytes(), rest, &plan.answer),
        )?;
        Ok(times)
    }

    async fn vllm(&mut self, plan: &Plan, request: &[u8]) -> Result<Times, Fault> {
        let prefilled = self.prefill.fetch(request).await?;
        let prefilled: Prefilled = serde_json::from_slice(prefilled).map_err(|_| Fault::Body)?;
        let fields = format!(r#""kv_transfer_params":{}"#, prefilled.kv_transfer_params);
        let (front, rest) = with_fields(plan, &fields);
        self.decode.exchange(front.as_bytes(), rest, &plan.answer).await
    }
}

/// The plan's request with `fields` before its own: a head and the beginning of the body, and the rest of it.
fn with_fields<'a>(plan: &'a Plan, fields: &str) -> (String, &'a [u8]) {
    // Behind its opening brace.
    let rest = &plan.request[plan.body_at + 1..];
    let begin = format!("{{{fields},");
    (head("", begin.len() + rest.len()) + &begin, rest)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Args;
    use crate::plan::Plans;

    #[test]
    fn fields_come_first_and_the_length_is_theirs_too() -> anyhow::Result<()> {
        let words =
            ["loadgen", "--target", "127.0.0.1:1", "--pd", "--prefill", "127.0.0.1:2", "--legs", "sglang"];
        let plans = Plans::new(&Args::try_parse_from(words)?)?;
        let plan = plans.of(0);
        let (front, rest) = with_fields(plan, r#""bootstrap_room":7"#);
        let (head, begin) = front.split_once("\r\n\r\n").unwrap_or_default();
        let body = [begin.as_bytes(), rest].concat();
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{head}");
        let mut sent: serde_json::Value = serde_json::from_slice(&body)?;
        let alone: serde_json::Value = serde_json::from_slice(&plan.request[plan.body_at..])?;
        assert_eq!(sent.as_object_mut().and_then(|fields| fields.remove("bootstrap_room")), Some(7.into()));
        assert_eq!(sent, alone);
        Ok(())
    }
}

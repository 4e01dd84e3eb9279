//! What is printed first: where everything is, and commands that work as they stand there.
//!
//! Commands begin at the left edge and have no comment behind them: not every shell takes one when typed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::engines::MODEL;
use super::view::name;
use crate::admin::EndpointStatus;
use crate::engine::Wire;

/// Everything, ended by a blank line.
pub(super) fn welcome(
    wire: Wire,
    front: SocketAddr,
    admin: SocketAddr,
    engines: &[EndpointStatus],
) -> String {
    let (front, admin) = (url(front), url(admin));
    let wire = match wire {
        Wire::Sglang => "SGLang",
        Wire::Vllm => "vLLM",
    };
    let all_of = |role: &str| {
        let of = engines.iter().filter(|e| e.role == role).map(|e| format!("{} {}", name(e), e.url));
        of.collect::<Vec<_>>().join("   ")
    };
    let last_of = |role: &str| engines.iter().rfind(|e| e.role == role && !e.gone);
    let (id, prefill) = (last_of("decode").map_or("", |e| &e.id), last_of("prefill").map_or("", |e| &e.url));
    let decode = last_of("decode").map(name).unwrap_or_default();
    format!(
        r#"A Tandem router with two prefill and two decode engines. They speak {wire}'s HTTP and have no model: the words mean nothing,
but each follows from the prompt, so a mix-up would be seen. Ctrl-C ends everything.

router    {front}   model: {MODEL}
admin     {admin}   /endpoints /metrics /readyz
prefill   {prefills}
decode    {decodes}

Ask it, from another terminal:

curl -N {front}/v1/chat/completions -H 'content-type: application/json' -d '{{"model":"{MODEL}","stream":true,"max_tokens":80,"messages":[{{"role":"user","content":"Hello"}}]}}'

The same by the openai package (pip install openai):

python3 - <<'END'
from openai import OpenAI
client = OpenAI(base_url="{front}/v1", api_key="none")
chunks = client.chat.completions.create(
    model="{MODEL}", stream=True, max_tokens=80, messages=[{{"role": "user", "content": "Hello"}}])
for chunk in chunks:
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
END

Withdraw {decode}: it gets no new request, what it streams goes on to its end. -X DELETE gives it back:

curl -X PUT {admin}/endpoints/{id}/drain

Let a prefill refuse its next three requests: the router asks the other one, and nobody notices:

curl --data '3*status=503' {prefill}/mock/script

What the router counts, and how it sees its engines:

curl -s {admin}/metrics | grep tandem_requests_total
curl -s {admin}/endpoints

"#,
        prefills = all_of("prefill"),
        decodes = all_of("decode"),
    )
}

/// An address to be typed: one that stands for all of the machine's is reached at loopback.
pub(super) fn url(at: SocketAddr) -> String {
    let ip = match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(ip, at.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_can_be_typed() {
        let typed = |at: &str| url(at.parse().unwrap());
        assert_eq!(typed("0.0.0.0:8080"), "http://127.0.0.1:8080");
        assert_eq!(typed("[::]:80"), "http://[::1]:80");
        assert_eq!(typed("10.0.0.1:9"), "http://10.0.0.1:9");
    }
}

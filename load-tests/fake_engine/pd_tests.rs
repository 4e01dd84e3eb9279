use super::*;
use crate::common::carrying;

fn body(fields: &str) -> Vec<u8> {
    let prompt = carrying(Ask::default(), 200);
    format!(r#"{{"messages":[{{"role":"user","content":"{prompt}"}}]{fields}}}"#).into_bytes()
}

const ROOM: &str = r#","bootstrap_host":"p","bootstrap_port":8998,"bootstrap_room":7"#;
const KEEP: &str = r#","max_tokens":1,"kv_transfer_params":{"do_remote_decode":true}"#;

#[tokio::test(start_paused = true)]
async fn legs_meet_in_their_room_and_a_lone_one_is_refused() {
    let pairs = Pairs::default();
    let leg = body(ROOM);
    let (prefill, decode) = tokio::join!(pairs.take(Role::Prefill, &leg), pairs.take(Role::Decode, &leg));
    assert!(prefill.is_ok() && decode.is_ok());
    assert_eq!(pairs.take(Role::Decode, &leg).await.err(), Some("alone in its room"));
    let (one, two) = tokio::join!(pairs.take(Role::Decode, &leg), pairs.take(Role::Decode, &leg));
    assert_eq!((one.err(), two.err()), (Some("a room twice"), Some("a room twice")));
}

#[tokio::test]
async fn parameters_come_back_once_and_unaltered() {
    let pairs = Pairs::default();
    let handoff = async || match pairs.take(Role::Prefill, &body(KEEP)).await {
        Ok(Reply::Handoff(answer)) => serde_json::from_str::<serde_json::Value>(&answer)
            .map(|answer| answer["kv_transfer_params"].clone())
            .unwrap_or_default(),
        _ => serde_json::Value::Null,
    };
    let params = handoff().await;
    let leg = body(&format!(r#","kv_transfer_params":{params}"#));
    assert!(pairs.take(Role::Decode, &leg).await.is_ok());
    assert_eq!(pairs.take(Role::Decode, &leg).await.err(), Some("parameters spent or unknown"));
    let mut params = handoff().await;
    params["remote_block_ids"] = serde_json::json!([[1]]);
    let leg = body(&format!(r#","kv_transfer_params":{params}"#));
    assert_eq!(pairs.take(Role::Decode, &leg).await.err(), Some("parameters altered"));
}

#[tokio::test]
async fn what_is_no_leg_is_named() {
    let pairs = Pairs::default();
    assert!(pairs.take(Role::Decode, &body("")).await.is_ok());
    for (role, leg, breach) in [
        (Role::Prefill, body(""), "fields of another leg"),
        (Role::Prefill, body(r#","kv_transfer_params":{"do_remote_decode":true}"#), "fields of another leg"),
        (Role::Decode, body(r#","stream":true"#), "another stream flag"),
        (Role::Decode, b"{}".to_vec(), "no chat request"),
        (Role::Decode, br#"{"messages":[{"content":"hello"}]}"#.to_vec(), "another prompt"),
    ] {
        assert_eq!(pairs.take(role, &leg).await.err(), Some(breach));
    }
    let report: serde_json::Value = serde_json::from_str(&pairs.report()).unwrap_or_default();
    assert_eq!((&report["one_leg"], &report["open"]), (&json!(1), &json!(0)));
    assert_eq!(report["breaches"]["fields of another leg"], 2);
}

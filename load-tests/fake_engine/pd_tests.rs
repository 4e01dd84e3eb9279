use super::*;
use crate::common::carrying;

fn body(fields: &str) -> Vec<u8> {
    let prompt = carrying(Ask::default(), 200);
    format!(r#"{{"messages":[{{"role":"user","content":"{prompt}"}}]{fields}}}"#).into_bytes()
}

const PREFILL: Door = Door { role: Role::Prefill, port: 8998 };
const DECODE: Door = Door { role: Role::Decode, port: 8000 };
const ROOM: &str = r#","bootstrap_host":"p","bootstrap_port":8998,"bootstrap_room":7"#;
const KEEP: &str = r#","max_tokens":1,"kv_transfer_params":{"do_remote_decode":true}"#;

#[tokio::test(start_paused = true)]
async fn legs_meet_in_their_room_and_a_lone_one_is_refused() {
    let pairs = Pairs::default();
    let leg = body(ROOM);
    let (prefill, decode) = tokio::join!(pairs.take(PREFILL, &leg), pairs.take(DECODE, &leg));
    assert!(prefill.is_ok() && decode.is_ok());
    assert_eq!(pairs.take(DECODE, &leg).await.err(), Some("alone in its room"));
    let (one, two) = tokio::join!(pairs.take(DECODE, &leg), pairs.take(DECODE, &leg));
    assert_eq!((one.err(), two.err()), (Some("a room twice"), Some("a room twice")));
}

#[tokio::test]
async fn parameters_come_back_once_and_unaltered() {
    let pairs = Pairs::default();
    let handoff = async || match pairs.take(PREFILL, &body(KEEP)).await {
        Ok(Reply::Handoff(answer)) => serde_json::from_str::<serde_json::Value>(&answer)
            .map(|answer| answer["kv_transfer_params"].clone())
            .unwrap_or_default(),
        _ => serde_json::Value::Null,
    };
    let params = handoff().await;
    let leg = body(&format!(r#","kv_transfer_params":{params}"#));
    assert!(pairs.take(DECODE, &leg).await.is_ok());
    assert_eq!(pairs.take(DECODE, &leg).await.err(), Some("parameters spent or unknown"));
    let mut params = handoff().await;
    params["remote_block_ids"] = serde_json::json!([[1]]);
    let leg = body(&format!(r#","kv_transfer_params":{params}"#));
    assert_eq!(pairs.take(DECODE, &leg).await.err(), Some("parameters altered"));
}

#[tokio::test]
async fn what_is_no_leg_is_named() {
    let pairs = Pairs::default();
    assert!(pairs.take(DECODE, &body("")).await.is_ok());
    for (door, leg, breach) in [
        (PREFILL, body(""), "fields of another leg"),
        (PREFILL, body(r#","kv_transfer_params":{"do_remote_decode":true}"#), "fields of another leg"),
        (DECODE, body(r#","stream":true"#), "another stream flag"),
        (DECODE, b"{}".to_vec(), "no chat request"),
        (DECODE, br#"{"messages":[{"content":"hello"}]}"#.to_vec(), "another prompt"),
    ] {
        assert_eq!(pairs.take(door, &leg).await.err(), Some(breach));
    }
    let report: serde_json::Value = serde_json::from_str(&pairs.report()).unwrap_or_default();
    assert_eq!((&report["one_leg"], &report["open"]), (&json!(1), &json!(0)));
    assert_eq!(report["breaches"]["fields of another leg"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_room_belongs_to_one_of_several_prefills() {
    let pairs = Pairs::default();
    let other = Door { port: 8999, ..PREFILL };
    assert_eq!(pairs.take(other, &body(ROOM)).await.err(), Some("another prefill's room"));
    let elsewhere = body(&ROOM.replace("8998", "8999"));
    let leg = body(ROOM);
    let (prefill, decode) = tokio::join!(pairs.take(PREFILL, &leg), pairs.take(DECODE, &elsewhere));
    assert_eq!((prefill.err(), decode.err()), (Some("alone in its room"), Some("alone in its room")));
    let nowhere = body(r#","bootstrap_room":7"#);
    assert_eq!(pairs.take(DECODE, &nowhere).await.err(), Some("a room nowhere"));
}

#[tokio::test(start_paused = true)]
async fn the_report_says_how_many_engines_had_legs() {
    let pairs = Pairs::default();
    let report = || serde_json::from_str::<serde_json::Value>(&pairs.report()).unwrap_or_default();
    for (prefill, decode) in [(8998, 1), (8999, 2), (8998, 2)] {
        let leg = body(&ROOM.replace("8998", &prefill.to_string()));
        let (prefill, decode) = (Door { port: prefill, ..PREFILL }, Door { port: decode, ..DECODE });
        let (prefill, decode) = tokio::join!(pairs.take(prefill, &leg), pairs.take(decode, &leg));
        assert!(prefill.is_ok() && decode.is_ok());
    }
    let first = report();
    assert_eq!((&first["prefills"], &first["decodes"], &first["sglang"]), (&json!(2), &json!(2), &json!(3)));
    assert_eq!(report()["prefills"], 0, "counting starts anew");
}

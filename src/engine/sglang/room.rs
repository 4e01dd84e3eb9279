//! The three bootstrap fields of a body: where each prompt's two halves meet.

use serde_json::Value;

use crate::engine::config::{EngineConfig, Role, Wire};
use crate::engine::job::Failure;

/// One prompt's meeting place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engine) struct Meeting {
    pub(in crate::engine) room: u64,
    pub(in crate::engine) host: Option<String>,
    pub(in crate::engine) port: u16,
}

/// The engine's default.
const PORT: u16 = 8998;

/// Reads the fields for `prompts` prompts. Lists give each prompt its own; one room for a list is counted up by the
/// engine.
pub(in crate::engine) fn meetings(
    config: &EngineConfig,
    body: &Value,
    rid: &str,
    prompts: usize,
) -> Result<Vec<Meeting>, Failure> {
    if config.wire != Wire::Sglang || config.role == Role::Plain {
        return Ok(Vec::new());
    }
    (0..prompts)
        .map(|at| {
            Ok(Meeting {
                room: room(&body["bootstrap_room"], at, rid)?,
                host: nth(&body["bootstrap_host"], at).as_str().map(str::to_owned),
                port: nth(&body["bootstrap_port"], at)
                    .as_u64()
                    .and_then(|n| n.try_into().ok())
                    .unwrap_or(PORT),
            })
        })
        .collect()
}

fn nth(value: &Value, at: usize) -> &Value {
    if value.is_array() { &value[at] } else { value }
}

fn room(value: &Value, at: usize, rid: &str) -> Result<u64, Failure> {
    let counted = if value.is_array() { 0 } else { at as u64 };
    match nth(value, at) {
        Value::Null => Err(Failure::bad(format!(
            "Invalid request: Disaggregated request received without bootstrap room id. req.rid='{rid}'"
        ))),
        one => whole(one).map(|room| room.wrapping_add(counted)).ok_or_else(|| no_integer(one)),
    }
}

/// An integer; a float counts as one when it is whole, as in Python's validator.
fn whole(value: &Value) -> Option<u64> {
    let float = |x: f64| (x.fract() == 0.0 && x >= 0.0).then(|| format!("{x:.0}").parse().ok())?;
    value.as_u64().or_else(|| value.as_f64().and_then(float))
}

fn no_integer(value: &Value) -> Failure {
    let shown = value.as_str().map_or_else(|| value.to_string(), |text| format!("'{text}'"));
    Failure::bad(format!(
        "2 validation errors:\n  {{'type': 'list_type', 'loc': ('body', 'bootstrap_room', 'list[int]'), 'msg': 'Input should be \
         a valid list', 'input': {shown}}}\n  {{'type': 'int_parsing', 'loc': ('body', 'bootstrap_room', 'int'), 'msg': \
         'Input should be a valid integer, unable to parse string as an integer', 'input': {shown}}}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rooms(body: &Value, prompts: usize) -> Result<Vec<u64>, Failure> {
        let config = EngineConfig::new(Wire::Sglang, Role::Decode);
        meetings(&config, body, "r", prompts).map(|all| all.iter().map(|one| one.room).collect())
    }

    #[test]
    fn lists_give_each_prompt_its_room_and_one_room_is_counted_up() {
        assert_eq!(rooms(&json!({"bootstrap_room": [7, 40]}), 2), Ok(vec![7, 40]));
        assert_eq!(rooms(&json!({"bootstrap_room": 7}), 2), Ok(vec![7, 8]));
        assert_eq!(rooms(&json!({"bootstrap_room": u64::MAX}), 1), Ok(vec![u64::MAX]));
        assert_eq!(rooms(&json!({"bootstrap_room": 1e5}), 1), Ok(vec![100_000]));
        assert!(
            rooms(&json!({"bootstrap_room": 1.5}), 1).is_err()
                && rooms(&json!({"bootstrap_room": -1}), 1).is_err()
        );
    }

    #[test]
    fn a_missing_and_a_string_room_are_refused_in_the_recorded_words() {
        let missing = rooms(&json!({}), 1).unwrap_err();
        assert!(missing.message.contains("without bootstrap room id. req.rid='r'"));
        let text = rooms(&json!({"bootstrap_room": "x"}), 1).unwrap_err();
        assert!(text.message.starts_with("2 validation errors:\n  {'type': 'list_type'"), "{}", text.message);
        assert!(rooms(&json!({"bootstrap_room": [7]}), 2).is_err(), "a list that is too short");
    }
}

//! JSON whose keys keep the order they are written in. The engines' clients see that order, so the shapes in `answer/` are
//! written down as they were recorded.

use serde::ser::{Serialize, SerializeMap, Serializer};

/// A JSON value with ordered keys.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Json>),
    Map(Vec<(&'static str, Json)>),
}

/// `ordered! { "key": value, … }`; `()` is null.
macro_rules! ordered {
    ($($key:literal : $value:expr),* $(,)?) => {
        $crate::engine::json::Json::Map(vec![$(($key, $crate::engine::json::Json::from($value))),*])
    };
}
pub(super) use ordered;

impl Json {
    /// Compact, as the engines write it.
    pub(super) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// With a space after colon and comma: how Python's own encoder writes, which the engines use for errors in a stream.
    pub(super) fn spaced(&self) -> String {
        let quoted = |text: &str| serde_json::to_string(text).unwrap_or_default();
        match self {
            Self::List(items) => {
                format!("[{}]", items.iter().map(Self::spaced).collect::<Vec<_>>().join(", "))
            }
            Self::Map(entries) => {
                let entry = |(key, value): &(&str, Self)| format!("{}: {}", quoted(key), value.spaced());
                format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
            }
            scalar => scalar.text(),
        }
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => to.serialize_unit(),
            Self::Bool(value) => to.serialize_bool(*value),
            Self::Int(value) => to.serialize_i128(*value),
            Self::Float(value) => to.serialize_f64(*value),
            Self::Text(value) => to.serialize_str(value),
            Self::List(items) => to.collect_seq(items),
            Self::Map(entries) => {
                let mut map = to.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

macro_rules! from {
    ($($kind:ty => $make:expr;)*) => {
        $(impl From<$kind> for Json {
            fn from(value: $kind) -> Self {
                let make: fn($kind) -> Json = $make;
                make(value)
            }
        })*
    };
}

from! {
    () => |()| Json::Null;
    bool => Json::Bool;
    u16 => |n| Json::Int(n.into());
    u32 => |n| Json::Int(n.into());
    u64 => |n| Json::Int(n.into());
    i32 => |n| Json::Int(n.into());
    i128 => Json::Int;
    usize => |n| Json::Int(i128::try_from(n).unwrap_or(i128::MAX));
    f64 => Json::Float;
    &str => |text| Json::Text(text.to_owned());
    String => Json::Text;
    Vec<Json> => Json::List;
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_in_the_order_they_were_written_in() {
        let value = ordered! { "b": 1_u32, "a": (), "c": vec![Json::from("x\"")], "d": Some(true) };
        assert_eq!(value.text(), r#"{"b":1,"a":null,"c":["x\""],"d":true}"#);
        assert_eq!(value.spaced(), r#"{"b": 1, "a": null, "c": ["x\""], "d": true}"#);
    }
}

//! The keys as documents: rows of `docs/configuration.md` and a JSON Schema, both made from the table of keys.

use serde_json::{Value, json};

use super::keys::{KEYS, Key, LABELS};

/// The key's row of `docs/configuration.md`.
pub fn row(key: &Key) -> String {
    let variable = key.variable().map_or_else(|| "-".to_owned(), |name| format!("`{name}`"));
    let Key { path, kind, default, reload, meaning } = key;
    format!("| `{path}` | {kind} | `{default}` | {} | {variable} | {meaning} |", reload.as_str())
}

/// JSON Schema (draft 2020-12) of a configuration file. Editors complete and check with it; `tandem check` knows more.
pub fn schema() -> Value {
    let mut root = object();
    for key in KEYS {
        insert(&mut root, key.path, key);
    }
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!("Configuration of tandem router");
    root["properties"]["services"]["minItems"] = json!(1);
    root
}

fn object() -> Value {
    json!({"type": "object", "additionalProperties": false, "properties": {}})
}

/// Puts the key where its path says, making sections and lists on the way. A section may be left empty.
fn insert(section: &mut Value, path: &str, key: &Key) {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    let (name, is_list) = name.strip_suffix("[]").map_or((name, false), |name| (name, true));
    let required = rest.is_none() && key.default == "required";
    if required {
        let names = section.as_object_mut().map(|s| s.entry("required").or_insert_with(|| json!([])));
        names.and_then(Value::as_array_mut).into_iter().for_each(|names| names.push(json!(name)));
    }
    let Some(properties) = section["properties"].as_object_mut() else { return };
    match rest {
        None => _ = properties.insert(name.to_owned(), leaf(key)),
        Some(rest) => {
            let next = properties.entry(name).or_insert_with(|| {
                if is_list {
                    json!({"type": ["array", "null"], "items": object()})
                } else {
                    section_or_null()
                }
            });
            // A key that has a form with keys of its own: its leaf holds both forms already.
            if next.get("anyOf").is_none() {
                insert(if is_list { &mut next["items"] } else { next }, rest, key);
            }
        }
    }
}

fn section_or_null() -> Value {
    json!({"type": ["object", "null"], "additionalProperties": false, "properties": {}})
}

fn leaf(key: &Key) -> Value {
    let Value::Object(mut schema) = kind(key.kind) else { return Value::Null };
    schema.insert("description".to_owned(), json!(key.meaning));
    if (key.kind, key.default) == (LABELS, "required") {
        schema.extend([("minProperties".to_owned(), json!(1)), ("type".to_owned(), json!("object"))]);
    }
    if !matches!(key.default, "required" | "null") {
        schema.insert("default".to_owned(), default(key.default));
    }
    Value::Object(schema)
}

fn default(text: &str) -> Value {
    match text {
        "true" | "false" => json!(text == "true"),
        list if list.starts_with(['[', '{']) => serde_json::from_str(list).unwrap_or_default(),
        _ => text.parse::<u64>().map_or_else(|_| json!(text), |number| json!(number)),
    }
}

/// Value of a label, empty ones too.
const LABEL_VALUE: &str = "^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$";

/// The words of [`Key::kind`] as a schema. Scalars may be written with or without quotes, so numbers are taken as text too.
fn kind(words: &str) -> Value {
    let count = || json!({"type": ["integer", "string"], "pattern": "^-?[0-9]+$"});
    let text = |pattern: &str| json!({"type": "string", "pattern": pattern});
    let size = || json!({"type": ["integer", "string"], "pattern": "^[0-9]+(KiB|MiB|GiB|TiB)?$"});
    let duration =
        || json!({"type": ["integer", "string"], "pattern": "^(0|([0-9]+(ms|s|m|h))+)$", "maximum": 0});
    let auto = |other: Value| json!({"anyOf": [{"const": "auto"}, other]});
    let port =
        || json!({"type": ["integer", "string"], "minimum": 1, "maximum": 65535, "pattern": "^[0-9]+$"});
    let boolean = || json!({"type": "boolean"});
    let label_key =
        |more: &str| text(&format!("^([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9._-]{{0,61}}[A-Za-z0-9])?{more}$"));
    match words {
        "IP:PORT" => text(":[0-9]+$"),
        "http://HOST:PORT" => text("^http://"),
        "name" => text("^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$"),
        "object name" => text("^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"),
        "path" => json!({"type": ["string", "null"]}),
        "off, stdout or path" => json!({"type": "string"}),
        "count" => count(),
        "port" => port(),
        "auto or port" => auto(port()),
        "list of ports" => json!({"type": "array", "minItems": 1, "maxItems": 64, "uniqueItems": true,
            "items": {"anyOf": [port(), text("^[a-z0-9-]{1,15}$")]}}),
        "size" => size(),
        "duration" => duration(),
        "auto or count" => auto(count()),
        "auto or size" => auto(size()),
        "auto or duration" => auto(duration()),
        "share" => {
            json!({"type": ["number", "string"], "pattern": "^[0-9.]+%?$", "minimum": 0, "maximum": 1})
        }
        "true or false" => boolean(),
        "auto, true or false" => auto(boolean()),
        // A YAML 1.1 reader takes values such as `true` and `1` for what they look like.
        LABELS => json!({"type": ["object", "null"], "propertyNames": label_key(""),
            "additionalProperties": {"type": ["string", "number", "boolean"], "pattern": LABEL_VALUE}}),
        "auto, off or KEY" => label_key(""),
        "auto, off or KEY[=VALUE]" => label_key("(=[A-Za-z0-9._-]+)?"),
        "auto or list of values" => auto(json!({"type": "array",
            "items": {"type": ["string", "number", "boolean"], "pattern": LABEL_VALUE}})),
        "auto or name" => text("^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"),
        "auto or path" => json!({"type": "string"}),
        "text" => json!({"type": ["string", "null"]}),
        "revision" | "token" => json!({"type": ["string", "null"], "minLength": 1, "maxLength": 253}),
        "list of revisions" => {
            json!({"type": ["array", "null"], "items": {"type": "string", "minLength": 1}})
        }
        "list of headers" => {
            json!({"type": ["array", "null"], "items": {"type": "string", "pattern": "^[A-Za-z0-9-]+$"}})
        }
        "list of names" => json!({"type": ["array", "null"], "items": {"type": "string"}}),
        "auto, pass, strip or {from_secret: path}" => json!({"anyOf": [
            {"enum": ["auto", "pass", "strip"]},
            {"type": "object", "additionalProperties": false, "required": ["from_secret"],
                "properties": {"from_secret": {"type": "string"}}},
        ]}),
        choice => {
            json!({"enum": choice.split([',', ' ']).filter(|w| !matches!(*w, "" | "or")).collect::<Vec<_>>()})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_schema_and_choices_are_words() {
        for (key, schema) in KEYS.iter().map(|key| (key, kind(key.kind))) {
            let Some(choices) = schema["enum"].as_array() else { continue };
            let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
            let wordy = choices.iter().all(|w| w.as_str().is_some_and(|w| w.chars().all(word)));
            assert!(wordy && choices.contains(&json!(key.default)), "{}: {schema}", key.kind);
        }
    }

    #[test]
    fn keys_stand_where_they_are_written() {
        let schema = schema();
        let at = |pointer: &str| schema.pointer(pointer).cloned().unwrap_or_default();
        assert_eq!(at("/properties/limits/properties/body/default"), "64MiB");
        let service = "/properties/services/items";
        assert_eq!(at(&format!("{service}/required")), json!(["name"]));
        let prefill = format!("{service}/properties/discovery/properties/static/properties/prefill/items");
        assert_eq!(at(&format!("{prefill}/required")), json!(["url"]));
        assert_eq!(at(&format!("{prefill}/properties/bootstrap_port/maximum")), 65535);
        let authorization =
            format!("{service}/properties/upstream/properties/authorization/anyOf/1/required");
        assert_eq!(at(&authorization), json!(["from_secret"]));
        let pods = format!("{service}/properties/discovery/properties/kubernetes");
        assert_eq!(at(&format!("{pods}/required")), json!(["selector"]));
        assert_eq!(at(&format!("{pods}/properties/selector/minProperties")), 1);
        assert_eq!(at(&format!("{pods}/properties/selector/type")), "object");
        assert_eq!(at(&format!("{pods}/properties/prefill/default")), json!({}));
        assert_eq!(at(&format!("{pods}/properties/ports/default")), json!([8000]));
    }
}

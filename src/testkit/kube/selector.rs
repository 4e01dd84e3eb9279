//! Label and field selectors, as far as the documentation gives them a meaning.

use serde_json::Value;

use super::status::Status;
use super::store::{Key, text};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Rule {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Missing,
}

/// `a=b,c!=d,e in (f,g),h notin (i),j,!k`: all must hold.
#[derive(Debug, Clone, Default)]
pub(super) struct Selector(Vec<(String, Rule)>);

impl Selector {
    pub(super) fn parse(source: &str) -> Result<Self, Status> {
        let rules = split_outside_parens(source).into_iter().filter(|_| !source.trim().is_empty());
        let parsed: Option<Vec<_>> = rules.map(rule).collect();
        parsed.map(Self).ok_or_else(|| {
            Status::bad_request(format!("unable to parse requirement: invalid label selector {source:?}"))
        })
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|(key, rule)| {
            let value = object.pointer("/metadata/labels").and_then(|labels| labels.get(key));
            let among = |values: &[String]| values.iter().any(|v| value.and_then(Value::as_str) == Some(v));
            match rule {
                Rule::In(values) => among(values),
                Rule::NotIn(values) => !among(values),
                Rule::Exists => value.is_some(),
                Rule::Missing => value.is_none(),
            }
        })
    }
}

/// Commas separate rules, except those inside of a set.
fn split_outside_parens(source: &str) -> Vec<&str> {
    let mut inside = false;
    source
        .split(move |c| {
            inside = (inside || c == '(') && c != ')';
            c == ',' && !inside
        })
        .map(str::trim)
        .collect()
}

fn rule(source: &str) -> Option<(String, Rule)> {
    if let Some(key) = source.strip_prefix('!') {
        return Some((label_key(key)?, Rule::Missing));
    }
    for (sign, negative) in [("!=", true), ("==", false), ("=", false)] {
        if let Some((key, value)) = source.split_once(sign) {
            let values = vec![label_value(value)?];
            let rule = if negative { Rule::NotIn(values) } else { Rule::In(values) };
            return Some((label_key(key)?, rule));
        }
    }
    let Some((key, set)) = source.split_once(char::is_whitespace) else {
        return Some((label_key(source)?, Rule::Exists));
    };
    let (operator, values) = set.trim().split_once('(')?;
    let values: Vec<_> = values.strip_suffix(')')?.split(',').map(label_value).collect::<Option<_>>()?;
    let rule = match operator.trim() {
        "in" => Rule::In(values),
        "notin" => Rule::NotIn(values),
        _ => return None,
    };
    Some((label_key(key)?, rule))
}

fn label_key(key: &str) -> Option<String> {
    let key = key.trim();
    let good = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    (!key.is_empty() && key.chars().all(good)).then(|| key.to_owned())
}

fn label_value(value: &str) -> Option<String> {
    let value = value.trim();
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (value.len() <= 63 && value.chars().all(good)).then(|| value.to_owned())
}

/// The fields of a Pod that a server can select by.
const FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.nominatedNodeName",
    "status.phase",
    "status.podIP",
];

/// Which Pods a request is about.
#[derive(Debug, Clone, Default)]
pub(super) struct Filter {
    pub(super) ns: Option<String>,
    labels: Selector,
    /// Pointer, value, whether equal.
    fields: Vec<(String, String, bool)>,
}

impl Filter {
    pub(super) fn parse(ns: Option<String>, labels: &str, fields: &str) -> Result<Self, Status> {
        let fields = fields.split(',').filter(|term| !term.is_empty()).map(field);
        Ok(Self { ns, labels: Selector::parse(labels)?, fields: fields.collect::<Result<_, _>>()? })
    }

    /// Whether only the namespace selects: then a server says how many items remain.
    pub(super) fn is_plain(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(super) fn matches(&self, key: &Key, object: &Value) -> bool {
        self.ns.as_ref().is_none_or(|ns| *ns == key.ns)
            && self.labels.matches(object)
            && self.fields.iter().all(|(at, value, equal)| (text(object, at) == value) == *equal)
    }
}

fn field(term: &str) -> Result<(String, String, bool), Status> {
    let split = [("!=", false), ("==", true), ("=", true)]
        .into_iter()
        .find_map(|(sign, equal)| term.split_once(sign).map(|(name, value)| (name, value, equal)));
    let (name, value, equal) = split.ok_or_else(|| {
        Status::bad_request(format!("invalid selector: '{term}'; can't understand '{term}'"))
    })?;
    if !FIELDS.contains(&name) {
        return Err(Status::bad_request(format!("field label not supported: {name}")));
    }
    Ok((format!("/{}", name.replace('.', "/")), value.to_owned(), equal))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selects(selector: &str, labels: &Value) -> bool {
        Selector::parse(selector).unwrap().matches(&json!({ "metadata": { "labels": labels } }))
    }

    #[test]
    fn every_form_of_a_label_selector() {
        let labels = json!({ "app": "llm", "example.com/role": "decode", "empty": "" });
        let yes = ["", "app=llm", "app==llm", "app != x", "none!=x", "app in (x, llm)", "none notin (x)"];
        let no = ["app=x", "app!=llm", "none=llm", "app notin (x,llm)", "none in (x)", "none", "!app"];
        for selector in
            yes.into_iter().chain(["app", "!none", "empty=", "app=llm,example.com/role in (decode)"])
        {
            assert!(selects(selector, &labels), "{selector}");
        }
        for selector in no.into_iter().chain(["app=llm,none", "app in (llm),example.com/role=x"]) {
            assert!(!selects(selector, &labels), "{selector}");
        }
        assert!(!selects("app", &Value::Null), "a Pod without labels is no accident");
    }

    #[test]
    fn nonsense_is_refused() {
        for selector in ["=", ",", "a=b,", "a in b", "a in (b", "a like (b)", "a b", "a=b c", "!", "a>1"] {
            assert_eq!(Selector::parse(selector).unwrap_err().code(), 400, "{selector}");
        }
        for selector in ["metadata.labels=a", "metadata.name", "spec.hostIP=1"] {
            assert_eq!(Filter::parse(None, "", selector).unwrap_err().code(), 400, "{selector}");
        }
    }
}

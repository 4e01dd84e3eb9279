//! A request's target: the route and the query.

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    Version,
    /// `/api`, `/apis`, `/api/v1`: what discovery reads.
    Discovery(&'static str),
    Namespaces,
    Namespace(String),
    /// The Pods of one namespace, or of all.
    Pods(Option<String>),
    Pod(String, String),
    PodStatus(String, String),
    Unknown,
}

impl Route {
    pub(super) fn parse(path: &str) -> Self {
        let segments: Vec<String> = path.split('/').skip(1).map(decode).collect();
        let own = |at: usize| segments[at].clone();
        match segments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["version"] => Self::Version,
            ["api"] => Self::Discovery("api"),
            ["apis"] => Self::Discovery("apis"),
            ["api", "v1"] => Self::Discovery("v1"),
            ["api", "v1", "pods"] => Self::Pods(None),
            ["api", "v1", "namespaces"] => Self::Namespaces,
            ["api", "v1", "namespaces", _] => Self::Namespace(own(3)),
            ["api", "v1", "namespaces", _, "pods"] => Self::Pods(Some(own(3))),
            ["api", "v1", "namespaces", _, "pods", _] => Self::Pod(own(3), own(5)),
            ["api", "v1", "namespaces", _, "pods", _, "status"] => Self::PodStatus(own(3), own(5)),
            _ => Self::Unknown,
        }
    }
}

/// The decoded pairs after the `?`.
#[derive(Debug, Clone, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(name, value)| (decode(&name.replace('+', " ")), decode(&value.replace('+', " "))))
                .collect(),
        )
    }

    /// The value, if the name is there and its value not empty: a server makes no difference between the two.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
        value.filter(|value| !value.is_empty())
    }

    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| matches!(value, "1" | "true" | "True" | "TRUE" | "t" | "T"))
    }
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        if let Some(byte) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            bytes.push(byte);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_things() {
        let pod = |ns: &str, name: &str| Route::Pod(ns.to_owned(), name.to_owned());
        assert_eq!(Route::parse("/api/v1/namespaces/a/pods/b"), pod("a", "b"));
        assert_eq!(Route::parse("/api/v1/namespaces/a/pods/b%2D1"), pod("a", "b-1"));
        assert_eq!(Route::parse("/api/v1/pods"), Route::Pods(None));
        for path in ["/", "", "/api/v1/nodes", "/api/v1/pods/x", "/api/v1/namespaces/a/pods/b/log"] {
            assert_eq!(Route::parse(path), Route::Unknown, "{path}");
        }
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("&watch=1&labelSelector=a%3Db%2Cc+in+%28d%29&continue=&bad=%zz%4&flag");
        assert_eq!(query.flag("watch"), Some(true));
        assert_eq!(query.get("labelSelector"), Some("a=b,c in (d)"));
        assert_eq!((query.get("continue"), query.get("flag"), query.flag("other")), (None, None, None));
        assert_eq!(query.get("bad"), Some("%zz%4"));
    }
}

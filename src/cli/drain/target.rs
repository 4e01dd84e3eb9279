//! What is to leave: a Pod, or an engine that the routers' configuration lists.

use std::fmt;

use super::super::admin::{authority, encoded};
use crate::admin::EndpointStatus;
use crate::registry::report::{Bare, Entry};

/// As it is named on a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Named {
    Listed(String),
    Pod { namespace: Option<String>, name: String },
}

impl Named {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.contains(':') {
            let url = text.trim_end_matches('/');
            let at = authority(url).map_err(|error| format!("{error:#}; write it as http://HOST:PORT"))?;
            return Ok(Self::Listed(format!("http://{at}")));
        }
        let (namespace, name) = match text.split_once('/') {
            Some(("pod" | "pods", name)) => (None, name),
            Some((namespace, name)) => (Some(namespace.to_owned()), name),
            None => (None, text),
        };
        let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        let good = |text: &str| !text.is_empty() && text.chars().all(letters);
        if good(name) && namespace.as_deref().is_none_or(good) {
            Ok(Self::Pod { namespace, name: name.to_owned() })
        } else {
            Err("neither a Pod, as NAME, pod/NAME or NAMESPACE/NAME, nor http://HOST:PORT".to_owned())
        }
    }
}

/// As routers know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Listed(String),
    Pod(Pod),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) namespace: String,
    pub(super) name: String,
    /// `None`: whoever has the name.
    pub(super) uid: Option<String>,
}

impl Target {
    /// The part of a report that is asked for.
    pub(super) fn query(&self) -> String {
        match self {
            Self::Listed(url) => format!("url={}", encoded(url)),
            Self::Pod(Pod { uid: Some(uid), .. }) => format!("uid={}", encoded(uid)),
            Self::Pod(Pod { namespace, name, uid: None }) => {
                format!("namespace={}&pod={}", encoded(namespace), encoded(name))
            }
        }
    }

    /// Reports are looked through here as well: what a filter lets pass is the router's word.
    pub(super) fn is(&self, entry: &Entry) -> bool {
        match self {
            Self::Listed(url) => entry.url == *url,
            Self::Pod(pod) => pod.is(entry.uid.as_deref(), entry.namespace.as_deref(), entry.pod.as_deref()),
        }
    }

    pub(super) fn is_bare(&self, bare: &Bare) -> bool {
        match self {
            Self::Listed(_) => false,
            Self::Pod(pod) => pod.is(Some(&bare.uid), Some(&bare.namespace), Some(&bare.pod)),
        }
    }

    pub(super) fn is_listed(&self, status: &EndpointStatus) -> bool {
        match self {
            Self::Listed(url) => status.url == *url,
            Self::Pod(pod) => {
                let (namespace, name) = status.pod.as_deref().and_then(|pod| pod.split_once('/')).unzip();
                pod.is(status.pod_uid.as_deref(), namespace, name)
            }
        }
    }
}

impl Pod {
    fn is(&self, uid: Option<&str>, namespace: Option<&str>, name: Option<&str>) -> bool {
        match &self.uid {
            Some(own) => uid == Some(own),
            None => namespace == Some(&self.namespace) && name == Some(&self.name),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listed(url) => f.write_str(url),
            Self::Pod(pod) => write!(f, "{}/{}", pod.namespace, pod.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_pod_or_a_url() {
        let pod = |namespace: Option<&str>, name: &str| {
            Ok(Named::Pod { namespace: namespace.map(str::to_owned), name: name.to_owned() })
        };
        assert_eq!(Named::parse("chat-0"), pod(None, "chat-0"));
        assert_eq!(Named::parse("pod/chat-0"), pod(None, "chat-0"));
        assert_eq!(Named::parse("llm/chat-0.x"), pod(Some("llm"), "chat-0.x"));
        for url in ["http://e:80", "http://e:80/", "e:80"] {
            assert_eq!(Named::parse(url), Ok(Named::Listed("http://e:80".to_owned())));
        }
        assert!(Named::parse("http://[::1]:80").is_ok());
        for wrong in ["", "/", "a/", "/b", "a/b/c", "Chat", "$(POD_NAME)", "pod/", "https://e:80", "http://e"]
        {
            assert!(Named::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn with_a_uid_the_name_says_nothing() {
        let pod = |uid: Option<&str>| Pod {
            namespace: "llm".to_owned(),
            name: "chat-0".to_owned(),
            uid: uid.map(str::to_owned),
        };
        assert!(pod(None).is(Some("u"), Some("llm"), Some("chat-0")));
        assert!(!pod(None).is(Some("u"), Some("other"), Some("chat-0")));
        assert!(!pod(None).is(None, None, None), "a listed engine is no Pod");
        assert!(pod(Some("u")).is(Some("u"), Some("llm"), Some("renamed")));
        assert!(!pod(Some("u")).is(Some("v"), Some("llm"), Some("chat-0")));
        assert!(!pod(Some("u")).is(None, Some("llm"), Some("chat-0")));
        assert_eq!(Target::Pod(pod(Some("u"))).query(), "uid=u");
        assert_eq!(Target::Pod(pod(None)).query(), "namespace=llm&pod=chat-0");
        assert_eq!(Target::Listed("http://e:80".to_owned()).query(), "url=http%3A%2F%2Fe%3A80");
    }
}

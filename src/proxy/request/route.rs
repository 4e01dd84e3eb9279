//! The routes of the front door: exact paths, nothing else.
//!
//! A path is compared byte for byte and never decoded, normalised or case-folded, so there is one decision for
//! authorisation, metrics and forwarding (`/v1/../x`, `//v1/…`, `%2e`, `;x`, `/V1/…` are simply unknown). Aliases
//! that engines serve (`/rerank`, `/v1/rerank`, `/v2/rerank`) are one route with one label; the client's own spelling
//! is what is forwarded.

/// What body a route takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    /// One JSON object; peeked.
    Json,
    /// `multipart/form-data`; forwarded unseen.
    Multipart,
    /// None.
    None,
}

macro_rules! routes {
    ($($variant:ident $body:ident $word:literal $label:literal $($alias:literal)*,)*) => {
        /// A route of the front door.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Route {
            $(#[doc = concat!("`", $label, "`")] $variant,)*
        }

        impl Route {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Every path that is served, aliases included.
            pub const PATHS: &'static [&'static str] = &[$($label, $($alias,)*)*];

            /// The route of exactly this path.
            pub fn find(path: &str) -> Option<Self> {
                match path {
                    $($label $(| $alias)* => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The route as one word: metric label and access-log value. The last one stands for "no such route".
            pub const WORDS: &'static [&'static str] = &[$($word,)* "unknown"];

            /// The route's main path.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $label,)* }
            }

            pub fn body(self) -> BodyKind {
                match self { $(Self::$variant => BodyKind::$body,)* }
            }
        }
    };
}

routes! {
    ChatCompletions Json "chat_completions" "/v1/chat/completions",
    Completions Json "completions" "/v1/completions",
    Responses Json "responses" "/v1/responses",
    Messages Json "messages" "/v1/messages",
    CountTokens Json "count_tokens" "/v1/messages/count_tokens",
    Embeddings Json "embeddings" "/v1/embeddings",
    Rerank Json "rerank" "/v1/rerank" "/rerank" "/v2/rerank",
    Score Json "score" "/v1/score" "/score",
    Classify Json "classify" "/v1/classify" "/classify",
    Generate Json "generate" "/generate",
    InferenceGenerate Json "inference_generate" "/inference/v1/generate",
    Tokenize Json "tokenize" "/tokenize" "/v1/tokenize",
    Detokenize Json "detokenize" "/detokenize" "/v1/detokenize",
    AudioTranscriptions Multipart "audio_transcriptions" "/v1/audio/transcriptions",
    AudioTranslations Multipart "audio_translations" "/v1/audio/translations",
    Models None "models" "/v1/models",
    Health None "health" "/health",
    ObserverEndpoints None "observer_endpoints" "/observer/endpoints",
}

impl Route {
    /// Position in [`WORDS`](Self::WORDS); `None` is an unknown path.
    pub fn index(route: Option<Self>) -> usize {
        route.map_or(Self::ALL.len(), |route| route as usize)
    }

    /// The word of a route, or of an unknown path.
    pub fn word(route: Option<Self>) -> &'static str {
        Self::WORDS.get(Self::index(route)).copied().unwrap_or("unknown")
    }

    /// The value of `Allow`. A route with a body takes POST; one without takes GET and HEAD.
    pub fn allow(self) -> &'static str {
        match self.body() {
            BodyKind::None => "GET, HEAD",
            BodyKind::Json | BodyKind::Multipart => "POST",
        }
    }

    pub fn allows(self, method: &http::Method) -> bool {
        match self.body() {
            BodyKind::None => method == http::Method::GET || method == http::Method::HEAD,
            BodyKind::Json | BodyKind::Multipart => method == http::Method::POST,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_served_paths_and_unique() {
        let labels: std::collections::HashSet<_> = Route::ALL.iter().map(|r| r.as_str()).collect();
        assert_eq!(labels.len(), Route::ALL.len());
        for &route in Route::ALL {
            assert_eq!(Route::find(route.as_str()), Some(route));
        }
        assert!(Route::PATHS.iter().all(|p| Route::find(p).is_some()));
    }

    #[test]
    fn b182_any_other_spelling_of_a_path_is_unknown() {
        for path in Route::PATHS {
            for other in [
                format!("{path}/"),
                format!("/{path}"),
                format!("{path};x"),
                format!("/.{path}"),
                format!("/x/..{path}"),
                path.to_ascii_uppercase(),
                path.replacen('/', "/%2e/", 1),
                path.replacen('a', "%61", 1) + "%20",
                path[1..].to_owned(),
                format!("{path} "),
                format!("{path}数"),
            ] {
                assert_eq!(Route::find(&other), None, "{other}");
            }
        }
        for path in
            ["", "/", "*", "/v1/../workers", "/v1/%2e%2e/workers", "//workers", "/workers%2fx", "/WORKERS"]
        {
            assert_eq!(Route::find(path), None, "{path}");
        }
    }
}

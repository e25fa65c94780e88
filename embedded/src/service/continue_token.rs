//! The `continue` token of a chunked list, in kube-apiserver's format (`storage/continue.go`): clients must not interpret it, but the
//! errors about it are the same. It also names its list, because a start key means nothing in another one. Pure.

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Serialize};

/// Maximum length of a token in bytes. A name and a namespace have at most 316 characters.
const MAX_LENGTH: usize = 2048;
const VERSION: &str = "meta.k8s.io/v1";
/// The revision in a token that continues at the newest one.
const NEWEST: i64 = -1;

/// Go's `RawURLEncoding`, which allows unused bits to be set.
static BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// Where a list continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContinueToken {
    /// Revision of the first page; `None` continues at the newest revision.
    pub(super) revision: Option<u64>,
    /// Lowest key of the next page: a name, preceded by a namespace and a slash in a list of all namespaces.
    pub(super) start: String,
    /// Number of objects before the start at the revision, so that no page counts the objects of earlier ones; `None` if unknown.
    pub(super) preceding: Option<usize>,
}

/// Why a token is refused, with kube-apiserver's messages where it has them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ContinueTokenError {
    #[error("continue key is not valid: longer than {} bytes", MAX_LENGTH)]
    TooLong,
    #[error("continue key is not valid: illegal base64 data at input byte {0}")]
    Base64(usize),
    #[error("continue key is not valid: {0}")]
    Json(String),
    #[error("continue key is not valid: server does not recognize this encoded version {0}")]
    Version(String),
    #[error("continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)")]
    Revision,
    #[error("continue key is not valid: encoded start key empty (version meta.k8s.io/v1)")]
    EmptyStart,
    #[error("continue key is not valid: {0}")]
    Start(String),
    #[error("continue key is not valid: it belongs to another list")]
    OtherList,
}

/// The content of a token.
#[derive(Deserialize, Serialize)]
struct Content {
    #[serde(rename = "v", default)]
    version: String,
    #[serde(rename = "rv", default)]
    revision: i64,
    #[serde(default)]
    start: String,
    #[serde(default)]
    list: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    preceding: Option<usize>,
}

impl ContinueToken {
    /// Parses a token of this list.
    pub(super) fn parse(text: &str, list: &str) -> Result<Self, ContinueTokenError> {
        if text.len() > MAX_LENGTH {
            return Err(ContinueTokenError::TooLong);
        }
        let decoded = BASE64.decode(text);
        let decoded = decoded.map_err(|_| ContinueTokenError::Base64(illegal_byte(text)))?;
        let content: Content =
            serde_json::from_slice(&decoded).map_err(|error| ContinueTokenError::Json(error.to_string()))?;
        if content.version != VERSION {
            return Err(ContinueTokenError::Version(content.version));
        }
        if content.revision == 0 {
            return Err(ContinueTokenError::Revision);
        }
        if content.start.is_empty() {
            return Err(ContinueTokenError::EmptyStart);
        }
        let start = content.start.strip_prefix('/').unwrap_or(&content.start);
        if start.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(ContinueTokenError::Start(content.start));
        }
        if content.list != list {
            return Err(ContinueTokenError::OtherList);
        }
        Ok(Self {
            revision: u64::try_from(content.revision).ok(),
            start: start.to_owned(),
            preceding: content.preceding,
        })
    }

    /// Returns the token as text.
    pub(super) fn encode(&self, list: &str) -> String {
        let revision = self
            .revision
            .map(|revision| i64::try_from(revision).unwrap_or(i64::MAX));
        let content = Content {
            version: VERSION.to_owned(),
            revision: revision.unwrap_or(NEWEST),
            start: self.start.clone(),
            list: list.to_owned(),
            preceding: self.preceding,
        };
        BASE64.encode(serde_json::to_vec(&content).unwrap_or_default())
    }
}

/// Returns the offset that Go's decoder reports.
fn illegal_byte(text: &str) -> usize {
    let is_symbol = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let illegal = text.bytes().position(|byte| !is_symbol(byte));
    illegal.unwrap_or_else(|| text.len().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn parse(content: &Value) -> Result<ContinueToken, String> {
        let text = BASE64.encode(content.to_string());
        ContinueToken::parse(&text, "configmaps/a").map_err(|error| error.to_string())
    }

    #[test]
    fn errors_are_those_of_kube_apiserver() {
        let valid = json!({"v": "meta.k8s.io/v1", "rv": 7, "start": "b\u{0}", "list": "configmaps/a"});
        let with = |field: &str, value: Value| {
            let mut changed = valid.clone();
            changed[field] = value;
            parse(&changed)
        };
        let error = |reason: &str| Err(format!("continue key is not valid: {reason}"));
        assert!(parse(&valid).is_ok());
        assert_eq!(with("rv", json!(-1)).unwrap().revision, None);
        assert_eq!(
            with("v", json!("v2")),
            error("server does not recognize this encoded version v2")
        );
        assert_eq!(
            with("rv", json!(0)),
            error("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
        );
        assert_eq!(
            with("start", json!("")),
            error("encoded start key empty (version meta.k8s.io/v1)")
        );
        assert_eq!(with("start", json!("../secrets")), error("../secrets"));
        assert_eq!(with("start", json!("a//b")), error("a//b"));
        assert_eq!(
            with("list", json!("secrets/a")),
            error("it belongs to another list")
        );
        let parse = |text: &str| ContinueToken::parse(text, "").map_err(|error| error.to_string());
        assert_eq!(parse("ab!c"), error("illegal base64 data at input byte 2"));
        assert_eq!(parse("abcde"), error("illegal base64 data at input byte 4"));
        assert_eq!(parse("YWI="), error("illegal base64 data at input byte 3"));
        assert_eq!(
            ContinueToken::parse(&"a".repeat(MAX_LENGTH + 1), ""),
            Err(ContinueTokenError::TooLong)
        );
    }

    proptest! {
        #[test]
        fn a_token_is_parsed_as_it_was_encoded(
            revision in proptest::option::of(1_u64..1 << 60),
            start in "[a-z0-9.-]{1,9}(/[a-z0-9-]{1,9})?\u{0}",
            preceding in proptest::option::of(any::<usize>()),
        ) {
            prop_assume!(!start.split('/').any(|part| matches!(part, "." | "..")));
            let token = ContinueToken { revision, start, preceding };
            let text = token.encode("widgets.example.dev/");
            prop_assert_eq!(ContinueToken::parse(&text, "widgets.example.dev/"), Ok(token));
            prop_assert_eq!(ContinueToken::parse(&text, "secrets/"), Err(ContinueTokenError::OtherList));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,64}", bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            for text in [text, BASE64.encode(&bytes)] {
                if let Ok(token) = ContinueToken::parse(&text, "") {
                    prop_assert!(!token.start.is_empty());
                }
            }
        }
    }
}

//! Parsers for the responses of providers: tokens, keys and error messages. The input is untrusted. Pure.

mod aws;

pub use aws::{AwsKeys, assumed_keys, metadata_keys};
use aws::{element, unescaped};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;
use sluice_runtime::redact::Secret;

/// Maximum size of a response, in bytes.
pub(crate) const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// Maximum size of a token, in bytes; it must fit into a header.
const MAX_TOKEN_BYTES: usize = 64 * 1024;

/// An error in a response. Contains no content of the response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// The response has another format.
    #[error("invalid {error} (line {line}, column {column})")]
    Form {
        /// JSON or XML.
        error: &'static str,
        /// Line of the error.
        line: usize,
        /// Column of the error.
        column: usize,
    },
    /// A value is missing or empty.
    #[error("missing {0}")]
    Missing(&'static str),
    /// A value is invalid.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// The metadata service reports a failure.
    #[error("code is not Success")]
    Code,
}

/// An access token with its expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessToken {
    /// The token.
    pub token: Secret<String>,
    /// The time of expiry.
    pub expires: Timestamp,
}

/// Parses an installation token: `{"token": …, "expires_at": …}`.
///
/// # Errors
/// The response has another format.
pub fn installation_token(body: &[u8]) -> Result<AccessToken, ResponseError> {
    #[derive(Deserialize)]
    struct Body {
        #[serde(default)]
        token: String,
        #[serde(default)]
        expires_at: String,
    }
    let Body { token, expires_at } = json(body)?;
    Ok(AccessToken {
        token: header_value(token, "token")?,
        expires: time(&expires_at, "expires_at")?,
    })
}

/// Parses an installation's id: `{"id": …}`.
///
/// # Errors
/// The response has another format.
pub fn installation_id(body: &[u8]) -> Result<u64, ResponseError> {
    #[derive(Deserialize)]
    struct Body {
        id: Option<u64>,
    }
    json::<Body>(body)?.id.ok_or(ResponseError::Missing("id"))
}

/// Parses an Entra token from the token endpoint or the metadata service: `{"access_token": …, "expires_in": …}`. The
/// number may be a string.
///
/// # Errors
/// The response has another format.
pub fn entra_token(body: &[u8], now: Timestamp) -> Result<AccessToken, ResponseError> {
    #[derive(Deserialize)]
    struct Body {
        #[serde(default)]
        access_token: String,
        #[serde(default)]
        expires_in: Value,
    }
    let body: Body = json(body)?;
    let seconds = match &body.expires_in {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => return Err(ResponseError::Missing("expires_in")),
    };
    let expires = seconds
        .and_then(|seconds| now.checked_add(SignedDuration::from_secs(seconds)).ok())
        .ok_or(ResponseError::Malformed("expires_in"))?;
    Ok(AccessToken {
        token: header_value(body.access_token, "access_token")?,
        expires,
    })
}

/// Parses the first line of a plain text response: a metadata session or the name of a role.
///
/// # Errors
/// The line is empty or not plain text.
pub fn first_line(body: &[u8]) -> Result<Secret<String>, ResponseError> {
    let first = body.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let text = std::str::from_utf8(first).map_err(|_| ResponseError::Malformed("first line"))?;
    header_value(text.trim().to_owned(), "first line")
}

/// Returns the error message of a failed response: the vendors' `message`, `error_description` or `Message`, or an
/// empty text. The caller limits its length and redacts secrets.
#[must_use]
pub fn error_message(body: &[u8]) -> String {
    if let Ok(Value::Object(fields)) = serde_json::from_slice(body) {
        let message = ["message", "error_description", "Message", "error"]
            .into_iter()
            .find_map(|name| fields.get(name)?.as_str());
        return message.unwrap_or_default().to_owned();
    }
    let text = String::from_utf8_lossy(body);
    element(&text, "Message").map(unescaped).unwrap_or_default()
}

fn json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ResponseError> {
    // The parser's message may contain a value.
    serde_json::from_slice(body).map_err(|error| ResponseError::Form {
        error: "JSON",
        line: error.line(),
        column: error.column(),
    })
}

fn time(text: &str, name: &'static str) -> Result<Timestamp, ResponseError> {
    if text.is_empty() {
        return Err(ResponseError::Missing(name));
    }
    text.parse().map_err(|_| ResponseError::Malformed(name))
}

/// Checks that a value can be used in a header.
fn header_value(value: String, name: &'static str) -> Result<Secret<String>, ResponseError> {
    if value.is_empty() {
        return Err(ResponseError::Missing(name));
    }
    if value.len() > MAX_TOKEN_BYTES || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(ResponseError::Malformed(name));
    }
    Ok(Secret::new(value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STS: &str = r#"<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
      <AssumeRoleWithWebIdentityResult>
        <CredentialsOfNobody><AccessKeyId>wrong</AccessKeyId></CredentialsOfNobody>
        <Credentials>
          <SessionToken>a&amp;lt;b==</SessionToken>
          <SecretAccessKey>sec/ret+</SecretAccessKey>
          <Expiration>2026-01-02T03:04:05Z</Expiration>
          <AccessKeyId>ASIA1</AccessKeyId>
        </Credentials>
      </AssumeRoleWithWebIdentityResult>
    </AssumeRoleWithWebIdentityResponse>"#;

    #[test]
    fn valid_responses_are_parsed() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let granted =
            installation_token(br#"{"token":"ghs_x","expires_at":"2026-01-02T03:04:05Z","more":[1]}"#);
        assert_eq!(granted.unwrap().expires, now);
        assert_eq!(installation_id(br#"{"id":77,"account":{"id":1}}"#), Ok(77));
        for body in [
            r#"{"access_token":"t","expires_in":60}"#,
            r#"{"access_token":"t","expires_in":"60"}"#,
        ] {
            let granted = entra_token(body.as_bytes(), now).unwrap();
            assert_eq!(granted.expires.as_second() - now.as_second(), 60);
        }
        let keys = assumed_keys(STS.as_bytes()).unwrap();
        assert_eq!(keys.access_key_id, "ASIA1");
        assert_eq!(keys.session_token.unwrap().expose(), "a&lt;b==");
        assert_eq!(keys.secret_access_key.expose(), "sec/ret+");
        assert_eq!(keys.expires, Some(now));
        let keys = metadata_keys(
            br#"{"Code":"Success","AccessKeyId":"A","SecretAccessKey":"S","Token":"T","Expiration":"2026-01-02T03:04:05Z"}"#,
        );
        assert_eq!(keys.unwrap().access_key_id, "A");
    }

    #[test]
    fn errors_of_invalid_responses_do_not_contain_their_content() {
        let now = Timestamp::UNIX_EPOCH;
        let error = |result: Result<(), ResponseError>| result.unwrap_err().to_string();
        for (message, expected) in [
            (error(installation_token(b"hunter2").map(drop)), "invalid JSON"),
            (
                error(installation_token(br#"{"token":{"a":"hunter2"}}"#).map(drop)),
                "invalid JSON",
            ),
            (
                error(installation_token(br#"{"expires_at":"hunter2"}"#).map(drop)),
                "missing token",
            ),
            (
                error(installation_token(br#"{"token":"hunter2","expires_at":"hunter2"}"#).map(drop)),
                "malformed expires_at",
            ),
            (
                error(
                    installation_token(br#"{"token":"hunter2\n","expires_at":"2026-01-02T03:04:05Z"}"#)
                        .map(drop),
                ),
                "malformed token",
            ),
            (
                error(installation_id(br#"{"id":"hunter2"}"#).map(drop)),
                "invalid JSON",
            ),
            (
                error(entra_token(br#"{"access_token":"hunter2"}"#, now).map(drop)),
                "missing expires_in",
            ),
            (
                error(
                    entra_token(br#"{"access_token":"hunter2","expires_in":99999999999999}"#, now).map(drop),
                ),
                "malformed expires_in",
            ),
            (
                error(assumed_keys(b"<Credentials>hunter2").map(drop)),
                "missing Credentials",
            ),
            (
                error(assumed_keys(b"<Credentials>hunter2</Credentials>").map(drop)),
                "missing SecretAccessKey",
            ),
            (
                error(metadata_keys(br#"{"Code":"hunter2"}"#).map(drop)),
                "code is not Success",
            ),
        ] {
            assert!(message.starts_with(expected), "{message} / {expected}");
            assert!(!message.contains("hunter2"), "{message}");
        }
    }

    #[test]
    fn error_messages_of_all_vendors_are_found() {
        for (body, expected) in [
            (
                r#"{"message":"Bad credentials","documentation_url":"x"}"#,
                "Bad credentials",
            ),
            (
                r#"{"error":"invalid_client","error_description":"AADSTS700016: no"}"#,
                "AADSTS700016: no",
            ),
            (
                "<ErrorResponse><Error><Code>AccessDenied</Code><Message>Not &lt;you&gt;</Message></Error>",
                "Not <you>",
            ),
            ("<html>nothing", ""),
            ("[1]", ""),
        ] {
            assert_eq!(error_message(body.as_bytes()), expected);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(body in prop::collection::vec(any::<u8>(), 0..512)) {
            let _ = installation_token(&body);
            let _ = installation_id(&body);
            let _ = entra_token(&body, Timestamp::UNIX_EPOCH);
            let _ = metadata_keys(&body);
            let _ = assumed_keys(&body);
            let _ = error_message(&body);
        }

        #[test]
        fn no_shuffled_xml_panics(parts in prop::collection::vec(
            prop::sample::select(vec!["<", ">", "</", "Credentials", "AccessKeyId", "&amp;", " ", "é", "x"]), 0..60)
        ) {
            let text = parts.concat();
            let _ = assumed_keys(text.as_bytes());
            let _ = error_message(text.as_bytes());
        }

        #[test]
        fn every_parsed_token_is_a_valid_header_value(token in "\\PC{0,40}") {
            let body = serde_json::json!({ "token": token, "expires_at": "2026-01-02T03:04:05Z" }).to_string();
            if let Ok(granted) = installation_token(body.as_bytes()) {
                prop_assert!(http::HeaderValue::try_from(granted.token.expose().as_str()).is_ok());
            }
        }
    }
}

//! What providers answer: tokens, keys and complaints, read from bytes that anybody may have sent. Pure.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;
use sluice_runtime::redact::Secret;

/// Most bytes of an answer that are read.
pub const LONGEST: usize = 1 << 20;
/// Most bytes of a token; it has to fit into a header.
const LONGEST_TOKEN: usize = 64 * 1024;

/// An answer that does not hold what was asked for. Says nothing of what it holds instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// Not of the form that was agreed on.
    #[error("it is no {form} of the agreed form (line {line}, column {column})")]
    Form {
        /// JSON or XML.
        form: &'static str,
        /// Where it is not.
        line: usize,
        /// Where it is not.
        column: usize,
    },
    /// A part is missing or empty.
    #[error("it has no {0}")]
    Missing(&'static str),
    /// A part that cannot be what it should be.
    #[error("its {0} is malformed")]
    Malformed(&'static str),
    /// The metadata service says that it has nothing to give.
    #[error("its code is not Success")]
    Code,
}

/// A token and the end of its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The token.
    pub token: Secret<String>,
    /// Until when it is good.
    pub expires: Timestamp,
}

/// Keys that requests to AWS are signed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Names the key; not secret.
    pub access_key_id: String,
    /// What is signed with.
    pub secret_access_key: Secret<String>,
    /// Goes with keys that end.
    pub session_token: Option<Secret<String>>,
    /// Until when they are good; absent for keys that do not end.
    pub expires: Option<Timestamp>,
}

/// The token of an installation: `{"token": …, "expires_at": …}`.
///
/// # Errors
/// The answer is of another form.
pub fn installation_token(body: &[u8]) -> Result<Grant, AnswerError> {
    #[derive(Deserialize)]
    struct Body {
        #[serde(default)]
        token: String,
        #[serde(default)]
        expires_at: String,
    }
    let Body { token, expires_at } = json(body)?;
    Ok(Grant {
        token: sendable(token, "token")?,
        expires: time(&expires_at, "expires_at")?,
    })
}

/// The number of an installation: `{"id": …}`.
///
/// # Errors
/// The answer is of another form.
pub fn installation_id(body: &[u8]) -> Result<u64, AnswerError> {
    #[derive(Deserialize)]
    struct Body {
        id: Option<u64>,
    }
    json::<Body>(body)?.id.ok_or(AnswerError::Missing("id"))
}

/// A token of Entra, from its token endpoint or the metadata service: `{"access_token": …, "expires_in": …}`, the
/// number perhaps written as text.
///
/// # Errors
/// The answer is of another form.
pub fn entra_token(body: &[u8], now: Timestamp) -> Result<Grant, AnswerError> {
    #[derive(Deserialize)]
    struct Body {
        #[serde(default)]
        access_token: String,
        #[serde(default)]
        expires_in: Value,
    }
    let Body {
        access_token,
        expires_in,
    } = json(body)?;
    let seconds = match &expires_in {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => return Err(AnswerError::Missing("expires_in")),
    };
    let expires = seconds
        .and_then(|seconds| now.checked_add(SignedDuration::from_secs(seconds)).ok())
        .ok_or(AnswerError::Malformed("expires_in"))?;
    Ok(Grant {
        token: sendable(access_token, "access_token")?,
        expires,
    })
}

/// Keys as container and instance metadata give them: `{"AccessKeyId": …, "SecretAccessKey": …, "Token": …,
/// "Expiration": …}`, with `"Code": "Success"` if there is a code.
///
/// # Errors
/// The answer is of another form, or says that there are none.
pub fn metadata_keys(body: &[u8]) -> Result<Keys, AnswerError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Body {
        code: Option<String>,
        #[serde(default)]
        access_key_id: String,
        #[serde(default)]
        secret_access_key: String,
        #[serde(default)]
        token: String,
        #[serde(default)]
        expiration: String,
    }
    let body: Body = json(body)?;
    if body.code.is_some_and(|code| code != "Success") {
        return Err(AnswerError::Code);
    }
    keys(
        body.access_key_id,
        body.secret_access_key,
        body.token,
        &body.expiration,
    )
}

/// Keys as STS gives them, in the `Credentials` element of its XML.
///
/// # Errors
/// The answer is of another form.
pub fn assumed_keys(body: &[u8]) -> Result<Keys, AnswerError> {
    let text = std::str::from_utf8(body).map_err(|_| AnswerError::Form {
        form: "XML",
        line: 0,
        column: 0,
    })?;
    let credentials = element(text, "Credentials").ok_or(AnswerError::Missing("Credentials"))?;
    let part = |name| element(credentials, name).map(unescaped).unwrap_or_default();
    keys(
        part("AccessKeyId"),
        part("SecretAccessKey"),
        part("SessionToken"),
        &part("Expiration"),
    )
}

/// The first line of a plain text: a session of the metadata service, the name of a role.
///
/// # Errors
/// It is empty or no plain text.
pub fn line(body: &[u8]) -> Result<Secret<String>, AnswerError> {
    let first = body.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let text = std::str::from_utf8(first).map_err(|_| AnswerError::Malformed("first line"))?;
    sendable(text.trim().to_owned(), "first line")
}

/// What an answer that is no success says for itself: the text that the vendors put into `message`,
/// `error_description` or `Message`, or nothing. The caller bounds it and takes its own secrets out.
#[must_use]
pub fn complaint(body: &[u8]) -> String {
    if let Ok(Value::Object(fields)) = serde_json::from_slice(body) {
        let said = ["message", "error_description", "Message", "error"]
            .into_iter()
            .find_map(|name| fields.get(name)?.as_str());
        return said.unwrap_or_default().to_owned();
    }
    let text = String::from_utf8_lossy(body);
    element(&text, "Message").map(unescaped).unwrap_or_default()
}

fn keys(id: String, secret: String, token: String, expiration: &str) -> Result<Keys, AnswerError> {
    let secret = sendable(secret, "SecretAccessKey")?;
    let token = sendable(token, "session token")?;
    Ok(Keys {
        access_key_id: sendable(id, "AccessKeyId")?.into_inner(),
        secret_access_key: secret,
        session_token: Some(token),
        expires: Some(time(expiration, "Expiration")?),
    })
}

fn json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, AnswerError> {
    // The parser's own text may repeat a value.
    serde_json::from_slice(body).map_err(|error| AnswerError::Form {
        form: "JSON",
        line: error.line(),
        column: error.column(),
    })
}

fn time(text: &str, name: &'static str) -> Result<Timestamp, AnswerError> {
    if text.is_empty() {
        return Err(AnswerError::Missing(name));
    }
    text.parse().map_err(|_| AnswerError::Malformed(name))
}

/// A value that can stand in a header as it is. One that cannot would silently not be sent.
fn sendable(value: String, name: &'static str) -> Result<Secret<String>, AnswerError> {
    if value.is_empty() {
        return Err(AnswerError::Missing(name));
    }
    if value.len() > LONGEST_TOKEN || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(AnswerError::Malformed(name));
    }
    Ok(Secret::new(value))
}

/// What stands between the first `<name>` or `<name …>` and the `</name>` that follows. Enough of XML for answers whose
/// elements repeat no name inside themselves.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = text;
    loop {
        rest = &rest[rest.find('<')? + 1..];
        let Some(behind) = rest.strip_prefix(name) else {
            continue;
        };
        if !behind.starts_with(|c: char| c == '>' || c.is_ascii_whitespace()) {
            continue;
        }
        let content = &behind[behind.find('>')? + 1..];
        return Some(&content[..content.find(&format!("</{name}>"))?]);
    }
}

/// The five entities that XML has of its own.
fn unescaped(text: &str) -> String {
    let text = text.trim();
    if !text.contains('&') {
        return text.to_owned();
    }
    [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&amp;", "&"),
    ]
    .into_iter()
    .fold(text.to_owned(), |text, (entity, plain)| {
        text.replace(entity, plain)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    fn answers_of_the_agreed_forms_are_read() {
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
    fn other_answers_are_refused_and_not_repeated() {
        let now = Timestamp::UNIX_EPOCH;
        let form = |result: Result<(), AnswerError>| result.unwrap_err().to_string();
        for (said, wanted) in [
            (form(installation_token(b"hunter2").map(drop)), "it is no JSON"),
            (
                form(installation_token(br#"{"token":{"a":"hunter2"}}"#).map(drop)),
                "it is no JSON",
            ),
            (
                form(installation_token(br#"{"expires_at":"hunter2"}"#).map(drop)),
                "it has no token",
            ),
            (
                form(installation_token(br#"{"token":"hunter2","expires_at":"hunter2"}"#).map(drop)),
                "its expires_at is malformed",
            ),
            (
                form(
                    installation_token(br#"{"token":"hunter2\n","expires_at":"2026-01-02T03:04:05Z"}"#)
                        .map(drop),
                ),
                "its token is malformed",
            ),
            (
                form(installation_id(br#"{"id":"hunter2"}"#).map(drop)),
                "it is no JSON",
            ),
            (
                form(entra_token(br#"{"access_token":"hunter2"}"#, now).map(drop)),
                "it has no expires_in",
            ),
            (
                form(
                    entra_token(br#"{"access_token":"hunter2","expires_in":99999999999999}"#, now).map(drop),
                ),
                "its expires_in is malformed",
            ),
            (
                form(assumed_keys(b"<Credentials>hunter2").map(drop)),
                "it has no Credentials",
            ),
            (
                form(assumed_keys(b"<Credentials>hunter2</Credentials>").map(drop)),
                "it has no SecretAccessKey",
            ),
            (
                form(metadata_keys(br#"{"Code":"hunter2"}"#).map(drop)),
                "its code is not Success",
            ),
        ] {
            assert!(said.starts_with(wanted), "{said} / {wanted}");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }

    #[test]
    fn complaints_are_found_where_vendors_put_them() {
        for (body, wanted) in [
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
            assert_eq!(complaint(body.as_bytes()), wanted);
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
            let _ = complaint(&body);
        }

        #[test]
        fn no_shuffled_xml_panics(parts in prop::collection::vec(
            prop::sample::select(vec!["<", ">", "</", "Credentials", "AccessKeyId", "&amp;", " ", "é", "x"]), 0..60)
        ) {
            let text = parts.concat();
            let _ = assumed_keys(text.as_bytes());
            let _ = complaint(text.as_bytes());
        }

        #[test]
        fn whatever_is_granted_can_be_sent(token in "\\PC{0,40}") {
            let body = serde_json::json!({ "token": token, "expires_at": "2026-01-02T03:04:05Z" }).to_string();
            if let Ok(granted) = installation_token(body.as_bytes()) {
                prop_assert!(http::HeaderValue::try_from(granted.token.expose().as_str()).is_ok());
            }
        }
    }
}

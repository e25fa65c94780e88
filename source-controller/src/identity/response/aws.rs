//! The responses of AWS: keys in JSON from metadata, and in XML from STS.

use jiff::Timestamp;
use serde::Deserialize;
use sluice_runtime::redact::Secret;

use super::{ResponseError, header_value, json, time};

/// Keys for signing requests to AWS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwsKeys {
    /// The key's identifier; not secret.
    pub access_key_id: String,
    /// The signing key.
    pub secret_access_key: Secret<String>,
    /// The session token of temporary keys.
    pub session_token: Option<Secret<String>>,
    /// The time of expiry; `None` for permanent keys.
    pub expires: Option<Timestamp>,
}

/// Parses keys from container or instance metadata: `{"AccessKeyId": …, "SecretAccessKey": …, "Token": …, "Expiration":
/// …}`, with `"Code": "Success"` if there is a code.
///
/// # Errors
/// The response has another format or reports a failure.
pub fn metadata_keys(body: &[u8]) -> Result<AwsKeys, ResponseError> {
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
        return Err(ResponseError::Code);
    }
    keys(
        body.access_key_id,
        body.secret_access_key,
        body.token,
        &body.expiration,
    )
}

/// Parses keys from the `Credentials` element of an STS response in XML.
///
/// # Errors
/// The response has another format.
pub fn assumed_keys(body: &[u8]) -> Result<AwsKeys, ResponseError> {
    let text = std::str::from_utf8(body).map_err(|_| ResponseError::Form {
        error: "XML",
        line: 0,
        column: 0,
    })?;
    let credentials = element(text, "Credentials").ok_or(ResponseError::Missing("Credentials"))?;
    let part = |name| element(credentials, name).map(unescaped).unwrap_or_default();
    keys(
        part("AccessKeyId"),
        part("SecretAccessKey"),
        part("SessionToken"),
        &part("Expiration"),
    )
}

fn keys(id: String, secret: String, token: String, expiration: &str) -> Result<AwsKeys, ResponseError> {
    let secret = header_value(secret, "SecretAccessKey")?;
    let token = header_value(token, "session token")?;
    Ok(AwsKeys {
        access_key_id: header_value(id, "AccessKeyId")?.into_inner(),
        secret_access_key: secret,
        session_token: Some(token),
        expires: Some(time(expiration, "Expiration")?),
    })
}

/// Returns the text between the first `<name>` or `<name …>` and the next `</name>`. Sufficient for responses whose
/// elements do not nest within themselves.
pub(super) fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = text;
    loop {
        rest = &rest[rest.find('<')? + 1..];
        let Some(after) = rest.strip_prefix(name) else {
            continue;
        };
        if !after.starts_with(|c: char| c == '>' || c.is_ascii_whitespace()) {
            continue;
        }
        let content = &after[after.find('>')? + 1..];
        return Some(&content[..content.find(&format!("</{name}>"))?]);
    }
}

/// Resolves the five predefined XML entities.
pub(super) fn unescaped(text: &str) -> String {
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

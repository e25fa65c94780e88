//! One request to a provider: no redirections, a bounded answer, and errors that repeat no secret.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use sluice_runtime::failure::chain;
use sluice_runtime::redact::Secret;
use url::Url;

use super::answer::{self, AnswerError, LONGEST};
use super::error::TokenError;
pub(super) use crate::git::Pool;
use crate::git::Said;
use crate::git::protocol::remote_text;

/// Who is asking, for the operators of the other side.
const AGENT: &str = concat!("sluice/", env!("CARGO_PKG_VERSION"));
/// Longest time that an endpoint of the own machine may take: where there is none, nothing answers at all.
const METADATA_LIMIT: Duration = Duration::from_secs(5);
/// `Retry-After` is believed within these bounds, in seconds.
const WAIT: std::ops::RangeInclusive<u64> = 1..=3600;
/// 429 without a number means this, in seconds.
const USUAL_WAIT: u64 = 60;

/// A request that is being put together.
pub(super) struct Call {
    what: &'static str,
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Bytes,
    secrets: Vec<Secret<String>>,
}

/// An answer that has come in whole.
pub(super) struct Answer {
    /// Who answered.
    pub(super) host: String,
    /// With what.
    pub(super) status: StatusCode,
    /// Its text.
    pub(super) body: Bytes,
    what: &'static str,
}

impl Call {
    /// A request to do `what`, which errors repeat.
    pub(super) fn new(method: Method, url: Url, what: &'static str) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        Self {
            what,
            method,
            url,
            headers,
            body: Bytes::new(),
            secrets: Vec::new(),
        }
    }

    /// With a header that is no secret.
    pub(super) fn header(mut self, name: HeaderName, value: &'static str) -> Self {
        self.headers.insert(name, HeaderValue::from_static(value));
        self
    }

    /// With a header that is one. A value that cannot stand in a header is left out, and the other side says so.
    pub(super) fn secret(mut self, name: HeaderName, scheme: &str, value: &Secret<String>) -> Self {
        if let Ok(mut header) = HeaderValue::try_from(format!("{scheme}{}", value.expose())) {
            header.set_sensitive(true);
            self.headers.insert(name, header);
        }
        self.secrets.push(value.clone());
        self
    }

    /// With a bearer token.
    pub(super) fn bearer(self, token: &Secret<String>) -> Self {
        self.secret(AUTHORIZATION, "Bearer ", token)
    }

    /// With a form; `hidden` is a value in it that is a secret.
    pub(super) fn form(mut self, pairs: &[(&str, &str)], hidden: &Secret<String>) -> Self {
        let form = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(pairs)
            .finish();
        self.headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-www-form-urlencoded"),
        );
        self.body = Bytes::from(form);
        self.secrets.push(hidden.clone());
        self
    }

    /// Sends it and waits for the whole answer, whatever its status.
    ///
    /// # Errors
    /// No connection, or one that broke; an answer that is too long; a request to come back later.
    pub(super) async fn send(self, pool: &Pool) -> Result<(Answer, Vec<Secret<String>>), TokenError> {
        let host = host(&self.url);
        let broken = |why: String| TokenError::Connection {
            host: host.clone(),
            why,
        };
        let mut request = Request::new(Full::new(self.body));
        *request.method_mut() = self.method;
        *request.uri_mut() = self
            .url
            .as_str()
            .parse()
            .map_err(|error| broken(format!("{error}")))?;
        *request.headers_mut() = self.headers;
        let response = pool
            .request(request)
            .await
            .map_err(|error| broken(chain(&error)))?;
        let status = response.status();
        if let Some(wait) = wait(status, response.headers()) {
            let status = status.as_u16();
            return Err(TokenError::Throttled { host, status, wait });
        }
        let body = Limited::new(response.into_body(), LONGEST).collect().await;
        let body = match body {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                return Err(TokenError::TooLong { host, limit: LONGEST });
            }
            Err(error) => return Err(broken(chain(error.as_ref()))),
        };
        let answer = Answer {
            host,
            status,
            body,
            what: self.what,
        };
        Ok((answer, self.secrets))
    }

    /// Sends it and insists on success.
    ///
    /// # Errors
    /// As [`Call::send`]; or the answer is no success.
    pub(super) async fn succeed(self, pool: &Pool) -> Result<Answer, TokenError> {
        let (answer, secrets) = self.send(pool).await?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        Err(answer.refused(&secrets))
    }

    /// Like [`Call::succeed`], with an endpoint that is near or not there at all.
    ///
    /// # Errors
    /// As [`Call::succeed`]; or nothing answers soon.
    pub(super) async fn succeed_nearby(self, pool: &Pool) -> Result<Answer, TokenError> {
        let host = host(&self.url);
        let limit = METADATA_LIMIT;
        tokio::time::timeout(limit, self.succeed(pool))
            .await
            .map_err(|_| TokenError::NoAnswer { host, limit })?
    }
}

impl Answer {
    /// As the error that says that it is no success.
    pub(super) fn refused(&self, secrets: &[Secret<String>]) -> TokenError {
        let said = answer::complaint(&self.body);
        let said = secrets
            .iter()
            .filter(|secret| !secret.expose().is_empty())
            .fold(said, |said, secret| said.replace(secret.expose(), "***"));
        TokenError::Refused {
            host: self.host.clone(),
            what: self.what,
            status: self.status.as_u16(),
            said: Said(remote_text(said.as_bytes())),
        }
    }

    /// What a parser reads in it.
    ///
    /// # Errors
    /// The parser finds something else.
    pub(super) fn read<T>(
        &self,
        parse: impl FnOnce(&[u8]) -> Result<T, AnswerError>,
    ) -> Result<T, TokenError> {
        parse(&self.body).map_err(|source| TokenError::Answer {
            host: self.host.clone(),
            what: self.what,
            source,
        })
    }
}

/// How long the other side asks to wait: 429 always does, 403 and 503 if they say so.
fn wait(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let asked = match status {
        StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::FORBIDDEN | StatusCode::SERVICE_UNAVAILABLE => after.is_some(),
        _ => false,
    };
    let seconds = || after.and_then(|text| text.trim().parse().ok());
    asked.then(|| Duration::from_secs(seconds().unwrap_or(USUAL_WAIT).clamp(*WAIT.start(), *WAIT.end())))
}

/// Host and port as written in a URL.
pub(super) fn host(url: &Url) -> String {
    let name = url.host_str().unwrap_or_default();
    url.port()
        .map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"))
}

/// An endpoint's address from where somebody set it.
///
/// # Errors
/// It is no URL of http or https with a host.
pub(super) fn endpoint(name: &'static str, text: &str) -> Result<Url, TokenError> {
    let bad = |why: String| TokenError::Endpoint { name, why };
    let url = Url::parse(text).map_err(|error| bad(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(bad(
            "it must begin with http:// or https:// and name a host".to_owned()
        ));
    }
    Ok(url)
}

/// An address below an endpoint: its path, then these segments, each encoded. The segments are what others wrote.
pub(super) fn below<'a>(endpoint: &Url, segments: impl IntoIterator<Item = &'a str>) -> Url {
    let mut url = endpoint.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(segments);
    }
    url.set_query(None);
    url.set_fragment(None);
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_below_an_endpoint_stays_below_it() {
        for (endpoint, segments, wanted) in [
            ("https://h", &["a", "b"][..], "https://h/a/b"),
            ("https://h/api/v3/", &["orgs", "o"][..], "https://h/api/v3/orgs/o"),
            (
                "https://h/api/v3?x#y",
                &["a/../b?c"][..],
                "https://h/api/v3/a%2F..%2Fb%3Fc",
            ),
        ] {
            let url = Url::parse(endpoint).unwrap();
            assert_eq!(below(&url, segments.iter().copied()).as_str(), wanted);
        }
    }

    #[test]
    fn an_endpoint_is_an_address_of_http() {
        assert!(endpoint("X", "http://127.0.0.1:1").is_ok());
        for bad in ["", "sts", "ftp://h", "file:///x", "data:x"] {
            assert!(endpoint("X", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_provider_may_ask_to_wait() {
        for (status, after, wanted) in [
            (429, None, Some(60)),
            (429, Some("5"), Some(5)),
            (403, Some("7"), Some(7)),
            (403, None, None),
            (503, Some("999999"), Some(3600)),
            (500, Some("5"), None),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(after) = after {
                headers.insert(RETRY_AFTER, HeaderValue::from_static(after));
            }
            let found = wait(StatusCode::from_u16(status).unwrap(), &headers);
            assert_eq!(found.map(|wait| wait.as_secs()), wanted, "{status} {after:?}");
        }
    }
}

//! HTTP requests to providers: without redirects, with bounded responses, and with redacted errors.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use jiff::Timestamp;
use kube::Client;
use sluice_runtime::failure::chain;
use sluice_runtime::redact::Secret;
use url::Url;

use super::error::TokenError;
use super::response::{self, MAX_RESPONSE_BYTES, ResponseError};
pub(super) use crate::git::Pool;
use crate::git::ServerMessage;
use crate::git::protocol::sanitize_text;

/// User agent of all requests.
const CLIENT_NAME: &str = concat!("sluice/", env!("CARGO_PKG_VERSION"));
/// Time limit for metadata endpoints: without such a service, connections hang.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Accepted range of `Retry-After`, in seconds.
const RETRY_AFTER_RANGE: std::ops::RangeInclusive<u64> = 1..=3600;
/// Wait after 429 without `Retry-After`, in seconds.
const DEFAULT_RETRY_AFTER: u64 = 60;

/// Connections and start time of a token exchange. Cheap to clone, so that an exchange may outlive its reconciliation.
#[derive(Clone)]
pub(super) struct ExchangeContext {
    /// Connections to providers, with the object's proxy and CA, if any.
    pub(super) pool: Pool,
    /// Connections to local endpoints, without a proxy.
    pub(super) local_pool: Pool,
    /// Client for the Kubernetes API, for ServiceAccount tokens.
    pub(super) kube: Client,
    /// Start of the exchange.
    pub(super) now: Timestamp,
}

/// A request under construction.
pub(super) struct ProviderRequest {
    what: &'static str,
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Bytes,
    secrets: Vec<Secret<String>>,
}

/// A complete response.
pub(super) struct Response {
    /// The responding host.
    pub(super) host: String,
    /// The HTTP status.
    pub(super) status: StatusCode,
    /// The body.
    pub(super) body: Bytes,
    what: &'static str,
}

impl ProviderRequest {
    /// Creates a request; `what` describes the operation in errors.
    pub(super) fn new(method: Method, url: Url, what: &'static str) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static(CLIENT_NAME));
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

    /// Adds a header that is not secret.
    pub(super) fn header(mut self, name: HeaderName, value: &'static str) -> Self {
        self.headers.insert(name, HeaderValue::from_static(value));
        self
    }

    /// Adds a secret header. A value that is not valid in a header is omitted; the provider then refuses the request.
    pub(super) fn secret(mut self, name: HeaderName, scheme: &str, value: &Secret<String>) -> Self {
        if let Ok(mut header) = HeaderValue::try_from(format!("{scheme}{}", value.expose())) {
            header.set_sensitive(true);
            self.headers.insert(name, header);
        }
        self.secrets.push(value.clone());
        self
    }

    /// Adds a bearer token.
    pub(super) fn bearer(self, token: &Secret<String>) -> Self {
        self.secret(AUTHORIZATION, "Bearer ", token)
    }

    /// Sets a form body; `hidden` is the secret value in it.
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

    /// Sends the request and returns the complete response, whatever its status.
    ///
    /// # Errors
    /// The connection fails, the response is too long, or the provider asks to wait.
    pub(super) async fn send_any_status(
        self,
        pool: &Pool,
    ) -> Result<(Response, Vec<Secret<String>>), TokenError> {
        let host = host(&self.url);
        let failed = |why: String| TokenError::Connection {
            host: host.clone(),
            why,
        };
        let mut request = Request::new(Full::new(self.body));
        *request.method_mut() = self.method;
        *request.uri_mut() = self
            .url
            .as_str()
            .parse()
            .map_err(|error| failed(format!("{error}")))?;
        *request.headers_mut() = self.headers;
        let response = pool
            .request(request)
            .await
            .map_err(|error| failed(chain(&error)))?;
        let status = response.status();
        if let Some(wait) = retry_after(status, response.headers()) {
            let status = status.as_u16();
            return Err(TokenError::Throttled { host, status, wait });
        }
        let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES)
            .collect()
            .await;
        let body = match body {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                return Err(TokenError::TooLong {
                    host,
                    limit: MAX_RESPONSE_BYTES,
                });
            }
            Err(error) => return Err(failed(chain(error.as_ref()))),
        };
        let response = Response {
            host,
            status,
            body,
            what: self.what,
        };
        Ok((response, self.secrets))
    }

    /// Sends the request and requires a success status.
    ///
    /// # Errors
    /// As [`ProviderRequest::send_any_status`], or the status is not a success.
    pub(super) async fn send(self, pool: &Pool) -> Result<Response, TokenError> {
        let (response, secrets) = self.send_any_status(pool).await?;
        if response.status.is_success() {
            return Ok(response);
        }
        Err(response.to_error(&secrets))
    }

    /// Like [`ProviderRequest::send`], but for a local endpoint that may not exist.
    ///
    /// # Errors
    /// As [`ProviderRequest::send`], or the endpoint does not respond in time.
    pub(super) async fn send_local(self, pool: &Pool) -> Result<Response, TokenError> {
        let host = host(&self.url);
        let limit = LOCAL_TIMEOUT;
        tokio::time::timeout(limit, self.send(pool))
            .await
            .map_err(|_| TokenError::NoAnswer { host, limit })?
    }
}

impl Response {
    /// Returns the error for an unsuccessful response.
    pub(super) fn to_error(&self, secrets: &[Secret<String>]) -> TokenError {
        let message = response::error_message(&self.body);
        let message = secrets
            .iter()
            .filter(|secret| !secret.expose().is_empty())
            .fold(message, |message, secret| message.replace(secret.expose(), "***"));
        TokenError::Refused {
            host: self.host.clone(),
            what: self.what,
            status: self.status.as_u16(),
            said: ServerMessage(sanitize_text(message.as_bytes())),
        }
    }

    /// Parses the body.
    ///
    /// # Errors
    /// The parser fails.
    pub(super) fn read<T>(
        &self,
        parse: impl FnOnce(&[u8]) -> Result<T, ResponseError>,
    ) -> Result<T, TokenError> {
        parse(&self.body).map_err(|source| TokenError::Response {
            host: self.host.clone(),
            what: self.what,
            source,
        })
    }
}

/// Returns how long the provider asks to wait: always after 429, with `Retry-After` also after 403 and 503.
fn retry_after(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let is_throttled = match status {
        StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::FORBIDDEN | StatusCode::SERVICE_UNAVAILABLE => after.is_some(),
        _ => false,
    };
    let seconds = || after.and_then(|text| text.trim().parse().ok());
    is_throttled.then(|| {
        Duration::from_secs(
            seconds()
                .unwrap_or(DEFAULT_RETRY_AFTER)
                .clamp(*RETRY_AFTER_RANGE.start(), *RETRY_AFTER_RANGE.end()),
        )
    })
}

/// Returns the host and port as written in a URL.
pub(super) fn host(url: &Url) -> String {
    let name = url.host_str().unwrap_or_default();
    url.port()
        .map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"))
}

/// Parses an endpoint's URL from a setting.
///
/// # Errors
/// Not an http or https URL with a host.
pub(super) fn endpoint(name: &'static str, text: &str) -> Result<Url, TokenError> {
    let invalid = |why: String| TokenError::Endpoint { name, why };
    let url = Url::parse(text).map_err(|error| invalid(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(invalid("// or https:// and name a host".to_owned()));
    }
    Ok(url)
}

/// Appends segments to an endpoint's path. Each segment is encoded, since its content is untrusted.
pub(super) fn join_path<'a>(endpoint: &Url, segments: impl IntoIterator<Item = &'a str>) -> Url {
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
    fn a_joined_path_stays_below_its_endpoint() {
        for (endpoint, segments, expected) in [
            ("https://h", &["a", "b"][..], "https://h/a/b"),
            ("https://h/api/v3/", &["orgs", "o"][..], "https://h/api/v3/orgs/o"),
            (
                "https://h/api/v3?x#y",
                &["a/../b?c"][..],
                "https://h/api/v3/a%2F..%2Fb%3Fc",
            ),
        ] {
            let url = Url::parse(endpoint).unwrap();
            assert_eq!(join_path(&url, segments.iter().copied()).as_str(), expected);
        }
    }

    #[test]
    fn an_endpoint_is_an_http_url() {
        assert!(endpoint("X", "http://127.0.0.1:1").is_ok());
        for invalid in ["", "sts", "ftp://h", "file:///x", "data:x"] {
            assert!(endpoint("X", invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn throttling_responses_are_detected() {
        for (status, after, expected) in [
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
            let found = retry_after(StatusCode::from_u16(status).unwrap(), &headers);
            assert_eq!(found.map(|wait| wait.as_secs()), expected, "{status} {after:?}");
        }
    }
}

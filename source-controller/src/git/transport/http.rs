//! Smart HTTP over pooled connections (`gitprotocol-http`).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, DATE, LOCATION, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, BodyStream, Full, Limited};
use hyper::body::Incoming;
use sluice_runtime::failure::chain;
use sluice_runtime::http::{Proxy, Route, Settings, TlsError};
use url::Url;

use super::super::address::host;
use super::super::error::{FetchError, ServerMessage};
use super::super::protocol::advertisement::{self, Capabilities};
use super::super::protocol::{AGENT, sanitize_text};
use super::super::remote::Remote;
use super::super::tls::Tls;
use super::packets::Packets;
use super::pools::{Pool, Pools};
use super::{redirect, tls_error};

/// Header with the protocol version.
const PROTOCOL_HEADER: &str = "git-protocol";
/// Maximum number of bytes that are read of an error page.
const MAX_ERROR_BODY_BYTES: usize = 4 * 1024;
/// Accepted range of `Retry-After`.
const RETRY_AFTER_RANGE: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_hours(1);
/// Delay for 429 without `Retry-After`, and for an invalid `Retry-After`.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_mins(1);

/// A repository after discovery.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Base URL of the commands: the address, or the target of its redirect.
    repository: Url,
    /// URL of the commands.
    upload_pack: Url,
    /// Whether credentials are sent: not after a redirect to another origin. They are read from the remote for each
    /// request, because they may be renewed.
    is_trusted: bool,
    /// Whether the server supports version 2. Requests to a server that does not never contain the header, so that the
    /// ref advertisement and the request that refers to it have the same version.
    supports_v2: bool,
}

/// Pooled connections for http and https.
pub(super) struct Http {
    pools: Pools,
}

impl Http {
    /// Creates the pools without connections.
    pub(super) fn new(settings: &Settings) -> Result<Self, TlsError> {
        Ok(Self {
            pools: Pools::new(settings)?,
        })
    }

    /// Returns the pool for these settings.
    pub(super) fn pool(&self, tls: &Arc<Tls>, proxy: Option<&Arc<Proxy>>) -> Result<Pool, TlsError> {
        self.pools.get(tls, proxy)
    }

    /// Returns the route of requests without their own proxy.
    pub(super) const fn route(&self) -> &Route {
        self.pools.route()
    }

    /// Sends one command and returns the packets of its response.
    pub(super) async fn command(
        &self,
        remote: &Remote,
        target: &Target,
        body: Bytes,
    ) -> Result<Packets, FetchError> {
        let url = &target.upload_pack;
        let mut headers = target.headers(remote);
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-git-upload-pack-request"),
        );
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/x-git-upload-pack-result"),
        );
        let response = self
            .send(remote, target.is_trusted, Method::POST, url, headers, body)
            .await?;
        if response.status().is_redirection() {
            let why = "a command was redirected; only the first request may be".to_owned();
            return Err(FetchError::Redirect {
                url: remote.address.to_string(),
                why,
            });
        }
        let response = check_status(remote, url, target.is_trusted, response).await?;
        let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if kind != Some(b"application/x-git-upload-pack-result") {
            let why = format!("content type '{}'", sanitize_text(kind.unwrap_or_default()));
            return Err(FetchError::Protocol { host: host(url), why });
        }
        Ok(Packets::new(body_chunks(response.into_body()), host(url)))
    }

    /// Requests the ref advertisement of a server that supports only an older version.
    pub(super) async fn advertised_refs(
        &self,
        remote: &Remote,
        target: &Target,
    ) -> Result<Packets, FetchError> {
        let url = redirect::info_refs_url(&target.repository);
        let headers = target.headers(remote);
        let response = self
            .send(
                remote,
                target.is_trusted,
                Method::GET,
                &url,
                headers,
                Bytes::new(),
            )
            .await?;
        let response = check_status(remote, &url, target.is_trusted, response).await?;
        Ok(Packets::new(body_chunks(response.into_body()), host(&url)))
    }

    /// Requests `info/refs` and follows redirects.
    pub(super) async fn discover(&self, remote: &Remote) -> Result<(Target, Capabilities), FetchError> {
        let refused = |why: String| FetchError::Redirect {
            url: remote.address.to_string(),
            why,
        };
        let mut url = redirect::info_refs_url(remote.address.url());
        let (mut authorization, mut is_trusted) = (remote.credentials.header(), true);
        for _ in 0..=redirect::MAX_REDIRECTS {
            let sent = request_headers(authorization.as_ref());
            let response = self
                .send(remote, is_trusted, Method::GET, &url, sent, Bytes::new())
                .await?;
            if let Some(location) = location(&response) {
                let next = redirect::follow(&url, &location).map_err(refused)?;
                if !redirect::is_same_origin(&url, &next) {
                    (authorization, is_trusted) = (None, false);
                }
                url = next;
                continue;
            }
            let repository = redirect::repository_url(&url).map_err(refused)?;
            let response = check_status(remote, &url, is_trusted, response).await?;
            let body = read_prefix(response.into_body(), advertisement::MAX_BYTES).await;
            let body = body.map_err(|why| FetchError::Connection {
                host: host(&url),
                why,
            })?;
            let capabilities = advertisement::parse(&body).map_err(|source| FetchError::Advertisement {
                url: remote.address.to_string(),
                source,
            })?;
            let supports_v2 = matches!(capabilities, Capabilities::V2(_));
            return Ok((Target::new(repository, is_trusted, supports_v2), capabilities));
        }
        Err(refused(format!(
            "more than {} times in a row",
            redirect::MAX_REDIRECTS
        )))
    }

    /// Adds the proxy of the connection to an error, since it may be the cause.
    fn with_proxy(&self, remote: &Remote, url: &Url, why: String) -> String {
        let proxy = match (&remote.proxy, url.as_str().parse()) {
            (Some(own), _) => Some(own.to_string()),
            (None, Ok(uri)) => self.route().proxy(&uri).map(|proxy| proxy.to_string()),
            (None, Err(_)) => None,
        };
        match proxy {
            Some(proxy) if !why.contains(&proxy) => format!("{why} (through the proxy {proxy})"),
            _ => why,
        }
    }

    /// Sends a request. A server that is not `is_trusted` receives neither credentials nor the client certificate.
    async fn send(
        &self,
        remote: &Remote,
        is_trusted: bool,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, FetchError> {
        let host = host(url);
        let broken = |why: String| FetchError::Connection {
            host: host.clone(),
            why,
        };
        let tls = if is_trusted || remote.tls.identity.is_none() {
            Arc::clone(&remote.tls)
        } else {
            Arc::new(remote.tls.without_identity())
        };
        let pool = self.pools.get(&tls, remote.proxy.as_ref());
        let pool = pool.map_err(|error| FetchError::Tls(chain(&error)))?;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut request = Request::new(Full::new(body.clone()));
            *request.method_mut() = method.clone();
            *request.uri_mut() = url.as_str().parse().map_err(|error| broken(format!("{error}")))?;
            *request.headers_mut() = headers.clone();
            match pool.request(request).await {
                Ok(response) => return Ok(response),
                // The server closed a pooled connection while the request was sent. All requests are read-only, so a
                // retry is safe.
                Err(error) if attempts == 1 && !error.is_connect() => {}
                Err(error) => {
                    let why = tls_error::describe(&error, &tls);
                    let why = why.unwrap_or_else(|| chain(&error));
                    return Err(broken(self.with_proxy(remote, url, why)));
                }
            }
        }
    }
}

/// Returns the target of a repository that is not redirected, at a server that supports version 2.
pub(super) fn assumed_target(remote: &Remote) -> Option<Target> {
    let repository = redirect::repository_url(&redirect::info_refs_url(remote.address.url()));
    Some(Target::new(repository.ok()?, true, true))
}

impl Target {
    fn new(repository: Url, is_trusted: bool, supports_v2: bool) -> Self {
        Self {
            upload_pack: redirect::upload_pack_url(&repository),
            repository,
            is_trusted,
            supports_v2,
        }
    }

    fn headers(&self, remote: &Remote) -> HeaderMap {
        let authorization = self.is_trusted.then(|| remote.credentials.header()).flatten();
        let mut headers = request_headers(authorization.as_ref());
        if !self.supports_v2 {
            headers.remove(PROTOCOL_HEADER);
        }
        headers
    }
}

fn request_headers(authorization: Option<&HeaderValue>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    headers.insert(PROTOCOL_HEADER, HeaderValue::from_static("version=2"));
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    if let Some(value) = authorization {
        headers.insert(AUTHORIZATION, value.clone());
    }
    headers
}

fn location(response: &Response<Incoming>) -> Option<String> {
    if !response.status().is_redirection() {
        return None;
    }
    Some(String::from_utf8_lossy(response.headers().get(LOCATION)?.as_bytes()).into_owned())
}

/// Maps every status except 200 to an error. `is_trusted` is whether credentials were sent to `url`, if there are any.
async fn check_status(
    remote: &Remote,
    url: &Url,
    is_trusted: bool,
    response: Response<Incoming>,
) -> Result<Response<Incoming>, FetchError> {
    let status = response.status();
    if status == StatusCode::OK {
        return Ok(response);
    }
    if let Some(wait) = retry_after(status, response.headers()) {
        return Err(FetchError::Throttled {
            host: remote.address.host(),
            status: status.as_u16(),
            wait,
            until: None,
        });
    }
    let page = read_prefix(response.into_body(), MAX_ERROR_BODY_BYTES)
        .await
        .unwrap_or_default();
    let mut message = ServerMessage(sanitize_text(&page));
    let refused = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    if refused && !is_trusted && remote.has_credentials() {
        let moved = redirect::repository_url(url).map_or_else(|_| host(url), |url| url.to_string());
        message = ServerMessage(format!(
            "the address redirects to '{moved}', to which the credentials were not sent: to send them there, \
             write that address into spec.url"
        ));
    }
    let url = remote.address.to_string();
    Err(match status {
        StatusCode::UNAUTHORIZED => FetchError::AuthenticationRequired { url, message },
        StatusCode::FORBIDDEN => FetchError::AuthorizationFailed { url, message },
        StatusCode::NOT_FOUND => FetchError::RepositoryNotFound { url, message },
        // Only a forwarding proxy returns this; a tunnel fails the connection.
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => FetchError::Status {
            url,
            status: status.as_u16(),
            message: ServerMessage(
                "the proxy requires a username and a password, or rejects the provided ones".to_owned(),
            ),
        },
        _ => FetchError::Status {
            url,
            status: status.as_u16(),
            message,
        },
    })
}

/// Returns the requested delay: always for 429, for 503 and 403 if `Retry-After` is set. A date is compared with the
/// server's own clock.
fn retry_after(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    match (status, after) {
        (StatusCode::TOO_MANY_REQUESTS, None) => return Some(DEFAULT_RETRY_AFTER),
        // GitHub uses 403 where others use 429.
        (
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::FORBIDDEN,
            Some(_),
        ) => {}
        _ => return None,
    }
    let after = after.unwrap_or_default().trim();
    let seconds = after.parse().ok().map(Duration::from_secs);
    let date = |text: &str| {
        jiff::fmt::rfc2822::DateTimeParser::new()
            .parse_timestamp(text)
            .ok()
    };
    let until = || {
        let now = date(headers.get(DATE)?.to_str().ok()?)?;
        Some(Duration::try_from(date(after)?.duration_since(now)).unwrap_or_default())
    };
    Some(
        seconds
            .or_else(until)
            .unwrap_or(DEFAULT_RETRY_AFTER)
            .clamp(*RETRY_AFTER_RANGE.start(), *RETRY_AFTER_RANGE.end()),
    )
}

/// Converts a body to a stream of chunks without trailers.
fn body_chunks(body: Incoming) -> impl Stream<Item = Result<Bytes, String>> + Send {
    BodyStream::new(body).filter_map(|frame| {
        std::future::ready(match frame {
            Ok(frame) => frame.into_data().ok().map(Ok),
            Err(error) => Some(Err(chain(&error))),
        })
    })
}

/// Reads the first `limit` bytes of a body.
async fn read_prefix(body: Incoming, limit: usize) -> Result<Vec<u8>, String> {
    let mut body = std::pin::pin!(Limited::new(body, limit));
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => return Ok(bytes),
            Err(error) => return Err(chain(error.as_ref())),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Status, headers, expected delay in seconds.
    type Case<'a> = (u16, &'a [(http::header::HeaderName, &'a str)], Option<u64>);

    #[test]
    fn retry_after_is_respected() {
        let wait_seconds = |status: u16, pairs: &[(http::header::HeaderName, &str)]| {
            let headers = pairs
                .iter()
                .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()));
            retry_after(StatusCode::from_u16(status).unwrap(), &headers.collect()).map(|wait| wait.as_secs())
        };
        let now = (DATE, "Sun, 06 Nov 1994 08:49:37 GMT");
        let cases: &[Case<'_>] = &[
            (429, &[], Some(60)),
            (429, &[(RETRY_AFTER, "7")], Some(7)),
            (429, &[(RETRY_AFTER, "0")], Some(1)),
            (429, &[(RETRY_AFTER, "99999999999")], Some(3600)),
            (429, &[(RETRY_AFTER, "soon")], Some(60)),
            (503, &[(RETRY_AFTER, "30")], Some(30)),
            (503, &[], None),
            (500, &[(RETRY_AFTER, "30")], None),
            (
                429,
                &[now.clone(), (RETRY_AFTER, "Sun, 06 Nov 1994 08:51:37 GMT")],
                Some(120),
            ),
            (
                429,
                &[now, (RETRY_AFTER, "Sun, 06 Nov 1994 08:00:00 GMT")],
                Some(1),
            ),
            (429, &[(RETRY_AFTER, "Sun, 06 Nov 1994 08:51:37 GMT")], Some(60)),
        ];
        for (status, headers, expected) in cases {
            assert_eq!(wait_seconds(*status, headers), *expected, "{status} {headers:?}");
        }
    }
}

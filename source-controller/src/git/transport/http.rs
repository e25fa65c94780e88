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
use super::super::error::{FetchError, Said};
use super::super::protocol::advertisement::{self, Capabilities};
use super::super::protocol::{AGENT, remote_text};
use super::super::remote::Remote;
use super::super::tls::Tls;
use super::answer::Packets;
use super::distrust;
use super::pools::{Pool, Pools};
use super::redirect;

/// Header that asks for a version of the protocol.
const PROTOCOL: &str = "git-protocol";
/// Bytes of an error page that are read.
const ERROR_PAGE: usize = 4 * 1024;
/// `Retry-After` is believed within these bounds.
const WAIT: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
/// Without a number in it, `Retry-After` and 429 mean this.
const USUAL_WAIT: Duration = Duration::from_secs(60);

/// A repository as its server presented it.
#[derive(Debug)]
pub(super) struct Place {
    /// Where commands go: the address, or where it redirected to.
    repository: Url,
    /// Whether credentials are shown there: not after a redirection to somebody else. Which ones is asked anew each
    /// time, because lent ones are renewed.
    trusted: bool,
    /// Whether version 2 is spoken there. A server that does not is never asked for it again, so that it cannot change
    /// its mind between a list of refs and the request that goes by it.
    version_2: bool,
}

/// Pooled connections for http and https.
pub(super) struct Http {
    pools: Pools,
}

impl Http {
    /// A pool without any connection yet.
    pub(super) fn new(settings: &Settings) -> Result<Self, TlsError> {
        Ok(Self {
            pools: Pools::new(settings)?,
        })
    }

    /// Connections on these terms.
    pub(super) fn pool(&self, tls: &Arc<Tls>, proxy: Option<&Arc<Proxy>>) -> Result<Pool, TlsError> {
        self.pools.get(tls, proxy)
    }

    /// Which way requests go that have no proxy of their own.
    pub(super) const fn route(&self) -> &Route {
        self.pools.route()
    }

    /// Sends one command and gives the packets of its answer.
    pub(super) async fn command(
        &self,
        remote: &Remote,
        place: &Place,
        body: Bytes,
    ) -> Result<Packets, FetchError> {
        let url = redirect::upload_pack(&place.repository);
        let mut headers = place.headers(remote);
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-git-upload-pack-request"),
        );
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/x-git-upload-pack-result"),
        );
        let response = self
            .send(remote, place.trusted, Method::POST, &url, headers, body)
            .await?;
        if response.status().is_redirection() {
            let why = "a command was redirected; only the first request may be".to_owned();
            return Err(FetchError::Redirect {
                url: remote.address.to_string(),
                why,
            });
        }
        let response = succeeded(remote, &url, place.trusted, response).await?;
        let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if kind != Some(b"application/x-git-upload-pack-result") {
            let why = format!("content type '{}'", remote_text(kind.unwrap_or_default()));
            return Err(FetchError::Answer {
                host: host(&url),
                why,
            });
        }
        let host = host(&url);
        Ok(Packets::new(pieces(response.into_body()), host))
    }

    /// The refs of a repository whose server speaks an older version.
    pub(super) async fn listing(&self, remote: &Remote, place: &Place) -> Result<Packets, FetchError> {
        let url = redirect::info_refs(&place.repository);
        let headers = place.headers(remote);
        let response = self
            .send(remote, place.trusted, Method::GET, &url, headers, Bytes::new())
            .await?;
        let response = succeeded(remote, &url, place.trusted, response).await?;
        Ok(Packets::new(pieces(response.into_body()), host(&url)))
    }

    /// `GET info/refs`, redirections followed.
    pub(super) async fn discover(&self, remote: &Remote) -> Result<(Place, Capabilities), FetchError> {
        let refused = |why: String| FetchError::Redirect {
            url: remote.address.to_string(),
            why,
        };
        let mut url = redirect::info_refs(remote.address.url());
        let (mut authorization, mut trusted) = (remote.credentials.header(), true);
        for _ in 0..=redirect::LONGEST_CHAIN {
            let sent = headers(authorization.as_ref());
            let response = self
                .send(remote, trusted, Method::GET, &url, sent, Bytes::new())
                .await?;
            if let Some(location) = location(&response) {
                let next = redirect::follow(&url, &location).map_err(refused)?;
                if !redirect::same_place(&url, &next) {
                    (authorization, trusted) = (None, false);
                }
                url = next;
                continue;
            }
            let repository = redirect::repository(&url).map_err(refused)?;
            let response = succeeded(remote, &url, trusted, response).await?;
            let body = beginning(response.into_body(), advertisement::LONGEST).await;
            let body = body.map_err(|why| FetchError::Connection {
                host: host(&url),
                why,
            })?;
            let capabilities = advertisement::parse(&body).map_err(|source| FetchError::Advertisement {
                url: remote.address.to_string(),
                source,
            })?;
            let place = Place {
                repository,
                trusted,
                version_2: matches!(capabilities, Capabilities::V2(_)),
            };
            return Ok((place, capabilities));
        }
        Err(refused(format!(
            "more than {} times in a row",
            redirect::LONGEST_CHAIN
        )))
    }

    /// Names the proxy that a connection went through, which may be the one to blame.
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

    /// Sends a request. A server that is not `trusted` with credentials sees no client certificate either.
    async fn send(
        &self,
        remote: &Remote,
        trusted: bool,
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
        let tls = if trusted || remote.tls.identity.is_none() {
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
                // A kept connection that the server closed while the request was on its way. Nothing here changes
                // anything at the server, so asking again is safe.
                Err(error) if attempts == 1 && !error.is_connect() => {}
                Err(error) => {
                    let why = distrust::explain(&error, &tls);
                    let why = why.unwrap_or_else(|| chain(&error));
                    return Err(broken(self.with_proxy(remote, url, why)));
                }
            }
        }
    }
}

impl Place {
    fn headers(&self, remote: &Remote) -> HeaderMap {
        let authorization = self.trusted.then(|| remote.credentials.header()).flatten();
        let mut headers = headers(authorization.as_ref());
        if !self.version_2 {
            headers.remove(PROTOCOL);
        }
        headers
    }
}

fn headers(authorization: Option<&HeaderValue>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    headers.insert(PROTOCOL, HeaderValue::from_static("version=2"));
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

/// Turns an answer that is no success into the error that says what it means.
/// `trusted` is whether credentials were shown at `url`, if there are any.
async fn succeeded(
    remote: &Remote,
    url: &Url,
    trusted: bool,
    response: Response<Incoming>,
) -> Result<Response<Incoming>, FetchError> {
    let status = response.status();
    if status == StatusCode::OK {
        return Ok(response);
    }
    if let Some(wait) = wait(status, response.headers()) {
        return Err(FetchError::Throttled {
            host: remote.address.host(),
            status: status.as_u16(),
            wait,
            until: None,
        });
    }
    let page = beginning(response.into_body(), ERROR_PAGE)
        .await
        .unwrap_or_default();
    let mut said = Said(remote_text(&page));
    let refused = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    if refused && !trusted && remote.has_credentials() {
        let moved = redirect::repository(url).map_or_else(|_| host(url), |url| url.to_string());
        said = Said(format!(
            "the address redirects to '{moved}', to which the credentials were not sent: if it is to be trusted with \
             them, write it into spec.url"
        ));
    }
    let url = remote.address.to_string();
    Err(match status {
        StatusCode::UNAUTHORIZED => FetchError::AuthenticationRequired { url, said },
        StatusCode::FORBIDDEN => FetchError::AuthorizationFailed { url, said },
        StatusCode::NOT_FOUND => FetchError::RepositoryNotFound { url, said },
        // Only a proxy that forwards says this; one with a tunnel fails the connection.
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => FetchError::Status {
            url,
            status: status.as_u16(),
            said: Said(
                "the proxy requires a username and a password, or refuses those it was given".to_owned(),
            ),
        },
        _ => FetchError::Status {
            url,
            status: status.as_u16(),
            said,
        },
    })
}

/// How long a server asks to wait: 429 always does, 503 if it says so. A date is compared with the server's own
/// clock.
fn wait(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    match (status, after) {
        (StatusCode::TOO_MANY_REQUESTS, None) => return Some(USUAL_WAIT),
        // GitHub says 403 where others say 429.
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
            .unwrap_or(USUAL_WAIT)
            .clamp(*WAIT.start(), *WAIT.end()),
    )
}

/// A body as pieces; its trailers are left out.
fn pieces(body: Incoming) -> impl Stream<Item = Result<Bytes, String>> + Send {
    BodyStream::new(body).filter_map(|frame| {
        std::future::ready(match frame {
            Ok(frame) => frame.into_data().ok().map(Ok),
            Err(error) => Some(Err(chain(&error))),
        })
    })
}

/// The first `limit` bytes of a body.
async fn beginning(body: Incoming, limit: usize) -> Result<Vec<u8>, String> {
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

    /// Status, headers, and the seconds to wait.
    type Case<'a> = (u16, &'a [(http::header::HeaderName, &'a str)], Option<u64>);

    #[test]
    fn a_server_may_ask_to_wait() {
        let asked = |status: u16, pairs: &[(http::header::HeaderName, &str)]| {
            let headers = pairs
                .iter()
                .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()));
            wait(StatusCode::from_u16(status).unwrap(), &headers.collect()).map(|wait| wait.as_secs())
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
        for (status, headers, wanted) in cases {
            assert_eq!(asked(*status, headers), *wanted, "{status} {headers:?}");
        }
    }
}

//! Smart HTTP over pooled connections (`gitprotocol-http`).

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, LOCATION, USER_AGENT};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::{Error, ResponseFuture};
use sluice_runtime::failure::chain;
use sluice_runtime::http::{Proxy, Route, Settings, TlsError};
use url::Url;

use super::super::address::host;
use super::super::error::FetchError;
use super::super::protocol::advertisement::{self, Capabilities};
use super::super::protocol::{AGENT, sanitize_text};
use super::super::remote::Remote;
use super::super::tls::Tls;
use super::packets::Packets;
use super::pools::{Pool, Pools};
use super::response::{read_prefix, status_error};
use super::{redirect, tls_error};

/// Media type of a response to a command.
const RESULT_TYPE: &str = "application/x-git-upload-pack-result";

/// A repository after discovery.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Base URL of the commands: the address, or the target of its redirect. `None` for a server that supports version 2, of which only
    /// commands are requested.
    repository: Option<Box<Url>>,
    /// URL of the commands, as requests contain it.
    upload_pack: Uri,
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
        let call = Call {
            uri: &target.upload_pack,
            is_trusted: target.is_trusted,
            asks_for_v2: target.supports_v2,
            command: Some(body),
        };
        let response = self.send(remote, &call).await?;
        if response.status() != StatusCode::OK {
            return Err(Box::pin(command_error(remote, target, response)).await);
        }
        let host = server(&target.upload_pack).to_owned();
        let kind = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        if kind != Some(RESULT_TYPE.as_bytes()) {
            let why = format!("content type '{}'", sanitize_text(kind.unwrap_or_default()));
            return Err(FetchError::Protocol { host, why });
        }
        Ok(Packets::from_http(response.into_body(), host))
    }

    /// Requests the ref advertisement of a server that supports only an older version.
    pub(super) async fn advertised_refs(
        &self,
        remote: &Remote,
        target: &Target,
    ) -> Result<Packets, FetchError> {
        let repository = target.repository.as_deref();
        let url = redirect::info_refs_url(repository.unwrap_or_else(|| remote.address.url()));
        let call = Call {
            uri: &uri(&url)?,
            is_trusted: target.is_trusted,
            asks_for_v2: target.supports_v2,
            command: None,
        };
        let response = self.send(remote, &call).await?;
        if response.status() != StatusCode::OK {
            let moved = redirect::repository_url(&url).map_or_else(|_| host(&url), |url| url.to_string());
            return Err(status_error(remote, &moved, target.is_trusted, response).await);
        }
        Ok(Packets::from_http(response.into_body(), host(&url)))
    }

    /// Requests `info/refs` and follows redirects.
    pub(super) async fn discover(&self, remote: &Remote) -> Result<(Target, Capabilities), FetchError> {
        let refused = |why: String| FetchError::Redirect {
            url: remote.address.to_string(),
            why,
        };
        let mut url = redirect::info_refs_url(remote.address.url());
        let mut is_trusted = true;
        for _ in 0..=redirect::MAX_REDIRECTS {
            let call = Call {
                uri: &uri(&url)?,
                is_trusted,
                asks_for_v2: true,
                command: None,
            };
            let response = self.send(remote, &call).await?;
            if let Some(location) = location(&response) {
                let next = redirect::follow(&url, &location).map_err(refused)?;
                if !redirect::is_same_origin(&url, &next) {
                    is_trusted = false;
                }
                url = next;
                continue;
            }
            let repository = redirect::repository_url(&url).map_err(refused)?;
            if response.status() != StatusCode::OK {
                return Err(status_error(remote, repository.as_str(), is_trusted, response).await);
            }
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
            return Ok((Target::new(repository, is_trusted, supports_v2)?, capabilities));
        }
        Err(refused(format!(
            "more than {} times in a row",
            redirect::MAX_REDIRECTS
        )))
    }

    /// Adds the proxy of the connection to an error, since it may be the cause.
    fn with_proxy(&self, remote: &Remote, uri: &Uri, why: String) -> String {
        let proxy = match &remote.proxy {
            Some(own) => Some(own.to_string()),
            None => self.route().proxy(uri).map(|proxy| proxy.to_string()),
        };
        match proxy {
            Some(proxy) if !why.contains(&proxy) => format!("{why} (through the proxy {proxy})"),
            _ => why,
        }
    }

    /// Sends a request and returns the response when its head arrives.
    async fn send(&self, remote: &Remote, call: &Call<'_>) -> Result<Response<Incoming>, FetchError> {
        match self.attempt(remote, call)?.await {
            Ok(response) => Ok(response),
            Err(error) => Box::pin(self.send_again(remote, call, error)).await,
        }
    }

    /// Sends a request once more after `error`, unless no connection was open.
    async fn send_again(
        &self,
        remote: &Remote,
        call: &Call<'_>,
        mut error: Error,
    ) -> Result<Response<Incoming>, FetchError> {
        // The server closed a pooled connection while the request was sent. All requests are read-only, so a retry is
        // safe.
        if !error.is_connect() {
            match self.attempt(remote, call)?.await {
                Ok(response) => return Ok(response),
                Err(again) => error = again,
            }
        }
        let why = tls_error::describe(&error, &call.tls(remote));
        let why = why.unwrap_or_else(|| chain(&error));
        Err(FetchError::Connection {
            host: server(call.uri).to_owned(),
            why: self.with_proxy(remote, call.uri, why),
        })
    }

    fn attempt(&self, remote: &Remote, call: &Call<'_>) -> Result<ResponseFuture, FetchError> {
        let (tls, proxy) = (call.tls(remote), remote.proxy.as_ref());
        let pool = self.pools.get(&tls, proxy);
        let pool = pool.map_err(|error| FetchError::Tls(chain(&error)))?;
        Ok(pool.request(call.request(remote)))
    }
}

/// What a request asks for. Each attempt builds its own request, because a second one is rare.
struct Call<'a> {
    uri: &'a Uri,
    /// Whether the server may receive the credentials and the client certificate.
    is_trusted: bool,
    /// Whether to ask for protocol version 2.
    asks_for_v2: bool,
    /// The command, if this is not a request for `info/refs`.
    command: Option<Bytes>,
}

impl Call<'_> {
    /// Returns the TLS settings for the server.
    fn tls(&self, remote: &Remote) -> Arc<Tls> {
        if self.is_trusted || remote.tls.identity.is_none() {
            Arc::clone(&remote.tls)
        } else {
            Arc::new(remote.tls.without_identity())
        }
    }

    fn request(&self, remote: &Remote) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.command.clone().unwrap_or_default()));
        if self.command.is_some() {
            *request.method_mut() = Method::POST;
        }
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers(remote);
        request
    }

    fn headers(&self, remote: &Remote) -> HeaderMap {
        let authorization = self.is_trusted.then(|| remote.credentials.header()).flatten();
        // With space for `Host` and `Content-Length`, which the client adds.
        let mut headers = HeaderMap::with_capacity(6 + usize::from(authorization.is_some()));
        headers.insert(USER_AGENT, const { HeaderValue::from_static(AGENT) });
        if self.asks_for_v2 {
            headers.insert(
                const { HeaderName::from_static("git-protocol") },
                const { HeaderValue::from_static("version=2") },
            );
        }
        if self.command.is_some() {
            headers.insert(
                CONTENT_TYPE,
                const { HeaderValue::from_static("application/x-git-upload-pack-request") },
            );
            headers.insert(ACCEPT, const { HeaderValue::from_static(RESULT_TYPE) });
        } else {
            headers.insert(ACCEPT, const { HeaderValue::from_static("*/*") });
        }
        if let Some(value) = authorization {
            headers.insert(AUTHORIZATION, value);
        }
        headers
    }
}

/// Returns the target of a repository that is not redirected, at a server that supports version 2.
pub(super) fn assumed_target(remote: &Remote) -> Option<Target> {
    let repository = redirect::repository_url(&redirect::info_refs_url(remote.address.url()));
    Target::new(repository.ok()?, true, true).ok()
}

impl Target {
    fn new(repository: Url, is_trusted: bool, supports_v2: bool) -> Result<Self, FetchError> {
        Ok(Self {
            upload_pack: uri(&redirect::upload_pack_url(&repository))?,
            repository: (!supports_v2).then(|| Box::new(repository)),
            is_trusted,
            supports_v2,
        })
    }
}

/// Returns the error of a command whose status is not 200.
async fn command_error(remote: &Remote, target: &Target, response: Response<Incoming>) -> FetchError {
    if response.status().is_redirection() {
        return FetchError::Redirect {
            url: remote.address.to_string(),
            why: "a command was redirected; only the first request may be".to_owned(),
        };
    }
    status_error(remote, server(&target.upload_pack), target.is_trusted, response).await
}

/// Converts a URL for a request.
fn uri(url: &Url) -> Result<Uri, FetchError> {
    Uri::try_from(url.as_str()).map_err(|error| FetchError::Connection {
        host: host(url),
        why: error.to_string(),
    })
}

/// Returns host and port of a URL that was converted: what [`host`] returns for the URL itself.
fn server(uri: &Uri) -> &str {
    uri.authority().map_or("", Authority::as_str)
}

fn location(response: &Response<Incoming>) -> Option<String> {
    if !response.status().is_redirection() {
        return None;
    }
    Some(String::from_utf8_lossy(response.headers().get(LOCATION)?.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_converted_url_has_the_same_host() {
        for text in [
            "http://example.org/a.git/git-upload-pack",
            "https://Example.org:443/a?k=v",
            "http://example.org:8080/",
            "http://[::1]/a",
            "https://[2001:db8::1]:8443/a",
            "http://127.1/a%20b/{c}",
            "http://b\u{fc}cher.example/\u{e4}",
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!(server(&uri(&url).unwrap()), host(&url), "{text}");
        }
        // A host of a URL that no request can contain.
        let error = uri(&Url::parse("http://a\"b/c").unwrap()).unwrap_err();
        assert!(
            error.to_string().starts_with("cannot talk to a\"b: invalid"),
            "{error}"
        );
    }
}

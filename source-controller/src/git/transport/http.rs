//! Smart HTTP over pooled connections (`gitprotocol-http`).

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
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
use super::response::{body_chunks, check_status, read_prefix};
use super::{redirect, tls_error};

/// Header with the protocol version.
const PROTOCOL_HEADER: &str = "git-protocol";

/// A repository after discovery.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Base URL of the commands: the address, or the target of its redirect. `None` for a server that supports version 2, of which only
    /// commands are requested.
    repository: Option<Box<Url>>,
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
        let repository = target.repository.as_deref();
        let url = redirect::info_refs_url(repository.unwrap_or_else(|| remote.address.url()));
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
            repository: (!supports_v2).then(|| Box::new(repository)),
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

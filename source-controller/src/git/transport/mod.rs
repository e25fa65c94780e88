//! Transports of the protocol: http, https and ssh.

mod cache;
mod http;
mod packets;
mod pools;
mod redirect;
mod ssh;
mod tls_error;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use cache::ExpiringCache;
pub(super) use packets::Packets;
pub(crate) use pools::Pool;
use sluice_runtime::http::{Proxy, Route, Settings, TlsError};
use sluice_runtime::sync::lock;

use super::error::FetchError;
use super::protocol::advertisement::Capabilities;
use super::remote::Remote;
use super::ssh::Algorithms;
use super::tls::Tls;

/// Idle timeout of connections, long enough for a poll each minute.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Connections to servers, and a cache of the discovered repositories. Cheap to clone.
#[derive(Clone)]
pub struct Transport(Arc<Inner>);

struct Inner {
    http: http::Http,
    ssh: ssh::Ssh,
    endpoints: Mutex<ExpiringCache<Key, Arc<Endpoint>>>,
}

/// Key of the cache: address and access digest. The digest includes the route, because a response counts only for
/// readers that trust the same authorities and proxy.
type Key = (String, [u8; 32]);

/// A repository after discovery.
#[derive(Debug)]
pub(super) struct Endpoint {
    target: Target,
    /// Capabilities of the server.
    pub(super) capabilities: Capabilities,
}

/// Target of the repository's commands, by transport.
#[derive(Debug)]
enum Target {
    Http(http::Target),
    Ssh(ssh::Target),
}

/// TLS cannot be initialized in this process.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct TransportError(#[from] TlsError);

impl Transport {
    /// Creates a pool without connections that trusts the operating system's authorities. They are read once, here.
    /// Without any, https remotes fail and http remotes work.
    ///
    /// # Errors
    /// TLS cannot be initialized.
    pub fn new() -> Result<Self, TransportError> {
        Self::with_route(Route::Direct, Algorithms::default())
    }

    /// Creates a pool with a route for objects without their own proxy, and the ssh algorithms of the flags.
    ///
    /// # Errors
    /// TLS cannot be initialized.
    pub(crate) fn with_route(route: Route, algorithms: Algorithms) -> Result<Self, TransportError> {
        let settings = Settings {
            idle_timeout: IDLE_TIMEOUT,
            route,
            ..Settings::default()
        };
        Self::with_settings(&settings, algorithms)
    }

    /// Creates a pool with other settings.
    ///
    /// # Errors
    /// TLS cannot be initialized.
    pub(crate) fn with_settings(settings: &Settings, algorithms: Algorithms) -> Result<Self, TransportError> {
        Ok(Self(Arc::new(Inner {
            http: http::Http::new(settings)?,
            ssh: ssh::Ssh::new(algorithms),
            endpoints: Mutex::default(),
        })))
    }

    /// Returns the pool for these settings, for requests to other services than the Git server.
    ///
    /// # Errors
    /// The client certificate and its key do not match.
    pub(crate) fn pool(&self, tls: &Arc<Tls>, proxy: Option<&Arc<Proxy>>) -> Result<Pool, TlsError> {
        self.0.http.pool(tls, proxy)
    }

    /// Returns the endpoint of the repository, cached or discovered.
    pub(super) async fn endpoint(&self, remote: &Remote) -> Result<Arc<Endpoint>, FetchError> {
        let key = cache_key(remote);
        let cached = self.endpoints().get(&key);
        if let Some(endpoint) = cached {
            return Ok(endpoint);
        }
        let (target, capabilities) = if remote.address.is_ssh() {
            let (target, capabilities) = Box::pin(self.0.ssh.discover(remote)).await?;
            (Target::Ssh(target), capabilities)
        } else {
            let (target, capabilities) = self.0.http.discover(remote).await?;
            (Target::Http(target), capabilities)
        };
        let endpoint = Arc::new(Endpoint { target, capabilities });
        self.endpoints().insert(key, Arc::clone(&endpoint));
        Ok(endpoint)
    }

    /// Removes the endpoint from the cache; returns whether it existed. Called after every failure, because a server
    /// may have moved or changed.
    pub(super) fn forget(&self, remote: &Remote) -> bool {
        self.endpoints().remove(&cache_key(remote))
    }

    /// Sends one command, or the request of an older version, and returns the packets of its response.
    pub(super) async fn command(
        &self,
        remote: &Remote,
        endpoint: &Endpoint,
        body: Bytes,
    ) -> Result<Packets, FetchError> {
        match &endpoint.target {
            Target::Http(target) => self.0.http.command(remote, target, body).await,
            Target::Ssh(target) => Box::pin(self.0.ssh.command(remote, target, body)).await,
        }
    }

    /// Returns the proxy of a remote: its own, or the one of the environment.
    pub(super) fn proxy(&self, remote: &Remote) -> Option<Arc<Proxy>> {
        let own = remote.proxy.clone();
        own.or_else(|| match self.0.http.route() {
            Route::Direct => None,
            Route::Through(proxy) => Some(Arc::clone(proxy)),
            Route::Environment(environment) => environment.proxy(remote.address.url()).cloned().map(Arc::new),
        })
    }

    /// Requests the ref advertisement of a server without the command `ls-refs`.
    pub(super) async fn advertised_refs(
        &self,
        remote: &Remote,
        endpoint: &Endpoint,
    ) -> Result<Packets, FetchError> {
        match &endpoint.target {
            Target::Http(target) => self.0.http.advertised_refs(remote, target).await,
            Target::Ssh(_) => self.0.ssh.advertised_refs(remote).await,
        }
    }

    fn endpoints(&self) -> std::sync::MutexGuard<'_, ExpiringCache<Key, Arc<Endpoint>>> {
        lock(&self.0.endpoints)
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transport")
    }
}

fn cache_key(remote: &Remote) -> Key {
    (remote.address.url().as_str().to_owned(), remote.access_digest())
}

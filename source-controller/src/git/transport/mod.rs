//! Transports of the protocol: http, https and ssh.

mod cache;
mod http;
mod packets;
mod pools;
mod redirect;
mod response;
mod ssh;
mod tls_error;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use cache::ExpiringCache;
pub(super) use packets::Packets;
pub(crate) use pools::Pool;
use sluice_runtime::http::{Proxy, Route, Settings, TlsError};
use sluice_runtime::sync::lock;

use super::error::FetchError;
use super::protocol::advertisement::{Capabilities, V2};
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
    /// Capabilities of a repository at each http host that supports version 2.
    hosts: Mutex<ExpiringCache<HostKey, V2>>,
    /// Repositories at which the first request is a discovery, because an assumption failed or would fail.
    unassumed: Mutex<ExpiringCache<Key, ()>>,
}

/// Origin of an address, and digest of the route to it: a proxy decides what its own readers see of a host.
type HostKey = (String, [u8; 32]);

/// Key of the cache: [`SharedAccess::access_key`](super::access::SharedAccess::access_key). The digest includes the route, because a
/// response counts only for readers that trust the same authorities and proxy.
type Key = [u8; 32];

/// A repository after discovery, or one that is assumed to be like another one at its host.
#[derive(Debug)]
pub(super) struct Endpoint {
    target: Target,
    /// Capabilities of the server. Those of an assumed endpoint suffice for `ls-refs`, and after that for fetches without
    /// a filter.
    pub(super) capabilities: Capabilities,
    is_discovered: bool,
    /// Whether the server has answered a command.
    is_confirmed: AtomicBool,
}

impl Endpoint {
    fn new(target: Target, capabilities: Capabilities, is_discovered: bool) -> Arc<Self> {
        Arc::new(Self {
            target,
            capabilities,
            is_discovered,
            is_confirmed: AtomicBool::new(is_discovered),
        })
    }

    /// Records that the server has answered a command.
    pub(super) fn confirm(&self) {
        self.is_confirmed.store(true, Ordering::Relaxed);
    }

    fn is_confirmed(&self) -> bool {
        self.is_confirmed.load(Ordering::Relaxed)
    }
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
            hosts: Mutex::default(),
            unassumed: Mutex::default(),
        })))
    }

    /// Returns the pool for these settings, for requests to other services than the Git server.
    ///
    /// # Errors
    /// The client certificate and its key do not match.
    pub(crate) fn pool(&self, tls: &Arc<Tls>, proxy: Option<&Arc<Proxy>>) -> Result<Pool, TlsError> {
        self.0.http.pool(tls, proxy)
    }

    /// Returns the endpoint of the repository for a lookup: cached, assumed or discovered. It is assumed where another
    /// repository at the host supports version 2, which saves the discovery. A caller must repeat a lookup that fails if
    /// [`Transport::is_assumption_wrong`].
    pub(super) async fn endpoint(&self, remote: &Remote) -> Result<Arc<Endpoint>, FetchError> {
        let key = remote.access_key();
        let cached = self.endpoints().get(&key);
        if let Some(endpoint) = cached {
            return Ok(endpoint);
        }
        if let Some(endpoint) = self.assume(remote, &key) {
            self.endpoints().insert(key, Arc::clone(&endpoint));
            return Ok(endpoint);
        }
        Box::pin(self.discover(remote, key)).await
    }

    /// Returns the endpoint of the repository for a fetch: one that has answered a command, else discovered.
    pub(super) async fn confirmed_endpoint(&self, remote: &Remote) -> Result<Arc<Endpoint>, FetchError> {
        self.endpoint_if(remote, Endpoint::is_confirmed).await
    }

    /// Returns the endpoint of the repository with its own capabilities.
    pub(super) async fn discovered_endpoint(&self, remote: &Remote) -> Result<Arc<Endpoint>, FetchError> {
        self.endpoint_if(remote, |endpoint| endpoint.is_discovered).await
    }

    /// Returns the cached endpoint if it is `usable`, else discovers it.
    async fn endpoint_if(
        &self,
        remote: &Remote,
        usable: impl Fn(&Endpoint) -> bool,
    ) -> Result<Arc<Endpoint>, FetchError> {
        let key = remote.access_key();
        let cached = self.endpoints().get(&key);
        match cached.filter(|endpoint| usable(endpoint)) {
            Some(endpoint) => Ok(endpoint),
            None => Box::pin(self.discover(remote, key)).await,
        }
    }

    async fn discover(&self, remote: &Remote, key: Key) -> Result<Arc<Endpoint>, FetchError> {
        let (target, capabilities) = if remote.address.is_ssh() {
            let (target, capabilities) = Box::pin(self.0.ssh.discover(remote)).await?;
            (Target::Ssh(target), capabilities)
        } else {
            let (target, capabilities) = self.0.http.discover(remote).await?;
            self.learn(remote, &key, &target, &capabilities);
            (Target::Http(target), capabilities)
        };
        let endpoint = Endpoint::new(target, capabilities, true);
        self.endpoints().insert(key, Arc::clone(&endpoint));
        Ok(endpoint)
    }

    /// Records what a discovery says about other repositories at the host, and about assumptions for this one.
    fn learn(&self, remote: &Remote, key: &Key, target: &http::Target, capabilities: &Capabilities) {
        let is_as_assumed = http::assumed_target(remote).is_some_and(|assumed| assumed == *target);
        match capabilities {
            Capabilities::V2(capabilities) if is_as_assumed => {
                lock(&self.0.hosts).insert(host_key(remote), capabilities.clone());
                lock(&self.0.unassumed).remove(key);
            }
            _ => lock(&self.0.unassumed).insert(*key, ()),
        }
    }

    /// Returns the assumed endpoint of a repository at a host that supports version 2.
    fn assume(&self, remote: &Remote, key: &Key) -> Option<Arc<Endpoint>> {
        if remote.address.is_ssh() || lock(&self.0.unassumed).get(key).is_some() {
            return None;
        }
        let capabilities = lock(&self.0.hosts).get(&host_key(remote))?;
        let target = Target::Http(http::assumed_target(remote)?);
        Some(Endpoint::new(target, Capabilities::V2(capabilities), false))
    }

    /// Returns whether a lookup failed with an assumed endpoint that the server may not have. The next lookup discovers
    /// the endpoint.
    pub(super) fn is_assumption_wrong(&self, remote: &Remote, error: &FetchError) -> bool {
        let key = remote.access_key();
        let is_assumed = self
            .endpoints()
            .get(&key)
            .is_some_and(|endpoint| !endpoint.is_confirmed());
        is_assumed && error.may_depend_on_endpoint() && self.forget(remote)
    }

    /// Removes the endpoint from the cache; returns whether it existed. Called after every failure, because a server
    /// may have moved or changed. The next request discovers it.
    pub(super) fn forget(&self, remote: &Remote) -> bool {
        let key = remote.access_key();
        let existed = self.endpoints().remove(&key);
        if !remote.address.is_ssh() {
            lock(&self.0.unassumed).insert(key, ());
        }
        existed
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
            Target::Http(target) => Box::pin(self.0.http.advertised_refs(remote, target)).await,
            Target::Ssh(_) => Box::pin(self.0.ssh.advertised_refs(remote)).await,
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

fn host_key(remote: &Remote) -> HostKey {
    let origin = remote.address.url().origin().ascii_serialization();
    (origin, remote.route_digest())
}

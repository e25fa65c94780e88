//! How the protocol reaches a server: http, https and ssh.

mod answer;
mod distrust;
mod endpoints;
mod http;
mod pools;
mod redirect;
mod ssh;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use sluice_runtime::http::{Proxy, Route, Settings, TlsError};

use super::error::FetchError;
use super::protocol::advertisement::Capabilities;
use super::remote::Remote;
use super::ssh::Algorithms;
use super::tls::Tls;
use endpoints::Remembered;

pub(super) use answer::Packets;
pub(crate) use pools::Pool;

/// Unused connections are kept this long, so that a poll each minute finds one.
const IDLE: Duration = Duration::from_secs(90);

/// Connections to servers, and what was learnt about the repositories behind them. Cheap to clone.
#[derive(Clone)]
pub struct Transport(Arc<Inner>);

struct Inner {
    http: http::Http,
    ssh: ssh::Ssh,
    endpoints: Mutex<Remembered<Key, Arc<Endpoint>>>,
}

/// Whose capabilities are remembered: an address, and the digest of who asks there on which way. The way counts, because
/// what is remembered of a server holds for those only who trust the authorities and the proxy that led there.
type Key = (String, [u8; 32]);

/// A repository as its server presented it.
#[derive(Debug)]
pub(super) struct Endpoint {
    place: Place,
    /// What the server offers.
    pub(super) capabilities: Capabilities,
}

/// Where a repository's commands go, in the terms of its transport.
#[derive(Debug)]
enum Place {
    Http(http::Place),
    Ssh(ssh::Place),
}

/// TLS cannot be set up in this process.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct TransportError(#[from] TlsError);

impl Transport {
    /// A pool without any connection yet, which trusts the operating system's authorities. They are read once, here;
    /// where there are none, https remotes fail and http ones work.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new() -> Result<Self, TransportError> {
        Self::with_algorithms(Algorithms::default())
    }

    /// The same with algorithms for ssh that flags name.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn with_algorithms(algorithms: Algorithms) -> Result<Self, TransportError> {
        Self::on(Route::Direct, algorithms)
    }

    /// The same, with a route for objects that have no proxy of their own.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn on(route: Route, algorithms: Algorithms) -> Result<Self, TransportError> {
        let settings = Settings {
            idle_timeout: IDLE,
            route,
            ..Settings::default()
        };
        Self::with(&settings, algorithms)
    }

    /// A pool with other settings.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn with(settings: &Settings, algorithms: Algorithms) -> Result<Self, TransportError> {
        Ok(Self(Arc::new(Inner {
            http: http::Http::new(settings)?,
            ssh: ssh::Ssh::new(algorithms),
            endpoints: Mutex::default(),
        })))
    }

    /// Connections on these terms, for whoever needs to talk about a repository to others than its server.
    ///
    /// # Errors
    /// The client certificate and its key do not go together.
    pub(crate) fn pool(&self, tls: &Arc<Tls>, proxy: Option<&Arc<Proxy>>) -> Result<Pool, TlsError> {
        self.0.http.pool(tls, proxy)
    }

    /// The repository's capabilities: remembered, or asked for.
    pub(super) async fn endpoint(&self, remote: &Remote) -> Result<Arc<Endpoint>, FetchError> {
        let key = key(remote);
        let held = self.endpoints().get(&key);
        if let Some(endpoint) = held {
            return Ok(endpoint);
        }
        let (place, capabilities) = if remote.address.is_ssh() {
            let (place, capabilities) = Box::pin(self.0.ssh.discover(remote)).await?;
            (Place::Ssh(place), capabilities)
        } else {
            let (place, capabilities) = self.0.http.discover(remote).await?;
            (Place::Http(place), capabilities)
        };
        let endpoint = Arc::new(Endpoint { place, capabilities });
        self.endpoints().insert(key, Arc::clone(&endpoint));
        Ok(endpoint)
    }

    /// Forgets what was learnt about the repository; true if there was something. Called after every failure,
    /// because a server may have moved or changed.
    pub(super) fn forget(&self, remote: &Remote) -> bool {
        self.endpoints().forget(&key(remote))
    }

    /// Sends one command, or the one request of an older version, and gives the packets of its answer.
    pub(super) async fn command(
        &self,
        remote: &Remote,
        endpoint: &Endpoint,
        body: Bytes,
    ) -> Result<Packets, FetchError> {
        match &endpoint.place {
            Place::Http(place) => self.0.http.command(remote, place, body).await,
            Place::Ssh(place) => Box::pin(self.0.ssh.command(remote, place, body)).await,
        }
    }

    /// The proxy of a remote: its own, or the one that the environment names for it.
    pub(super) fn proxy(&self, remote: &Remote) -> Option<Arc<Proxy>> {
        let own = remote.proxy.clone();
        own.or_else(|| match self.0.http.route() {
            Route::Direct => None,
            Route::Through(proxy) => Some(Arc::clone(proxy)),
            Route::Environment(environment) => environment.proxy(remote.address.url()).cloned().map(Arc::new),
        })
    }

    /// The list of all refs, of a server that has no command for it.
    pub(super) async fn listing(&self, remote: &Remote, endpoint: &Endpoint) -> Result<Packets, FetchError> {
        match &endpoint.place {
            Place::Http(place) => self.0.http.listing(remote, place).await,
            Place::Ssh(_) => self.0.ssh.listing(remote).await,
        }
    }

    fn endpoints(&self) -> std::sync::MutexGuard<'_, Remembered<Key, Arc<Endpoint>>> {
        self.0.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transport")
    }
}

fn key(remote: &Remote) -> Key {
    (remote.address.url().as_str().to_owned(), remote.way())
}

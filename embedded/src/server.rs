//! Building a server, and the two ways into it: a client in this process, or a socket.

use std::{
    convert::Infallible,
    future::Future,
    net::SocketAddr,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::client::Body;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    gc,
    resource::Registry,
    serve::{self, ServeError, Serving},
    service::{Api, ResponseBody},
    store::{StorageHealth, Store},
    upkeep,
};

/// Where a server begins.
#[derive(Debug)]
pub struct Server;

/// What a server is built from.
#[derive(Debug)]
pub struct Builder {
    crds: Vec<CustomResourceDefinition>,
    store: Store,
    event_lifetime: Duration,
}

/// A server that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A definition cannot be served.
    #[error("CustomResourceDefinition {name}: {why}")]
    Definition {
        /// Its name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The first objects cannot be stored.
    #[error("the store refused the first objects: {0}")]
    Seed(String),
    /// The server's own tasks need a runtime.
    #[error("no tokio runtime: {0}")]
    Runtime(#[from] tokio::runtime::TryCurrentError),
}

/// A running Kubernetes API. Clones are the same server.
///
/// The store and the server's tasks end when the last clone and the last client of it are dropped.
#[derive(Clone, Debug)]
pub struct Embedded {
    api: Arc<Api>,
}

impl Server {
    /// Starts with no definitions and a store in memory.
    #[must_use]
    pub fn builder() -> Builder {
        Builder {
            crds: Vec::new(),
            store: Store::memory(),
            event_lifetime: upkeep::EVENT_LIFETIME,
        }
    }
}

impl Builder {
    /// Serves these definitions too.
    #[must_use]
    pub fn crds(mut self, crds: impl IntoIterator<Item = CustomResourceDefinition>) -> Self {
        self.crds.extend(crds);
        self
    }

    /// Keeps objects here.
    #[must_use]
    pub fn store(mut self, store: Store) -> Self {
        self.store = store;
        self
    }

    /// Removes Events this long after they were last seen (one hour, as kube-apiserver's `--event-ttl`).
    #[must_use]
    pub const fn event_lifetime(mut self, lifetime: Duration) -> Self {
        self.event_lifetime = lifetime;
        self
    }

    /// Starts the server. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When a definition cannot be served, the store refuses a write, or there is no runtime.
    pub fn build(self) -> Result<Embedded, BuildError> {
        let runtime = tokio::runtime::Handle::try_current()?;
        let mut registry = Registry::builtin();
        for crd in &self.crds {
            registry.define(crd).map_err(|error| BuildError::Definition {
                name: crd.metadata.name.clone().unwrap_or_default(),
                why: error.to_string(),
            })?;
        }
        let api = Arc::new(Api {
            store: Arc::new(self.store),
            registry,
            stop: CancellationToken::new(),
        });
        crate::seed::plant(&api, &self.crds).map_err(|error| BuildError::Seed(error.message().to_owned()))?;
        runtime.spawn(gc::run(Arc::downgrade(&api)));
        runtime.spawn(upkeep::run(Arc::downgrade(&api), self.event_lifetime));
        Ok(Embedded { api })
    }
}

impl Embedded {
    /// A client in this process: no socket, no TLS, no token.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    /// Serves the API over TLS on `addr`, for those who hold the token in the kubeconfig that is written into `dir`.
    ///
    /// The directory is made with mode 0700, the kubeconfig with mode 0600. CA, token and, for port 0, the port of an earlier
    /// run are taken from the directory, so that kubeconfigs stay valid over restarts.
    ///
    /// # Errors
    /// When the address cannot be bound, or the directory cannot be read or written.
    pub async fn serve(&self, addr: SocketAddr, dir: &Path) -> Result<Serving, ServeError> {
        serve::serve(self.clone(), addr, dir).await
    }

    /// How the store takes writes, now and later.
    #[must_use]
    pub fn storage(&self) -> watch::Receiver<StorageHealth> {
        self.api.store.health()
    }

    /// Ends every watch and the server's own tasks. Objects can still be read and written.
    pub fn stop(&self) {
        self.api.stop.cancel();
    }

    /// Answers one request, whoever sends it: authentication is the business of the socket.
    pub(crate) async fn answer<B>(&self, request: Request<B>) -> Response<ResponseBody>
    where
        B: http_body::Body<Data = bytes::Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        self.api.clone().answer(request).await
    }
}

impl tower::Service<Request<Body>> for Embedded {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let api = self.api.clone();
        Box::pin(async move { Ok(api.answer(request).await) })
    }
}

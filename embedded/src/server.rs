//! The API server: its builder, and access by an in-process client or a TLS socket.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::client::Body;
use tokio::sync::watch;

use crate::definitions::{self, Reconciler};
use crate::resource::Registry;
use crate::serve::{self, ServeError, TlsServer};
use crate::service::{Api, ResponseBody, UserFields};
use crate::store::{StorageHealth, Store};
use crate::{bootstrap, gc, maintenance};

/// Builds an [`ApiServer`].
#[derive(Debug)]
pub struct ApiServerBuilder {
    crds: Vec<CustomResourceDefinition>,
    store: Store,
    event_ttl: Duration,
    user_fields: Vec<UserFields>,
}

/// The error of a server that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A definition cannot be served.
    #[error("CustomResourceDefinition {name}: {reason}")]
    Definition {
        /// Name of the definition.
        name: String,
        /// Error of the definition.
        reason: String,
    },
    /// The initial objects cannot be stored.
    #[error("cannot store the initial objects: {0}")]
    Bootstrap(String),
    /// There is no tokio runtime for the background tasks.
    #[error("no tokio runtime: {0}")]
    Runtime(#[from] tokio::runtime::TryCurrentError),
}

/// A running Kubernetes API server. Clones share one server.
///
/// The store and the background tasks end when the last clone and its last client are dropped.
#[derive(Clone, Debug)]
pub struct ApiServer {
    api: Arc<Api>,
}

impl ApiServerBuilder {
    /// Adds custom resource definitions.
    #[must_use]
    pub fn crds(mut self, crds: impl IntoIterator<Item = CustomResourceDefinition>) -> Self {
        self.crds.extend(crds);
        self
    }

    /// Sets the store; the default is in memory.
    #[must_use]
    pub fn store(mut self, store: Store) -> Self {
        self.store = store;
        self
    }

    /// Sets how long Events remain after their last occurrence (default one hour, kube-apiserver's `--event-ttl`).
    #[must_use]
    pub const fn event_ttl(mut self, ttl: Duration) -> Self {
        self.event_ttl = ttl;
        self
    }

    /// Sets fields that can name only the requesting user, as an admission policy of a cluster would enforce it.
    #[must_use]
    pub fn user_fields(mut self, fields: UserFields) -> Self {
        self.user_fields.push(fields);
        self
    }

    /// Starts the server. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If a definition cannot be served, the store rejects a write, or there is no runtime.
    pub fn build(self) -> Result<ApiServer, BuildError> {
        let runtime = tokio::runtime::Handle::try_current()?;
        let mut registry = Registry::builtin();
        for crd in &self.crds {
            registry
                .add_definition(crd)
                .map_err(|error| BuildError::Definition {
                    name: crd.metadata.name.clone().unwrap_or_default(),
                    reason: error.to_string(),
                })?;
        }
        let registry = Arc::new(registry);
        let api = Arc::new(Api::new(Arc::new(self.store), registry.clone(), self.user_fields));
        bootstrap::create_initial_objects(&api, &self.crds)
            .map_err(|error| BuildError::Bootstrap(error.message().to_owned()))?;
        // Before the first request: the kinds of stored definitions.
        let mut reconciler = Reconciler::new(registry);
        reconciler.reconcile(&api);
        runtime.spawn(definitions::run(Arc::downgrade(&api), reconciler));
        runtime.spawn(gc::run(Arc::downgrade(&api)));
        runtime.spawn(maintenance::run(Arc::downgrade(&api), self.event_ttl));
        if let Some(interval) = api.store.poll_interval() {
            runtime.spawn(maintenance::poll(Arc::downgrade(&api), interval));
            runtime.spawn(maintenance::compact(Arc::downgrade(&api)));
        }
        Ok(ApiServer { api })
    }
}

impl ApiServer {
    /// Returns a builder without definitions, with a store in memory.
    #[must_use]
    pub fn builder() -> ApiServerBuilder {
        ApiServerBuilder {
            crds: Vec::new(),
            store: Store::memory(),
            event_ttl: maintenance::EVENT_TTL,
            user_fields: Vec::new(),
        }
    }

    /// Returns an in-process client: no socket, no TLS, no token.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    /// Serves the API over TLS on `addr` and writes a kubeconfig with the token into `dir`.
    ///
    /// The directory gets the mode 0700, the kubeconfig 0600. CA, token and, for port 0, the port of an earlier run are reused, so
    /// that kubeconfigs remain valid across restarts.
    ///
    /// # Errors
    /// If the address cannot be bound, or the directory cannot be read or written.
    pub async fn serve(&self, addr: SocketAddr, dir: &Path) -> Result<TlsServer, ServeError> {
        serve::serve(self.api.clone(), addr, dir).await
    }

    /// Returns the current and future health of the store.
    #[must_use]
    pub fn storage_health(&self) -> watch::Receiver<StorageHealth> {
        self.api.store.health()
    }

    /// Ends all watches and background tasks. Objects can still be read and written.
    pub fn stop(&self) {
        self.api.stop.cancel();
    }
}

impl tower::Service<Request<Body>> for ApiServer {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let api = self.api.clone();
        Box::pin(async move { Ok(api.handle(request).await) })
    }
}

//! The sockets of the program: what it tells about itself, and artifacts.

use std::net::SocketAddr;

use sluice_runtime::args::Addresses;
use sluice_runtime::metrics::{self, Metrics};
use sluice_runtime::probes::{self, Readiness};
use sluice_runtime::serve::{Address, listen};
use sluice_runtime::shutdown::Token;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::{StartError, hostname};
use crate::options::StorageOptions;
use crate::server::Admission;
use crate::storage::{AddressError, advertised};

/// Metrics and probes: served by every instance, leading or not.
pub(super) struct Around {
    metrics: Option<TcpListener>,
    health: Option<TcpListener>,
}

impl Around {
    pub(super) async fn open(addresses: &Addresses) -> Result<Self, StartError> {
        Ok(Self {
            metrics: bind("--metrics-addr", &addresses.metrics_addr).await?,
            health: bind("--health-addr", &addresses.health_addr).await?,
        })
    }

    /// Where metrics are served, and where probes are answered.
    pub(super) fn addresses(&self) -> Result<(Option<SocketAddr>, Option<SocketAddr>), StartError> {
        let of = |listener: &Option<TcpListener>| listener.as_ref().map(address).transpose();
        Ok((of(&self.metrics)?, of(&self.health)?))
    }

    pub(super) fn serve(self, metrics: &Metrics, stop: &Token) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        if let Some(listener) = self.metrics {
            tasks.spawn(metrics::run(listener, metrics.clone(), stop.clone()));
        }
        if let Some(listener) = self.health {
            let readiness = Readiness::default();
            // As Flux: who may have traffic is told by the file server, which only the leader opens.
            readiness.set();
            tasks.spawn(probes::run(listener, readiness, stop.clone()));
        }
        tasks
    }
}

/// The file server's.
pub(super) struct Artifacts(pub(super) TcpListener);

impl Artifacts {
    pub(super) async fn open(options: &StorageOptions) -> Result<Self, StartError> {
        let text = &options.storage_addr;
        let missing = || StartError::Address(AddressError(text.clone()));
        let address = text.parse::<Address>().map_err(|_| missing())?;
        let listener = bind("--storage-addr", &address).await?;
        listener.map(Self).ok_or_else(missing)
    }

    pub(super) fn address(&self) -> Result<SocketAddr, StartError> {
        address(&self.0)
    }

    /// The address for consumers; a port that the system chose is filled in.
    pub(super) fn advertised(&self, options: &StorageOptions) -> Result<String, StartError> {
        let bound = self.address()?.port();
        let bind = match options.storage_addr.rsplit_once(':') {
            Some((host, _)) => format!("{host}:{bound}"),
            None => options.storage_addr.clone(),
        };
        Ok(advertised(&options.storage_adv_addr, &bind, &hostname(options))?)
    }

    /// Which requests the file server answers.
    pub(super) fn admission(
        &self,
        options: &StorageOptions,
        advertised: &str,
    ) -> Result<Admission, StartError> {
        Ok(Admission::new(
            self.address()?,
            advertised,
            &options.storage_allowed_hosts,
            options.artifact_token.clone(),
        ))
    }
}

fn address(listener: &TcpListener) -> Result<SocketAddr, StartError> {
    listener.local_addr().map_err(|source| StartError::Listen {
        flag: "local address",
        address: String::new(),
        source,
    })
}

async fn bind(flag: &'static str, address: &Address) -> Result<Option<TcpListener>, StartError> {
    listen(address).await.map_err(|source| StartError::Listen {
        flag,
        address: format!("{address:?}"),
        source,
    })
}

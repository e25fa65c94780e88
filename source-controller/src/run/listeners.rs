//! The listener of the file server.

use std::net::SocketAddr;

use sluice_runtime::manager::{ListenError, bind};
use sluice_runtime::serve::ListenAddress;
use tokio::net::TcpListener;

use super::{StartError, hostname};
use crate::options::StorageOptions;
use crate::server::Admission;
use crate::storage::{AddressError, advertised_address};

/// The file server's.
pub(super) struct Artifacts(pub(super) TcpListener);

impl Artifacts {
    pub(super) async fn open(options: &StorageOptions) -> Result<Self, StartError> {
        let text = &options.storage_addr;
        let missing = || StartError::Address(AddressError(text.clone()));
        let address = text.parse::<ListenAddress>().map_err(|_| missing())?;
        let listener = bind("--storage-addr", &address).await?;
        listener.map(Self).ok_or_else(missing)
    }

    pub(super) fn address(&self) -> Result<SocketAddr, StartError> {
        self.0.local_addr().map_err(|source| {
            StartError::Listen(ListenError {
                flag: "--storage-addr",
                address: String::new(),
                source,
            })
        })
    }

    /// The address for consumers; a port that the system chose is filled in.
    pub(super) fn advertised(&self, options: &StorageOptions) -> Result<String, StartError> {
        let bound = self.address()?.port();
        let bind = match options.storage_addr.rsplit_once(':') {
            Some((host, _)) => format!("{host}:{bound}"),
            None => options.storage_addr.clone(),
        };
        Ok(advertised_address(
            &options.storage_adv_addr,
            &bind,
            &hostname(options),
        )?)
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

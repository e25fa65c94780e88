//! Opens and starts the file server with its storage: of the leader alone, or with a bucket of every replica.

use std::net::SocketAddr;
use std::sync::Arc;

use sluice_runtime::manager::{self, ListenError, bind};
use sluice_runtime::serve::ListenAddress;
use sluice_runtime::shutdown::Token;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinSet};

use crate::git::Mirrors;
use crate::options::{Options, StorageOptions};
use crate::run::StartError;
use crate::server::{self, Admission};
use crate::storage::bucket::{Bucket, BucketStorage, connect};
use crate::storage::{
    AddressError, AdvertisedAddress, LocalDirectory, Storage, StorageError, advertised_address,
};

/// The file server, before or after its start.
pub(crate) enum FileServer {
    /// It listens, and answers after the start.
    Open(Artifacts),
    /// It answers.
    Running(Served),
}

/// The listener and what it serves.
pub(crate) struct Artifacts {
    listener: ArtifactListener,
    address: SocketAddr,
    admission: Admission,
    local: LocalDirectory,
    /// With a bucket, the directory is its cache.
    bucket: Option<BucketStorage>,
}

/// The address of the file server, and the storage that it serves.
pub(crate) struct Served {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Where artifacts are published.
    pub(crate) storage: Arc<dyn Storage>,
    bucket: Option<BucketStorage>,
}

impl FileServer {
    /// Starts the file server of the bucket of the options; `None` without a bucket: then the leader starts it.
    ///
    /// # Errors
    /// The bucket cannot be opened, or as [`Self::open`].
    pub(crate) async fn of_bucket(
        options: &Options,
        tasks: &mut JoinSet<()>,
        stop: &Token,
    ) -> Result<Option<Self>, StartError> {
        let bucket = match &options.bucket.open_bucket {
            Some(bucket) => Some(bucket.clone()),
            None => connect(&options.bucket)?,
        };
        let Some(bucket) = bucket else { return Ok(None) };
        let server = Self::open(options, Some(bucket), stop).await?;
        Ok(Some(Self::Running(server.start(tasks, stop))))
    }

    /// Opens listener and storage.
    ///
    /// # Errors
    /// The address cannot be bound, or the storage directory cannot be used.
    pub(crate) async fn open(
        options: &Options,
        bucket: Option<Bucket>,
        stop: &Token,
    ) -> Result<Self, StartError> {
        let listener = ArtifactListener::open(&options.storage).await?;
        let address = listener.address()?;
        let advertised = listener.advertised(&options.storage)?;
        let admission = listener.admission(&options.storage, &advertised)?;
        let advertised = AdvertisedAddress::new(advertised, options.storage.artifact_token.clone());
        let local = LocalDirectory::open(&options.storage.storage_path, advertised)?;
        let bucket = match bucket {
            Some(bucket) => Some(open_bucket(options, local.clone(), bucket, stop).await?),
            None => None,
        };
        Ok(Self::Open(Artifacts {
            listener,
            address,
            admission,
            local,
            bucket,
        }))
    }

    /// Starts the file server, unless it runs, and stores the recovery points of mirrors in its bucket, if it has one.
    pub(crate) fn start_as_leader(self, mirrors: &Mirrors, tasks: &mut JoinSet<()>, stop: &Token) -> Served {
        let served = self.start(tasks, stop);
        if let Some(bucket) = &served.bucket {
            mirrors.set_recovery_store(Arc::new(bucket.clone()));
        }
        served
    }

    /// Starts the file server, unless it runs.
    fn start(self, tasks: &mut JoinSet<()>, stop: &Token) -> Served {
        let artifacts = match self {
            Self::Open(artifacts) => artifacts,
            Self::Running(served) => return served,
        };
        let Artifacts {
            listener,
            address,
            admission,
            local,
            bucket,
        } = artifacts;
        let storage: Arc<dyn Storage> = match &bucket {
            Some(bucket) => Arc::new(bucket.clone()),
            None => Arc::new(local.clone()),
        };
        let served = bucket.clone();
        tasks.spawn(server::serve(listener.0, local, served, admission, stop.clone()));
        Served {
            address,
            storage,
            bucket,
        }
    }
}

/// Opens the storage of a bucket on a blocking thread.
async fn open_bucket(
    options: &Options,
    local: LocalDirectory,
    bucket: Bucket,
    stop: &Token,
) -> Result<BucketStorage, StorageError> {
    let (limit, runtime) = (options.bucket.storage_cache_max_bytes, Handle::current());
    let stop = stop.clone();
    let open = move || BucketStorage::open(local, bucket, limit, runtime, stop);
    let failed = |error: JoinError| StorageError::Directory { source: error.into() };
    tokio::task::spawn_blocking(open).await.map_err(failed)?
}

/// Returns the name of this host for events, the Lease and the advertised address.
pub(crate) fn hostname(options: &StorageOptions) -> String {
    if options.hostname.is_empty() {
        manager::hostname()
    } else {
        options.hostname.clone()
    }
}

/// The listener of the file server.
struct ArtifactListener(TcpListener);

impl ArtifactListener {
    async fn open(options: &StorageOptions) -> Result<Self, StartError> {
        let text = &options.storage_addr;
        let missing = || StartError::Address(AddressError(text.clone()));
        let address = text.parse::<ListenAddress>().map_err(|_| missing())?;
        let listener = bind("--storage-addr", &address).await?;
        listener.map(Self).ok_or_else(missing)
    }

    fn address(&self) -> Result<SocketAddr, StartError> {
        self.0.local_addr().map_err(|source| {
            StartError::Listen(ListenError {
                flag: "--storage-addr",
                address: String::new(),
                source,
            })
        })
    }

    /// Returns the address for consumers, with the bound port.
    fn advertised(&self, options: &StorageOptions) -> Result<String, StartError> {
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

    /// Returns the rules for the requests that the file server answers.
    fn admission(&self, options: &StorageOptions, advertised: &str) -> Result<Admission, StartError> {
        Ok(Admission::new(
            self.address()?,
            advertised,
            &options.storage_allowed_hosts,
            options.artifact_token.clone(),
        ))
    }
}

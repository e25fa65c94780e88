//! What [`crate::cluster`] and [`crate::node`] have in common: keys and flags of etcd and kube-apiserver, access to the API, and
//! the errors of components.

mod access;
mod components;

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use access::{Access, AccessError};
pub(crate) use access::{apply, get, token};
pub(crate) use components::{Durability, Keys, api_client, apiserver, audit, audit_log, etcd};
use sluice_images::archive::ArchiveError;
use sluice_images::layer::LayerError;

use crate::gobuild::BuildError;
use crate::packages::PackageError;
use crate::process::Process;
use crate::tls::CertificateError;

/// Time limit for the start of a component, long enough for the slowest build machine.
pub(crate) const READY_TIMEOUT: Duration = Duration::from_mins(3);
/// Time between two checks of a component that starts.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Lines of the log of a component in an error.
pub(crate) const LOG_LINES: usize = 20;

/// Why a component of Kubernetes is not available.
#[derive(Debug, thiserror::Error)]
pub enum ComponentError {
    /// A program could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The container runtime could not be downloaded.
    #[error(transparent)]
    Packages(#[from] PackageError),
    /// A certificate cannot be created.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// An operation on a file or process failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The API does not work.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A component ended, or was not ready in time.
    #[error("{component} {how}; the end of its log:\n{log}")]
    NotReady {
        /// The program.
        component: &'static str,
        /// `ended` or `was not ready in time`.
        how: &'static str,
        /// The end of its log.
        log: String,
    },
    /// The image of the process that holds the namespaces of a pod cannot be packed.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// It cannot be written.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The container runtime refuses an image.
    #[error("cannot import {archive}: {why}")]
    Import {
        /// The archive.
        archive: PathBuf,
        /// The error.
        why: String,
    },
}

/// Acts on the process of the API server.
///
/// # Errors
/// When it is not running.
pub(crate) fn signal_api(
    api: Option<&Process>,
    act: impl FnOnce(&Process) -> io::Result<()>,
) -> Result<(), ComponentError> {
    let not_running = || io::Error::other("it is not running");
    let sent = api.ok_or_else(not_running).and_then(act);
    sent.map_err(system("signal kube-apiserver"))
}

/// Adds the operation to an error of the system.
pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> ComponentError {
    move |source| ComponentError::System { what, source }
}

/// Locks a mutex whose holder may have failed a test.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

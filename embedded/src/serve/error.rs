//! Errors of serving the API.

use std::{io, net::SocketAddr, path::PathBuf};

/// The error of a server that cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be bound.
    #[error("cannot listen on {addr}: {source}")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file of the directory cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Keys or certificates cannot be created, or those of an earlier run cannot be read.
    #[error("TLS credentials: {0}")]
    Tls(String),
}

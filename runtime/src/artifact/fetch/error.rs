//! Why an artifact could not be downloaded.

use std::time::Duration;

use http::StatusCode;

use crate::artifact::checksum::ChecksumError;
use crate::failure::{Class, Failure};
use crate::redact::MaskedUrl;

/// An artifact could not be downloaded.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The URL is not http or https.
    #[error("{url} is not an http or https URL")]
    BadUrl {
        /// The URL.
        url: MaskedUrl,
    },
    /// The digest is not supported.
    #[error(transparent)]
    BadDigest(#[from] ChecksumError),
    /// 404: the artifact was garbage collected or is not yet available.
    #[error("artifact not found at {url}")]
    Absent {
        /// The URL.
        url: MaskedUrl,
        /// Delay before a retry.
        wait: Duration,
    },
    /// A response other than 200.
    #[error("cannot download {url}: status {status}")]
    Status {
        /// The URL.
        url: MaskedUrl,
        /// The status of the response.
        status: StatusCode,
    },
    /// The connection could not be opened, or broke.
    #[error("cannot download {url}")]
    Broken {
        /// The URL.
        url: MaskedUrl,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server was idle or too slow.
    #[error("cannot download {url}: not answered within {limit:?}")]
    Silent {
        /// The URL.
        url: MaskedUrl,
        /// The exceeded limit.
        limit: Duration,
    },
    /// The artifact is too large.
    #[error("artifact at {url} is larger than {limit} bytes")]
    TooLarge {
        /// The URL.
        url: MaskedUrl,
        /// The limit in bytes.
        limit: u64,
    },
    /// The size differs from the status.
    #[error("expected artifact size {expected}, got {got} from {url}")]
    Size {
        /// The URL.
        url: MaskedUrl,
        /// Size in the status.
        expected: u64,
        /// Size of the response.
        got: u64,
    },
    /// The digest differs from the status.
    #[error("failed to verify artifact: computed digest doesn't match, got {computed} from {url}")]
    Digest {
        /// The URL.
        url: MaskedUrl,
        /// The computed digest in hex.
        computed: String,
    },
    /// The file cannot be written.
    #[error("cannot write the artifact to disk")]
    File {
        /// Error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The program is stopping.
    #[error("stopped while downloading")]
    Stopped,
}

impl Failure for FetchError {
    fn class(&self) -> Class {
        match self {
            Self::Absent { wait, .. } => Class::Waiting(*wait),
            // These failures can end without a change of the reconciled object.
            Self::BadUrl { .. }
            | Self::BadDigest(_)
            | Self::Status { .. }
            | Self::Broken { .. }
            | Self::Silent { .. }
            | Self::TooLarge { .. }
            | Self::Size { .. }
            | Self::Digest { .. }
            | Self::File { .. }
            | Self::Stopped => Class::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        "ArtifactFailed"
    }
}

//! Errors of submodules.

use std::time::Duration;

use sluice_runtime::failure::{Class, Failure};
use sluice_runtime::redact::MaskedUrl;

use super::{MAX_DEPTH, MAX_SUBMODULES};
use crate::git::{FetchError, ReadError};
use crate::submodule::GitmodulesError;

/// An error that prevents a submodule checkout.
#[derive(Debug, thiserror::Error)]
pub enum SubmoduleError {
    /// The `.gitmodules` file is invalid.
    #[error("'{path}': {source}")]
    Description {
        /// Path of the `.gitmodules` file.
        path: String,
        /// The defect.
        #[source]
        source: GitmodulesError,
    },
    /// The `.gitmodules` file is too large.
    #[error("'{path}' has more than {limit} bytes")]
    TooLong {
        /// Path of the `.gitmodules` file.
        path: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// The gitlink has no entry in `.gitmodules`.
    #[error("no url found for submodule path '{path}' in .gitmodules")]
    MissingUrl {
        /// Path of the submodule.
        path: String,
    },
    /// The URL is invalid.
    #[error("submodule '{path}': url '{url}': {why}")]
    Address {
        /// Path of the submodule.
        path: String,
        /// The URL as written.
        url: MaskedUrl,
        /// The defect.
        why: String,
    },
    /// Submodules are nested too deeply.
    #[error("submodule '{path}' is more than {MAX_DEPTH} submodules deep")]
    TooDeep {
        /// Path of the submodule.
        path: String,
    },
    /// The repository has too many submodules.
    #[error(
        "submodule '{path}' exceeds the limit of {MAX_SUBMODULES} submodules per repository, nested ones included"
    )]
    TooMany {
        /// Path of the submodule.
        path: String,
    },
    /// The commit cannot be fetched.
    #[error("submodule '{path}' ({url}): {source}{hint}")]
    Fetch {
        /// Path of the submodule.
        path: String,
        /// The remote's URL, without userinfo.
        url: String,
        /// The cause.
        #[source]
        source: Box<FetchError>,
        /// A hint about the likely cause; may be empty.
        hint: &'static str,
    },
    /// The checkout reached its deadline.
    #[error("submodule '{path}' ({url}): not fetched within {limit:?}, the timeout of the checkout")]
    TimedOut {
        /// Path of the submodule.
        path: String,
        /// The remote's URL, without userinfo.
        url: String,
        /// The timeout, `spec.timeout`.
        limit: Duration,
    },
    /// No slot at another host became free before the deadline.
    #[error("submodule '{path}': no free slot at {host} within {limit:?}, the timeout of the checkout")]
    NoSlot {
        /// Path of the submodule.
        path: String,
        /// The host.
        host: String,
        /// The timeout, `spec.timeout`.
        limit: Duration,
    },
    /// The fetched commit cannot be read.
    #[error("submodules of '{path}': {source}")]
    Read {
        /// Path of the submodule; `.` for the repository itself.
        path: String,
        /// The cause.
        #[source]
        source: ReadError,
    },
}

impl Failure for SubmoduleError {
    fn class(&self) -> Class {
        match self {
            Self::Fetch { source, .. } => source.class(),
            Self::Read { source, .. } => source.class(),
            // Another commit can fix this; the retry detects it.
            Self::Description { .. }
            | Self::TooLong { .. }
            | Self::MissingUrl { .. }
            | Self::Address { .. }
            | Self::TooDeep { .. }
            | Self::TooMany { .. }
            | Self::TimedOut { .. }
            | Self::NoSlot { .. } => Class::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        "GitOperationFailed"
    }
}

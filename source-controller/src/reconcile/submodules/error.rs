//! What can go wrong between a gitlink and its commit, with its class and its public reason.

use std::time::Duration;

use sluice_runtime::failure::{Class, Failure};
use sluice_runtime::redact::MaskedUrl;

use super::{DEEPEST, MOST};
use crate::git::{FetchError, ReadError};
use crate::submodule::GitmodulesError;

/// Why a repository's submodules are not there.
#[derive(Debug, thiserror::Error)]
pub enum SubmoduleError {
    /// The description of the submodules cannot be used.
    #[error("'{path}': {source}")]
    Description {
        /// Path of the `.gitmodules` file.
        path: String,
        /// What is wrong with it.
        #[source]
        source: GitmodulesError,
    },
    /// The description of the submodules is too long.
    #[error("'{path}' has more than {limit} bytes")]
    TooLong {
        /// Path of the `.gitmodules` file.
        path: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// A gitlink that is not described.
    #[error("no url found for submodule path '{path}' in .gitmodules")]
    Undescribed {
        /// Its path.
        path: String,
    },
    /// An address that cannot be used.
    #[error("submodule '{path}': url '{url}': {why}")]
    Address {
        /// Its path.
        path: String,
        /// The address as it is written.
        url: MaskedUrl,
        /// What is wrong with it.
        why: String,
    },
    /// Submodules within submodules without an end.
    #[error("submodule '{path}' is more than {DEEPEST} submodules deep")]
    TooDeep {
        /// Its path.
        path: String,
    },
    /// More of them than anybody needs.
    #[error("submodule '{path}' is one too many: a repository may have {MOST} with those of its submodules")]
    TooMany {
        /// Its path.
        path: String,
    },
    /// The remote does not give the commit.
    #[error("submodule '{path}' ({url}): {source}{hint}")]
    Fetch {
        /// Its path.
        path: String,
        /// The remote, without userinfo.
        url: String,
        /// Why.
        #[source]
        source: Box<FetchError>,
        /// What may be the reason; empty if the error says it all.
        hint: &'static str,
    },
    /// The time for the whole checkout is over.
    #[error("submodule '{path}' ({url}): not fetched within {limit:?}, the time for the whole checkout")]
    TimedOut {
        /// Its path.
        path: String,
        /// The remote, without userinfo.
        url: String,
        /// The time allowed, `spec.timeout`.
        limit: Duration,
    },
    /// All places at another host were taken until the time was over.
    #[error(
        "submodule '{path}': no place at {host} was free within {limit:?}, the time for the whole checkout"
    )]
    NoPlace {
        /// Its path.
        path: String,
        /// The host.
        host: String,
        /// The time allowed, `spec.timeout`.
        limit: Duration,
    },
    /// What was fetched cannot be read.
    #[error("submodules of '{path}': {source}")]
    Read {
        /// Path of the submodule; `.` for the repository itself.
        path: String,
        /// Why.
        #[source]
        source: ReadError,
    },
}

impl Failure for SubmoduleError {
    fn class(&self) -> Class {
        match self {
            Self::Fetch { source, .. } => source.class(),
            Self::Read { source, .. } => source.class(),
            // Another commit mends it, which is noticed by looking again.
            Self::Description { .. }
            | Self::TooLong { .. }
            | Self::Undescribed { .. }
            | Self::Address { .. }
            | Self::TooDeep { .. }
            | Self::TooMany { .. }
            | Self::TimedOut { .. }
            | Self::NoPlace { .. } => Class::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        "GitOperationFailed"
    }
}

//! What can go wrong between an address and a commit on disk, with its class and its public reason.

mod protocol;
mod read;
mod ssh;

use std::time::Duration;

use git2::Oid;
use jiff::Timestamp;
use sluice_runtime::failure::{Class, Failure};

use super::address::AddressError;
use super::credentials::CredentialsError;
use super::protocol::advertisement::AdvertisementError;
use sluice_runtime::semver::ConstraintError;

pub(super) use protocol::ProtocolError;
pub use read::ReadError;
pub use ssh::{AuthMethodError, HandshakeError};

/// Why a commit could not be found out or fetched. Messages name host, ref and limit, and never a secret.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No connection, or one that broke.
    #[error("cannot talk to {host}: {why}")]
    Connection {
        /// The host.
        host: String,
        /// The chain of causes.
        why: String,
    },
    /// The time for the whole operation is over.
    #[error("timed out: no complete answer from {host} within {limit:?} (deadline exceeded)")]
    TimedOut {
        /// The host.
        host: String,
        /// The time allowed, `spec.timeout`.
        limit: Duration,
    },
    /// The program is stopping, or the object went away.
    #[error("the operation was stopped")]
    Stopped,
    /// No https connection can be made with what the Secret has.
    #[error("{0} ('tls.crt' and 'tls.key' of the secret)")]
    Tls(String),
    /// No ssh connection can be made with what the Secret has.
    #[error("unable to construct auth method with options: {0}")]
    AuthMethod(#[source] AuthMethodError),
    /// The two sides of an ssh connection do not come together.
    #[error("unable to list remote for '{url}': ssh: handshake failed: {source}")]
    Handshake {
        /// The remote, without userinfo.
        url: String,
        /// What is wrong.
        #[source]
        source: HandshakeError,
    },
    /// The server did not run Git's command, or the command ended before it said anything.
    #[error("unable to list remote for '{url}': {ended}")]
    Command {
        /// The remote, without userinfo.
        url: String,
        /// How it ended, with what it said.
        ended: String,
    },
    /// 401.
    #[error("unable to list remote for '{url}': authentication required{said}")]
    AuthenticationRequired {
        /// The remote, without userinfo.
        url: String,
        /// What the server said about it.
        said: Said,
    },
    /// 403.
    #[error("unable to list remote for '{url}': authorization failed{said}")]
    AuthorizationFailed {
        /// The remote, without userinfo.
        url: String,
        /// What the server said about it.
        said: Said,
    },
    /// 404.
    #[error("unable to list remote for '{url}': repository not found{said}")]
    RepositoryNotFound {
        /// The remote, without userinfo.
        url: String,
        /// What the server said about it.
        said: Said,
    },
    /// The server asks to be left alone for a while.
    #[error("{host} asks to wait {} (HTTP status {status})", how_long(*wait, *until))]
    Throttled {
        /// The host.
        host: String,
        /// 429 or 503, or 403 with `Retry-After`.
        status: u16,
        /// How long, from `Retry-After`.
        wait: Duration,
        /// Until when, once somebody with a clock knows of it.
        until: Option<Timestamp>,
    },
    /// Any other answer that is no success.
    #[error("unexpected HTTP status {status} from '{url}'{said}")]
    Status {
        /// The remote, without userinfo.
        url: String,
        /// The status.
        status: u16,
        /// What the server said about it.
        said: Said,
    },
    /// A redirection that is not followed.
    #[error("'{url}' redirects in a way that is not followed: {why}")]
    Redirect {
        /// The remote, without userinfo.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The server has no repository in a form that can be read.
    #[error("unable to list remote for '{url}': {source}")]
    Advertisement {
        /// The remote, without userinfo.
        url: String,
        /// What is missing.
        #[source]
        source: AdvertisementError,
    },
    /// The server breaks the protocol, or reports an error by its means.
    #[error("bad answer from {host}: {why}")]
    Answer {
        /// The host.
        host: String,
        /// What was wrong, or what the server said.
        why: String,
    },
    /// The branch or tag does not exist.
    #[error("unable to clone '{url}': couldn't find remote ref \"{name}\"")]
    MissingReference {
        /// The remote, without userinfo.
        url: String,
        /// Full name of the ref.
        name: String,
    },
    /// `spec.ref.name` has a form that no ref has.
    #[error("ref {name} is invalid; Git refs cannot begin or end with a slash '/'")]
    InvalidName {
        /// The name as the user wrote it.
        name: String,
    },
    /// The ref that `spec.ref.name` names does not exist.
    #[error("unable to resolve ref '{name}' to a specific commit")]
    UnresolvedName {
        /// The name as the user wrote it.
        name: String,
    },
    /// No tag satisfies the constraint.
    #[error("no match found for semver: {constraint}")]
    NoMatch {
        /// The constraint as the user wrote it.
        constraint: String,
    },
    /// `spec.ref.semver` is no constraint.
    #[error("semver parse error: {0}")]
    BadConstraint(#[from] ConstraintError),
    /// The repository has no ref at all, and something else than a branch was asked for.
    #[error("unable to {doing} '{url}': remote repository is empty")]
    EmptyRemote {
        /// The remote, without userinfo.
        url: String,
        /// What could not be done.
        doing: &'static str,
    },
    /// A list of refs longer than is allowed.
    #[error("{host} lists refs in more than {limit} bytes; raise {flag} or delete refs")]
    RefsTooLong {
        /// The host.
        host: String,
        /// The limit.
        limit: u64,
        /// The flag that sets it.
        flag: &'static str,
    },
    /// The repository has no commit at all.
    #[error("git repository is empty")]
    Empty,
    /// The pinned commit does not exist at the remote, or is no full object name.
    #[error("unable to resolve commit object for '{commit}': object not found")]
    CommitNotFound {
        /// The commit as the user wrote it.
        commit: String,
    },
    /// The object that was asked for leads to something that has no files.
    #[error("object {id} is a {kind}, not a commit")]
    NotACommit {
        /// The object.
        id: Oid,
        /// What it is.
        kind: String,
    },
    /// The server names a commit to which its tag does not lead.
    #[error("{host} says that tag object {object} leads to commit {commit}, which it does not")]
    FalseTag {
        /// The host.
        host: String,
        /// The object that the ref holds.
        object: Oid,
        /// The commit that the server named.
        commit: Oid,
    },
    /// The remote sent more than is allowed.
    #[error(
        "the repository is too large: more than {limit} {unit} in one fetch; raise {flag} or make it smaller"
    )]
    TooLarge {
        /// The limit.
        limit: u64,
        /// Of what.
        unit: &'static str,
        /// The flag that sets it.
        flag: &'static str,
    },
    /// The pack cannot be unpacked.
    #[error("{host} sent a pack that cannot be used: {why}")]
    Pack {
        /// The host.
        host: String,
        /// What is wrong with it.
        why: String,
    },
    /// The mirror's directory cannot be read or written.
    #[error("mirror storage: {0}")]
    Storage(#[from] std::io::Error),
    /// The mirror holds the commit, but not in a readable form.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl FetchError {
    /// Whether the server refused whoever was asking.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::AuthenticationRequired { .. } | Self::AuthorizationFailed { .. }
        )
    }
}

impl Failure for FetchError {
    fn class(&self) -> Class {
        match self {
            Self::Throttled { wait, .. } => Class::Waiting(*wait),
            // As upstream: a ref may appear, a Secret may be mended, a server may come back, a limit may be raised.
            Self::Connection { .. }
            | Self::TimedOut { .. }
            | Self::Stopped
            | Self::Tls(_)
            | Self::AuthMethod(_)
            | Self::Handshake { .. }
            | Self::Command { .. }
            | Self::AuthenticationRequired { .. }
            | Self::AuthorizationFailed { .. }
            | Self::RepositoryNotFound { .. }
            | Self::Status { .. }
            | Self::Redirect { .. }
            | Self::Advertisement { .. }
            | Self::Answer { .. }
            | Self::MissingReference { .. }
            | Self::InvalidName { .. }
            | Self::UnresolvedName { .. }
            | Self::NoMatch { .. }
            | Self::BadConstraint(_)
            | Self::EmptyRemote { .. }
            | Self::RefsTooLong { .. }
            | Self::Empty
            | Self::CommitNotFound { .. }
            | Self::NotACommit { .. }
            | Self::FalseTag { .. }
            | Self::TooLarge { .. }
            | Self::Pack { .. }
            | Self::Storage(_) => Class::Transient,
            Self::Read(error) => error.class(),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Empty => "EmptyGitRepository",
            Self::Read(error) => error.reason(),
            Self::Storage(_) => "StorageOperationFailed",
            _ => "GitOperationFailed",
        }
    }
}

/// A time does not change while it is waited for, and so neither does the object that shows it.
fn how_long(wait: Duration, until: Option<Timestamp>) -> String {
    until.map_or_else(|| format!("{wait:?}"), |until| format!("until {until}"))
}

impl Failure for AddressError {
    fn class(&self) -> Class {
        match self {
            Self::Invalid { .. } => Class::Terminal,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "URLInvalid",
        }
    }
}

impl Failure for CredentialsError {
    fn class(&self) -> Class {
        match self {
            // All of these are mended by editing the Secret, not the object.
            Self::PasswordWithoutUsername { .. }
            | Self::BasicAndBearer
            | Self::Required(_)
            | Self::Encrypted
            | Self::NotHeader(_)
            | Self::NotText(_) => Class::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            // Upstream finds this out when it makes its Git client.
            Self::BasicAndBearer => "GitOperationFailed",
            Self::PasswordWithoutUsername { .. }
            | Self::Required(_)
            | Self::Encrypted
            | Self::NotHeader(_)
            | Self::NotText(_) => "AuthenticationFailed",
        }
    }
}

/// The beginning of a server's error page, if it had one to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said(pub String);

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            Ok(())
        } else {
            write!(f, ": {}", self.0)
        }
    }
}

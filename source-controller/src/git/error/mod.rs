//! Errors between an address and a commit on disk, with class and public reason.

mod read;
mod ssh;

use std::time::Duration;

use git2::Oid;
use jiff::Timestamp;
pub use read::ReadError;
use sluice_runtime::failure::{Class, Failure};
use sluice_runtime::semver::ConstraintError;
pub use ssh::{AuthMethodError, HandshakeError};

use super::address::AddressError;
use super::credentials::CredentialsError;
use super::protocol::advertisement::AdvertisementError;
use super::protocol::fetch::ResponseError;
use super::protocol::ls_refs::LineError;
use super::protocol::pkt_line::PacketError;
use super::protocol::v0::RefAdvertisementError;

/// Why a commit could not be resolved or fetched. Messages name host, ref and limit, but never a secret.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The connection failed or broke.
    #[error("cannot talk to {host}: {why}")]
    Connection {
        /// The host.
        host: String,
        /// The chain of causes.
        why: String,
    },
    /// The timeout of the whole operation expired.
    #[error("timed out: no complete response from {host} within {limit:?} (deadline exceeded)")]
    TimedOut {
        /// The host.
        host: String,
        /// The time allowed, `spec.timeout`.
        limit: Duration,
    },
    /// The process is stopping, or the object was deleted.
    #[error("the operation was stopped")]
    Stopped,
    /// The Secret does not allow an https connection.
    #[error("{0} ('tls.crt' and 'tls.key' of the secret)")]
    Tls(String),
    /// The Secret does not allow an ssh connection.
    #[error("unable to construct auth method with options: {0}")]
    AuthMethod(#[source] AuthMethodError),
    /// The ssh handshake failed.
    #[error("unable to list remote for '{url}': ssh: handshake failed: {source}")]
    Handshake {
        /// The remote, without userinfo.
        url: String,
        /// The cause.
        #[source]
        source: HandshakeError,
    },
    /// The server did not run Git's command, or the command ended before its first output.
    #[error("unable to list remote for '{url}': {why}")]
    Command {
        /// The remote, without userinfo.
        url: String,
        /// How it ended, with its output.
        why: String,
    },
    /// 401.
    #[error("unable to list remote for '{url}': authentication required{message}")]
    AuthenticationRequired {
        /// The remote, without userinfo.
        url: String,
        /// The server's message.
        message: ServerMessage,
    },
    /// 403.
    #[error("unable to list remote for '{url}': authorization failed{message}")]
    AuthorizationFailed {
        /// The remote, without userinfo.
        url: String,
        /// The server's message.
        message: ServerMessage,
    },
    /// 404.
    #[error("unable to list remote for '{url}': repository not found{message}")]
    RepositoryNotFound {
        /// The remote, without userinfo.
        url: String,
        /// The server's message.
        message: ServerMessage,
    },
    /// The server requests a delay.
    #[error("{host} asks to wait {} (HTTP status {status})", wait_text(*wait, *until))]
    Throttled {
        /// The host.
        host: String,
        /// 429 or 503, or 403 with `Retry-After`.
        status: u16,
        /// The delay from `Retry-After`.
        wait: Duration,
        /// End of the delay, set by a caller that has a clock.
        until: Option<Timestamp>,
    },
    /// Any other HTTP status that is not a success.
    #[error("unexpected HTTP status {status} from '{url}'{message}")]
    Status {
        /// The remote, without userinfo.
        url: String,
        /// The status.
        status: u16,
        /// The server's message.
        message: ServerMessage,
    },
    /// A redirect that is not followed.
    #[error("'{url}' has an invalid redirect: {why}")]
    Redirect {
        /// The remote, without userinfo.
        url: String,
        /// The reason.
        why: String,
    },
    /// The server does not offer a repository in a supported format.
    #[error("unable to list remote for '{url}': {source}")]
    Advertisement {
        /// The remote, without userinfo.
        url: String,
        /// What is missing.
        #[source]
        source: AdvertisementError,
    },
    /// The server violates the protocol, or reports an error through it.
    #[error("invalid response from {host}: {why}")]
    Protocol {
        /// The host.
        host: String,
        /// The violation, or the server's message.
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
    /// `spec.ref.name` is not a valid ref name.
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
    /// `spec.ref.semver` is not a valid constraint.
    #[error("semver parse error: {0}")]
    BadConstraint(#[from] ConstraintError),
    /// The repository has no ref at all, and the reference is not a branch.
    #[error("unable to {operation} '{url}': remote repository is empty")]
    EmptyRemote {
        /// The remote, without userinfo.
        url: String,
        /// The operation that failed.
        operation: &'static str,
    },
    /// A list of refs longer than allowed.
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
    /// The pinned commit does not exist at the remote, or is not a full object name.
    #[error("unable to resolve commit object for '{commit}': object not found")]
    CommitNotFound {
        /// The commit as the user wrote it.
        commit: String,
    },
    /// The requested object does not lead to a commit.
    #[error("object {id} is a {kind}, not a commit")]
    NotACommit {
        /// The object.
        id: Oid,
        /// Its type.
        kind: String,
    },
    /// The server reports a commit to which its tag does not lead.
    #[error("{host} reports commit {commit} for tag object {object}, which does not point to it")]
    FalseTag {
        /// The host.
        host: String,
        /// The object that the ref points to.
        object: Oid,
        /// The commit that the server reported.
        commit: Oid,
    },
    /// The remote sent more than allowed.
    #[error(
        "the repository is too large: more than {limit} {unit} in one fetch; raise {flag} or make it smaller"
    )]
    TooLarge {
        /// The limit.
        limit: u64,
        /// The unit of the limit.
        unit: &'static str,
        /// The flag that sets it.
        flag: &'static str,
    },
    /// The pack cannot be unpacked.
    #[error("{host} sent an invalid pack: {why}")]
    Pack {
        /// The host.
        host: String,
        /// The reason.
        why: String,
    },
    /// The mirror's directory cannot be read or written.
    #[error("mirror storage: {0}")]
    Storage(#[from] std::io::Error),
    /// The mirror contains the commit, but it cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl FetchError {
    /// Whether the server denied access.
    #[must_use]
    pub(crate) const fn is_access_denied(&self) -> bool {
        matches!(
            self,
            Self::AuthenticationRequired { .. } | Self::AuthorizationFailed { .. }
        )
    }

    /// Whether a request to another URL of the repository, or with other capabilities, may succeed.
    pub(super) const fn may_depend_on_endpoint(&self) -> bool {
        matches!(
            self,
            Self::Connection { .. }
                | Self::AuthenticationRequired { .. }
                | Self::AuthorizationFailed { .. }
                | Self::RepositoryNotFound { .. }
                | Self::Status { .. }
                | Self::Redirect { .. }
                | Self::Protocol { .. }
        )
    }
}

impl Failure for FetchError {
    fn class(&self) -> Class {
        match self {
            Self::Throttled { wait, .. } => Class::Waiting(*wait),
            // As upstream: a ref may appear, a Secret may be corrected, a server may recover, a limit may be raised.
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
            | Self::Protocol { .. }
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

/// Returns a text that stays constant while the delay runs, so that the object's status does not change.
fn wait_text(wait: Duration, until: Option<Timestamp>) -> String {
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
            // Editing the Secret, not the object, fixes all of these.
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
            // Upstream detects this when it creates its Git client.
            Self::BasicAndBearer => "GitOperationFailed",
            Self::PasswordWithoutUsername { .. }
            | Self::Required(_)
            | Self::Encrypted
            | Self::NotHeader(_)
            | Self::NotText(_) => "AuthenticationFailed",
        }
    }
}

/// The first bytes of a server's error page; may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerMessage(pub String);

impl std::fmt::Display for ServerMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            Ok(())
        } else {
            write!(f, ": {}", self.0)
        }
    }
}

/// Errors of the pure protocol parsers, which do not know the host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProtocolError {
    #[error(transparent)]
    Packet(#[from] PacketError),
    #[error(transparent)]
    Line(#[from] LineError),
    #[error(transparent)]
    RefAdvertisement(#[from] RefAdvertisementError),
    #[error(transparent)]
    Response(#[from] ResponseError),
    #[error("the response ended early")]
    Truncated,
    #[error("the response is longer than {0} bytes")]
    TooLong(u64),
}

impl ProtocolError {
    /// Adds the host.
    pub(super) fn for_host(self, host: &str) -> FetchError {
        FetchError::Protocol {
            host: host.to_owned(),
            why: self.to_string(),
        }
    }
}

//! Why `sluice record` fails: each message names the object or the file.

use std::io;

use sluice_cli::CliError;
use sluice_runtime::failure::chain;
use sluice_tf_core::record::{KeyError, NotEnded, RecordError, SignError};

/// Why a record is not written, or not accepted. Each message contains its causes.
#[derive(Debug, thiserror::Error)]
pub enum RecordCommandError {
    /// There is no client.
    #[error(transparent)]
    Client(#[from] CliError),
    /// The API rejects a request or does not answer.
    #[error("cannot {action} {object}: {}", api_message(.source))]
    Api {
        /// `get` or `list`.
        action: &'static str,
        /// The object.
        object: String,
        /// The error of the API.
        source: Box<kube::Error>,
    },
    /// The object does not exist.
    #[error("{0} does not exist")]
    NotFound(String),
    /// The stack has no such run.
    #[error("{stack} has no {run}: `kubectl get terraformruns` lists its runs")]
    NoRun {
        /// The stack.
        stack: String,
        /// The run that was asked for.
        run: String,
    },
    /// The run has not ended.
    #[error("{run}: {source}")]
    NotEnded {
        /// The run.
        run: String,
        /// Its phase.
        source: NotEnded,
    },
    /// The Secret does not have the data key of the signing key.
    #[error("{secret} has no data key {key}")]
    NoDataKey {
        /// The Secret.
        secret: String,
        /// The data key.
        key: &'static str,
    },
    /// The key cannot be used.
    #[error("the key of {place} cannot be used: {source}")]
    Key {
        /// The file or Secret.
        place: String,
        /// Why.
        source: KeyError,
    },
    /// The record cannot be signed.
    #[error("{run}: {source}")]
    Sign {
        /// The run.
        run: String,
        /// Why.
        source: SignError,
    },
    /// The record is refused.
    #[error("{file} is refused: {source}")]
    Refused {
        /// The file.
        file: String,
        /// Why.
        source: RecordError,
    },
    /// A file cannot be read or written.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// What the command was about to do, for example `read the key`.
        action: &'static str,
        /// The file.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
}

/// What a command was about to do with the file of a key.
pub(super) const READ_KEY: &str = "read the key";

impl RecordCommandError {
    /// Returns what the user can do next; empty: nothing is known.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::Client(error) => error.advice(),
            Self::Key { .. } | Self::File { action: READ_KEY, .. } => KEY_ADVICE.to_owned(),
            Self::NotEnded { .. } => "wait for its end, or name another run with --run".to_owned(),
            Self::Api { .. }
            | Self::NotFound(_)
            | Self::NoRun { .. }
            | Self::NoDataKey { .. }
            | Self::Sign { .. }
            | Self::Refused { .. }
            | Self::File { .. } => String::new(),
        }
    }
}

/// How a user gets the keys of docs/guides/run-records.md.
const KEY_ADVICE: &str = "`openssl genpkey -algorithm ed25519 -out KEY` creates a key that signs, and `openssl pkey -in KEY -pubout -out PUBLIC` \
     writes the one that verifies";

/// Returns the message of a rejection without the wrapping of the client.
fn api_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => chain(other),
    }
}

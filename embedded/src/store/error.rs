//! Errors of the store.

/// The error of a store that cannot be opened or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Error of the database.
    #[error("store {path}: {source}")]
    Database {
        /// Path of the file.
        path: String,
        /// Error of the database.
        #[source]
        source: Box<redb::Error>,
    },
    /// A record does not decode.
    #[error("store {path}: the record {key:?} does not decode: {reason}")]
    Corrupt {
        /// Path of the file.
        path: String,
        /// Key of the record.
        key: String,
        /// Error of the decoder.
        reason: String,
    },
    /// A file of the store cannot be opened, created or read.
    #[error("store {path}: {source}")]
    File {
        /// Path of the file.
        path: String,
        /// Error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The file belongs to another user, who could modify it.
    #[error("store {path}: the file belongs to the user id {uid}")]
    Foreign {
        /// Path of the file.
        path: String,
        /// User id of the owner.
        uid: u32,
    },
    /// The file is empty, which a new store never is.
    #[error(
        "store {path}: the file is empty; put a copy in its place, or remove it to start without objects"
    )]
    Empty {
        /// Path of the file.
        path: String,
    },
    /// The pages of the file do not match their checksums.
    #[error("store {path}: the file is damaged: {reason}")]
    Damaged {
        /// Path of the file.
        path: String,
        /// Mismatch.
        reason: String,
    },
    /// A newer program wrote the file.
    #[error(
        "store {path}: the file has the format {format}, this program supports {supported}: use a newer program"
    )]
    Newer {
        /// Path of the file.
        path: String,
        /// Format of the file.
        format: u64,
        /// Newest supported format.
        supported: u64,
    },
    /// The repository or a file in it cannot be used.
    #[error("store {repository}, branch {branch}: {reason}")]
    Git {
        /// Directory or URL of the repository.
        repository: String,
        /// Name of the branch.
        branch: String,
        /// Error and remedy.
        reason: String,
    },
    /// The file could not be reopened after an error.
    #[error("store {path}: not writable after an error: {reason}")]
    Unwritable {
        /// Path of the file.
        path: String,
        /// Error of opening it.
        reason: String,
    },
}

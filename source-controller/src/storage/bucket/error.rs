//! Errors of a bucket: they name bucket and key, say what failed and what to do. The texts of the server are not passed on: they may
//! contain parts of credentials.

use std::error::Error;

use object_store::path::Path;

/// Maximum length of a cause in a message, in bytes.
const MAX_CAUSE: usize = 200;
/// The codes of servers that have no more space: of Ceph, of `MinIO` for a quota and for its disks, and of S3.
const FULL_CODES: [&str; 4] = [
    "QuotaExceeded",
    "XMinioAdminBucketQuotaExceeded",
    "XMinioStorageFull",
    "InsufficientCapacity",
];
/// The codes for a bucket that does not exist: of S3 and Google, and of Azure.
const NO_BUCKET_CODES: [&str; 2] = ["NoSuchBucket", "ContainerNotFound"];
/// The codes for credentials that are missing, invalid or without the permission: of S3 and Google, and of Azure. Not every error has a class:
/// those of listings have none, and S3 answers 400 when credentials have expired.
const DENIED_CODES: [&str; 9] = [
    "AccessDenied",
    "AuthenticationRequired",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "AuthenticationFailed",
    "AuthorizationFailure",
    "AuthorizationPermissionMismatch",
];

/// A failed operation on a bucket.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {key:?} in bucket {bucket:?}: {problem}")]
pub struct BucketError {
    pub(super) operation: &'static str,
    pub(super) bucket: String,
    pub(super) key: String,
    pub(super) problem: Problem,
}

/// What is wrong.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The credentials are missing, invalid or without the permission.
    #[error(
        "access denied ({0}): check the credentials in the environment or of the pod's identity, and that they may read, write, list and delete there"
    )]
    Denied(String),
    /// The bucket does not exist.
    #[error("the bucket does not exist: create it, or correct --storage-bucket")]
    NoBucket,
    /// The bucket accepts no more data.
    #[error("the bucket is full ({0}): raise its quota, or delete objects that no program needs")]
    Full(String),
    /// Another process has changed the object meanwhile.
    #[error("another instance has changed it; the next reconciliation tries again")]
    Changed,
    /// The content is not what its name says.
    #[error("its content does not match its digest; a later reconciliation stores it again")]
    Damaged,
    /// The object is no pointer.
    #[error("it names no content; a later reconciliation replaces it")]
    InvalidPointer,
    /// The server sends a content too slowly.
    #[error("the download is too slow: check the network to the bucket")]
    TooSlow,
    /// The server cannot do what is required.
    #[error("not supported by this server ({0}): it must support conditional writes and multipart uploads")]
    Unsupported(String),
    /// No answer within the time limit.
    #[error("no answer in time: check that --storage-bucket-endpoint can be reached from here")]
    TimedOut,
    /// The program is stopping.
    #[error("the program is stopping")]
    Stopped,
    /// The object does not exist.
    #[error("it does not exist")]
    Missing,
    /// The server failed, or cannot be reached.
    #[error("{0}; it is tried again")]
    Unavailable(String),
}

impl Problem {
    /// Returns the problem of an error.
    pub(super) fn of(error: &object_store::Error) -> Self {
        use object_store::Error as Store;
        let cause = match Cause::of(error) {
            Cause::Full(cause) => return Self::Full(cause),
            Cause::Other(cause) => cause,
        };
        if NO_BUCKET_CODES.contains(&&*cause) {
            return Self::NoBucket;
        }
        if DENIED_CODES.contains(&&*cause) {
            return Self::Denied(cause);
        }
        match error {
            Store::PermissionDenied { .. } | Store::Unauthenticated { .. } => Self::Denied(cause),
            Store::NotFound { .. } => Self::Missing,
            Store::Precondition { .. } | Store::AlreadyExists { .. } => Self::Changed,
            Store::NotSupported { .. }
            | Store::NotImplemented { .. }
            | Store::UnknownConfigurationKey { .. }
            | Store::InvalidPath { .. } => Self::Unsupported(cause),
            _ => Self::Unavailable(cause),
        }
    }
}

impl BucketError {
    /// Returns what is wrong.
    #[must_use]
    pub const fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Returns the `CamelCase` reason for conditions and events.
    pub(in crate::storage) fn reason(&self) -> &'static str {
        match self.operation {
            "delete" => "GarbageCollectionFailed",
            "write" => "ArchiveOperationFailed",
            _ => "StatOperationFailed",
        }
    }

    /// Creates the error of an operation on a key.
    pub(super) fn new(operation: &'static str, bucket: &str, key: &Path, problem: Problem) -> Self {
        Self {
            operation,
            bucket: bucket.to_owned(),
            key: key.to_string(),
            problem,
        }
    }
}

/// A response with the status 507, which the HTTP client makes an error: the crate `object_store` shows no statuses.
#[derive(Debug, thiserror::Error)]
#[error("507 Insufficient Storage")]
pub(super) struct InsufficientStorage;

/// What an error says of its cause.
enum Cause {
    /// The server has no more space: its code, or the status.
    Full(String),
    /// The code of the server, or else the innermost cause without the body of a response.
    Other(String),
}

impl Cause {
    fn of(error: &object_store::Error) -> Self {
        let mut innermost: &(dyn Error + 'static) = error;
        loop {
            if let Some(full) = innermost.downcast_ref::<InsufficientStorage>() {
                return Self::Full(full.to_string());
            }
            let text = innermost.to_string();
            if let Some(code) = between(&text, "<Code>", "</Code>") {
                return Self::of_code(code);
            }
            match innermost.source() {
                Some(next) => innermost = next,
                None => return Self::Other(first_line(&text)),
            }
        }
    }

    fn of_code(code: &str) -> Self {
        let letters = code.chars().filter(char::is_ascii_alphanumeric);
        let code: String = letters.take(64).collect();
        if FULL_CODES.contains(&&*code) {
            Self::Full(code)
        } else {
            Self::Other(code)
        }
    }
}

/// Returns the cause of an error without the text of a server.
pub(super) fn cause(error: &object_store::Error) -> String {
    match Cause::of(error) {
        Cause::Full(cause) | Cause::Other(cause) => cause,
    }
}

/// Returns the beginning of a text, without the body of a response.
fn first_line(text: &str) -> String {
    let end = text.find(['<', '{', '\n']).unwrap_or(text.len());
    let mut end = end.min(MAX_CAUSE);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].trim_end_matches([':', ' ']).to_owned()
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(inner, _)| inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(text: &str) -> object_store::Error {
        object_store::Error::PermissionDenied {
            path: "a".into(),
            source: text.to_owned().into(),
        }
    }

    #[test]
    fn the_text_of_a_server_is_reduced_to_its_code() {
        let body = "<Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>AKIA7</AWSAccessKeyId></Error>";
        let problem = Problem::of(&denied(body));
        assert_eq!(problem, Problem::Denied("SignatureDoesNotMatch".into()));
        let full = Problem::of(&denied("<Code>QuotaExceeded</Code>"));
        assert_eq!(full, Problem::Full("QuotaExceeded".into()));
        // Only a code or the status says so.
        let address = Problem::of(&denied("no QuotaExceeded from 127.0.0.1:50700"));
        assert_eq!(
            address,
            Problem::Denied("no QuotaExceeded from 127.0.0.1:50700".into())
        );
        let other = Problem::of(&denied("status 403: {\"token\": \"s3cret\"}"));
        assert_eq!(other, Problem::Denied("status 403".into()));
    }

    #[test]
    fn an_error_without_a_class_is_classified_by_its_code() {
        let listing = |code: &str| {
            let source = format!("Error performing list request: <Error><Code>{code}</Code></Error>").into();
            Problem::of(&object_store::Error::Generic { store: "S3", source })
        };
        assert_eq!(listing("NoSuchBucket"), Problem::NoBucket);
        assert_eq!(listing("ContainerNotFound"), Problem::NoBucket);
        let denied = Problem::Denied("AuthorizationFailure".into());
        assert_eq!(listing("AuthorizationFailure"), denied);
        let failed = Problem::Unavailable("InternalError".into());
        assert_eq!(listing("InternalError"), failed);
    }

    #[test]
    fn a_message_names_bucket_and_key_and_what_to_do() {
        let key = Path::from("p/gitrepository/ns/n/ab.tar.gz.digest");
        let error = BucketError::new("write", "artifacts", &key, Problem::NoBucket);
        assert_eq!(
            error.to_string(),
            "cannot write \"p/gitrepository/ns/n/ab.tar.gz.digest\" in bucket \"artifacts\": the bucket does not exist: create it, or correct --storage-bucket"
        );
    }
}

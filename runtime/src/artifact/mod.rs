//! Consumption of artifacts: [`Fetcher`] downloads an artifact and verifies its digest, [`unpack()`] extracts it without
//! trusting its content.

mod checksum;
mod fetch;
mod unpack;

pub use checksum::{Checksum, ChecksumError};
pub use fetch::{ArtifactRef, FailedAttempt, FetchError, Fetcher};
pub use unpack::{Limits, UnpackError, UnpackSummary, unpack};

//! Consuming what a source produced: [`Fetcher`] downloads an artifact and proves its digest, [`unpack`] extracts it
//! without trusting a byte of it.

mod checksum;
mod fetch;
mod unpack;

pub use checksum::{Checksum, ChecksumError};
pub use fetch::{FetchError, Fetcher, Wanted};
pub use unpack::{Limits, UnpackError, Unpacked, unpack};

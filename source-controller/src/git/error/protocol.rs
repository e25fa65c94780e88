//! What the pure parsers find wrong, with the host that wrote it.

use super::super::protocol::fetch::AnswerError;
use super::super::protocol::ls_refs::LineError;
use super::super::protocol::packet::PacketError;
use super::super::protocol::v0::ListingError;
use super::FetchError;

/// Errors of the pure protocol parsers, which know no host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in super::super) enum ProtocolError {
    #[error(transparent)]
    Packet(#[from] PacketError),
    #[error(transparent)]
    Line(#[from] LineError),
    #[error(transparent)]
    Listing(#[from] ListingError),
    #[error(transparent)]
    Answer(#[from] AnswerError),
    #[error("the answer ended early")]
    Truncated,
    #[error("the answer is longer than {0} bytes")]
    TooLong(u64),
}

impl ProtocolError {
    /// With the host that did it.
    pub(in super::super) fn of(self, host: &str) -> FetchError {
        FetchError::Answer {
            host: host.to_owned(),
            why: self.to_string(),
        }
    }
}

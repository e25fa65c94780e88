//! Errors of the protocol parsers, combined with the host.

use super::super::protocol::fetch::ResponseError;
use super::super::protocol::ls_refs::LineError;
use super::super::protocol::packet::PacketError;
use super::super::protocol::v0::RefAdvertisementError;
use super::FetchError;

/// Errors of the pure protocol parsers, which do not know the host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in super::super) enum ProtocolError {
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
    pub(in super::super) fn for_host(self, host: &str) -> FetchError {
        FetchError::Protocol {
            host: host.to_owned(),
            why: self.to_string(),
        }
    }
}

//! A server's answer as a stream of packets, bounded in bytes.

use bytes::BytesMut;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::super::error::{FetchError, ProtocolError};
use super::super::protocol::packet::{self, Packet};
use super::http::connection_error;

/// Bytes behind the last packet that are read to keep the connection; more closes it.
const LEFTOVER: u64 = 64 * 1024;

/// The packets of one answer.
#[derive(Debug)]
pub(in super::super) struct Packets {
    body: Incoming,
    buffer: BytesMut,
    host: String,
    taken: u64,
    limit: u64,
}

impl Packets {
    pub(super) fn new(body: Incoming, host: String) -> Self {
        Self {
            body,
            buffer: BytesMut::new(),
            host,
            taken: 0,
            limit: u64::MAX,
        }
    }

    /// Lets the answer have at most `bytes` bytes.
    #[must_use]
    pub(in super::super) const fn at_most(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// The host that answers.
    pub(in super::super) fn host(&self) -> &str {
        &self.host
    }

    /// Bytes of the answer so far.
    pub(in super::super) const fn taken(&self) -> u64 {
        self.taken
    }

    /// The next packet.
    ///
    /// # Errors
    /// The connection broke, the answer ended early or grew beyond the limit, or its bytes are no packets.
    pub(in super::super) async fn next(&mut self) -> Result<Packet, FetchError> {
        loop {
            match packet::decode(&mut self.buffer) {
                Ok(Some(packet)) => return Ok(packet),
                Ok(None) => {}
                Err(error) => return Err(ProtocolError::Packet(error).of(&self.host)),
            }
            if !self.more().await? {
                return Err(ProtocolError::Truncated.of(&self.host));
            }
        }
    }

    /// Reads what is behind the last packet, so that the connection can be used again.
    pub(in super::super) async fn finish(mut self) {
        self.limit = self.taken.saturating_add(LEFTOVER);
        while matches!(self.more().await, Ok(true)) {
            self.buffer.clear();
        }
    }

    async fn more(&mut self) -> Result<bool, FetchError> {
        let Some(frame) = self.body.frame().await else {
            return Ok(false);
        };
        let frame = frame.map_err(|error| connection_error(&self.host, &error))?;
        if let Ok(data) = frame.into_data() {
            self.taken += data.len() as u64;
            if self.taken > self.limit {
                return Err(ProtocolError::TooLong(self.limit).of(&self.host));
            }
            self.buffer.extend_from_slice(&data);
        }
        Ok(true)
    }
}

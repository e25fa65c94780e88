//! A server's answer as a stream of packets, bounded in bytes.

use std::fmt;

use bytes::{Bytes, BytesMut};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};

use super::super::error::{FetchError, ProtocolError};
use super::super::protocol::packet::{self, Packet};
use super::super::remote::REFS_BYTES_FLAG;

/// Bytes behind the last packet that are read to keep the connection; more closes it.
const LEFTOVER: u64 = 64 * 1024;

/// The packets of one answer.
pub(in super::super) struct Packets {
    body: BoxStream<'static, Result<Bytes, String>>,
    buffer: BytesMut,
    host: String,
    taken: u64,
    limit: u64,
}

impl Packets {
    /// The packets in the pieces of an answer; a broken connection is a piece that says why.
    pub(super) fn new(
        body: impl Stream<Item = Result<Bytes, String>> + Send + 'static,
        host: String,
    ) -> Self {
        Self {
            body: body.boxed(),
            buffer: BytesMut::new(),
            host,
            taken: 0,
            limit: u64::MAX,
        }
    }

    /// Lets the answer, a list of refs, have at most `bytes` bytes.
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

    /// The next bytes as they are, behind the last packet that was taken; none at the end of the answer.
    ///
    /// # Errors
    /// The connection broke, or the answer grew beyond the limit.
    pub(in super::super) async fn rest(&mut self) -> Result<Option<Bytes>, FetchError> {
        while self.buffer.is_empty() {
            if !self.more().await? {
                return Ok(None);
            }
        }
        Ok(Some(self.buffer.split().freeze()))
    }

    /// Reads what is behind the last packet, so that the connection can be used again.
    pub(in super::super) async fn finish(mut self) {
        self.limit = self.taken.saturating_add(LEFTOVER);
        while matches!(self.more().await, Ok(true)) {
            self.buffer.clear();
        }
    }

    async fn more(&mut self) -> Result<bool, FetchError> {
        let Some(piece) = self.body.next().await else {
            return Ok(false);
        };
        let data = piece.map_err(|why| FetchError::Connection {
            host: self.host.clone(),
            why,
        })?;
        self.taken += data.len() as u64;
        if self.taken > self.limit {
            return Err(FetchError::RefsTooLong {
                host: self.host.clone(),
                limit: self.limit,
                flag: REFS_BYTES_FLAG,
            });
        }
        self.buffer.extend_from_slice(&data);
        Ok(true)
    }
}

impl fmt::Debug for Packets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packets")
            .field("host", &self.host)
            .field("taken", &self.taken)
            .finish_non_exhaustive()
    }
}

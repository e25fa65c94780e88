//! A server's response as a stream of packets with a size limit.

use std::fmt;

use bytes::{Bytes, BytesMut};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use sluice_runtime::failure::chain;

use super::super::error::{FetchError, ProtocolError};
use super::super::protocol::pkt_line::{self, Packet};
use super::super::remote::REFS_BYTES_FLAG;

/// Bytes after the last packet that are read to reuse the connection; more bytes close it.
const MAX_TRAILING_BYTES: u64 = 64 * 1024;

/// The packets of one response.
pub(in super::super) struct Packets {
    body: Body,
    buffer: BytesMut,
    host: String,
    bytes_read: u64,
    limit: u64,
}

/// The chunks of a response.
enum Body {
    /// Of http, without a box: nearly all responses are.
    Http(Incoming),
    /// Of another transport.
    Chunks(BoxStream<'static, Result<Bytes, String>>),
}

impl Body {
    /// Returns the next chunk, or the cause of a broken connection.
    async fn next(&mut self) -> Option<Result<Bytes, String>> {
        match self {
            Self::Http(body) => loop {
                match body.frame().await? {
                    Ok(frame) => {
                        // Trailers are skipped.
                        if let Ok(data) = frame.into_data() {
                            return Some(Ok(data));
                        }
                    }
                    Err(error) => return Some(Err(chain(&error))),
                }
            },
            Self::Chunks(chunks) => chunks.next().await,
        }
    }
}

impl Packets {
    /// Reads packets from the chunks of a response; an error chunk contains the cause of a broken connection.
    pub(super) fn new(
        chunks: impl Stream<Item = Result<Bytes, String>> + Send + 'static,
        host: String,
    ) -> Self {
        Self::of(Body::Chunks(Box::pin(chunks)), host)
    }

    /// Reads packets from the body of an http response.
    pub(super) fn from_http(body: Incoming, host: String) -> Self {
        Self::of(Body::Http(body), host)
    }

    fn of(body: Body, host: String) -> Self {
        Self {
            body,
            buffer: BytesMut::new(),
            host,
            bytes_read: 0,
            limit: u64::MAX,
        }
    }

    /// Limits the response, a list of refs, to `bytes` bytes.
    #[must_use]
    pub(in super::super) const fn with_limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// Returns the host that responds.
    pub(in super::super) fn host(&self) -> &str {
        &self.host
    }

    /// Returns the number of bytes read so far.
    pub(in super::super) const fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Returns the next packet.
    ///
    /// # Errors
    /// The connection broke, the response ended early or exceeded the limit, or its bytes are not packets.
    pub(in super::super) async fn next(&mut self) -> Result<Packet, FetchError> {
        loop {
            match pkt_line::decode(&mut self.buffer) {
                Ok(Some(packet)) => return Ok(packet),
                Ok(None) => {}
                Err(error) => return Err(ProtocolError::Packet(error).for_host(&self.host)),
            }
            if !self.read_more().await? {
                return Err(ProtocolError::Truncated.for_host(&self.host));
            }
        }
    }

    /// Returns the next raw bytes after the last packet; `None` at the end of the response.
    ///
    /// # Errors
    /// The connection broke, or the response exceeded the limit.
    pub(in super::super) async fn next_bytes(&mut self) -> Result<Option<Bytes>, FetchError> {
        while self.buffer.is_empty() {
            if !self.read_more().await? {
                return Ok(None);
            }
        }
        Ok(Some(self.buffer.split().freeze()))
    }

    /// Reads the bytes after the last packet, so that the connection can be reused.
    pub(in super::super) async fn finish(&mut self) {
        self.limit = self.bytes_read.saturating_add(MAX_TRAILING_BYTES);
        while matches!(self.read_more().await, Ok(true)) {
            self.buffer.clear();
        }
    }

    async fn read_more(&mut self) -> Result<bool, FetchError> {
        let Some(chunk) = self.body.next().await else {
            return Ok(false);
        };
        let data = chunk.map_err(|why| FetchError::Connection {
            host: self.host.clone(),
            why,
        })?;
        self.bytes_read += data.len() as u64;
        if self.bytes_read > self.limit {
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
            .field("bytes_read", &self.bytes_read)
            .finish_non_exhaustive()
    }
}

//! The response to a fetch request, for all protocol versions.

use super::super::error::{FetchError, ProtocolError};
use super::super::mirror::OpenGeneration;
use super::super::protocol::advertisement::Capabilities;
use super::super::protocol::fetch::{self, Event, FetchArguments, INFINITE_DEPTH};
use super::super::protocol::v0;
use super::super::remote::Remote;
use super::super::transport::Packets;
use super::transfer::{Haves, TransferRequest};

/// A response that is being read.
pub(super) struct ResponseReader {
    packets: Packets,
    parser: Parser,
}

/// Parser for the version of the response.
enum Parser {
    V2(fetch::ResponseParser),
    V0(v0::ResponseParser),
}

impl ResponseReader {
    /// Requests the objects of a step; objects of the generation are excluded.
    pub(super) async fn send(
        remote: &Remote,
        opened: &OpenGeneration,
        request: &TransferRequest,
    ) -> Result<Self, FetchError> {
        let endpoint = remote.transport.endpoint(remote).await?;
        // Requests without a history send no `shallow` lines.
        let shallow_commits = opened.record.shallow.iter().filter(|_| request.depth.is_some());
        let shallow: Vec<_> = shallow_commits.copied().collect();
        let arguments = FetchArguments {
            wants: &request.wants,
            haves: match request.haves {
                Haves::Tips => &opened.record.tips,
                Haves::Wants => &request.wants,
                Haves::None => &[],
            },
            shallow: &shallow,
            depth: request.depth.map(|depth| depth.min(INFINITE_DEPTH)),
            pack: request.pack,
        };
        let (body, parser) = match &endpoint.capabilities {
            Capabilities::V2(capabilities) => (
                fetch::request(capabilities, &arguments),
                Parser::V2(fetch::ResponseParser::default()),
            ),
            Capabilities::V0(capabilities) => (
                v0::request(capabilities, &arguments),
                Parser::V0(v0::ResponseParser::new(capabilities)),
            ),
        };
        let packets = remote.transport.command(remote, &endpoint, body).await?;
        Ok(Self { packets, parser })
    }

    /// Returns the meaning of the next packet, if it is relevant.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, FetchError> {
        let event = match &mut self.parser {
            Parser::V0(parser) if parser.is_raw() => {
                // The pack's own checksum proves that it is complete.
                return Ok(Some(
                    self.packets.next_bytes().await?.map_or(Event::End, Event::Pack),
                ));
            }
            Parser::V0(parser) => parser.accept(self.packets.next().await?),
            Parser::V2(parser) => parser.accept(self.packets.next().await?),
        };
        event.map_err(|error| ProtocolError::Response(error).for_host(self.packets.host()))
    }

    /// Returns the host that responds.
    pub(super) fn host(&self) -> &str {
        self.packets.host()
    }

    /// Returns the number of bytes read so far.
    pub(super) const fn bytes_read(&self) -> u64 {
        self.packets.bytes_read()
    }

    /// Returns the connection to the pool after the response was read completely.
    pub(super) async fn finish(self) {
        self.packets.finish().await;
    }
}

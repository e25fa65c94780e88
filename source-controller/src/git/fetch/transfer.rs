//! One fetch request and its response, for all protocol versions, from the network to the indexing job.

use std::sync::Arc;

use git2::Oid;
use tokio::sync::mpsc;

use super::super::error::{FetchError, ProtocolError};
use super::super::mirror::OpenGeneration;
use super::super::protocol::advertisement::Capabilities;
use super::super::protocol::fetch::{self, Event, FetchArguments, INFINITE_DEPTH, PackMode};
use super::super::protocol::v0;
use super::super::remote::{PACK_BYTES_FLAG, REFS_BYTES_FLAG, Remote};
use super::super::transport::Packets;
use super::job::{Chunk, Job, Outcome, ShallowUpdate};
use super::{Fetch, Guard};

/// Chunks of a pack between network and disk; with packets of 64 KiB at most 1 MiB.
const CHANNEL_CAPACITY: usize = 16;

/// One fetch request.
#[derive(Clone, Debug)]
pub(super) struct TransferRequest {
    /// The wanted objects.
    pub(super) wants: Vec<Oid>,
    /// The objects that the server may omit.
    pub(super) haves: Haves,
    /// Number of commits in each history, if the objects are commits.
    pub(super) depth: Option<u32>,
    /// What the pack may omit.
    pub(super) pack: PackMode,
    /// Maximum size of the pack in bytes.
    pub(super) budget: u64,
}

/// Content of the `have` lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Haves {
    /// The commits of the mirror.
    Tips,
    /// The wanted commits themselves: only their histories are missing.
    Wants,
    /// No lines.
    None,
}

/// Result of a request.
pub(super) struct Attempt {
    /// Present if another attempt is possible.
    pub(super) guard: Option<Guard>,
    pub(super) result: Result<Outcome, FetchError>,
    /// The server responded without a pack.
    pub(super) refused: bool,
    /// Size of the pack in bytes.
    pub(super) bytes: u64,
}

impl Attempt {
    fn without_pack(guard: Guard, error: FetchError) -> Self {
        Self {
            guard: Some(guard),
            refused: matches!(error, FetchError::Protocol { .. }),
            result: Err(error),
            bytes: 0,
        }
    }
}

impl Fetch<'_> {
    /// Sends the request, indexes the pack, verifies and records the commit.
    pub(super) async fn transfer(
        &self,
        guard: Guard,
        opened: OpenGeneration,
        request: &TransferRequest,
    ) -> Attempt {
        let mut response = match Response::send(self.remote, &opened, request).await {
            Ok(response) => response,
            Err(error) => return Attempt::without_pack(guard, error),
        };
        let mut shallow_update = ShallowUpdate::default();
        let first = match self.first_chunk(&mut response, &mut shallow_update).await {
            Ok(first) => first,
            Err(error) => return Attempt::without_pack(guard, error),
        };
        let (sender, chunks) = mpsc::channel(CHANNEL_CAPACITY);
        let job = Job {
            mirror: Arc::clone(self.mirror),
            head: self.commit_ref(),
            extent: self.extent,
            limits: self.remote.limits,
            host: response.packets.host().to_owned(),
            stop: self.stop.clone(),
            shallow_update,
        };
        let job = self.mirror.threads().run(move || job.run(guard, opened, chunks));
        let mut bytes = 0;
        let feed_result = feed(response, first, sender, request.budget, &mut bytes);
        let (feed_result, job_result) = tokio::join!(feed_result, job);
        let (guard, result) = match job_result {
            Ok((guard, result)) => (Some(guard), result),
            Err(error) => (None, Err(error)),
        };
        // Prefer the indexer's error over the network error, unless the indexer only stopped because of the network.
        let result = match (feed_result, result) {
            (Err(error), Err(FetchError::Stopped)) => Err(error),
            (_, result) => result,
        };
        Attempt {
            guard,
            result,
            refused: false,
            bytes,
        }
    }

    /// Reads the response up to the start of the pack.
    async fn first_chunk(
        &self,
        response: &mut Response,
        shallow_update: &mut ShallowUpdate,
    ) -> Result<Chunk, FetchError> {
        let limit = self.remote.limits.refs_bytes;
        loop {
            match response.next().await? {
                Some(Event::Shallow(id)) => shallow_update.shallow.push(id),
                Some(Event::Unshallow(id)) => shallow_update.unshallow.push(id),
                Some(Event::Pack(bytes)) => return Ok(Chunk::Data(bytes)),
                Some(Event::End) => return Ok(Chunk::End),
                None => {}
            }
            if response.packets.bytes_read() > limit {
                return Err(FetchError::TooLarge {
                    limit,
                    unit: "bytes before the pack",
                    flag: REFS_BYTES_FLAG,
                });
            }
        }
    }
}

/// Passes the pack to the job, chunk by chunk. Signals the end only after the response is complete.
async fn feed(
    mut response: Response,
    first: Chunk,
    sender: mpsc::Sender<Chunk>,
    budget: u64,
    total: &mut u64,
) -> Result<(), FetchError> {
    let mut chunk = Some(first);
    loop {
        match chunk.take() {
            Some(Chunk::Data(bytes)) => {
                *total += bytes.len() as u64;
                if *total > budget {
                    return Err(FetchError::TooLarge {
                        limit: budget,
                        unit: "bytes",
                        flag: PACK_BYTES_FLAG,
                    });
                }
                if sender.send(Chunk::Data(bytes)).await.is_err() {
                    return Ok(());
                }
            }
            Some(Chunk::End) => {
                response.packets.finish().await;
                // The job may have ended with its own error.
                let _ = sender.send(Chunk::End).await;
                return Ok(());
            }
            None => {}
        }
        chunk = match response.next().await? {
            Some(Event::Pack(bytes)) => Some(Chunk::Data(bytes)),
            Some(Event::End) => Some(Chunk::End),
            Some(Event::Shallow(_) | Event::Unshallow(_)) | None => None,
        };
    }
}

/// A response that is being read.
struct Response {
    packets: Packets,
    parser: Parser,
}

/// Parser for the version of the response.
enum Parser {
    V2(fetch::ResponseParser),
    V0(v0::ResponseParser),
}

impl Response {
    /// Requests the objects of a step; objects of the generation are excluded.
    async fn send(
        remote: &Remote,
        opened: &OpenGeneration,
        request: &TransferRequest,
    ) -> Result<Self, FetchError> {
        let endpoint = remote.transport.confirmed_endpoint(remote).await?;
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
    async fn next(&mut self) -> Result<Option<Event>, FetchError> {
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
}

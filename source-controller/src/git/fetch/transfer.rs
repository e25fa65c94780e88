//! One request for objects and its answer, from the network to the job that indexes it.

use std::sync::Arc;

use git2::Oid;
use tokio::sync::mpsc;

use super::super::error::FetchError;
use super::super::index::Piece;
use super::super::mirror::Opened;
use super::super::protocol::fetch::{Event, Pack};
use super::super::remote::{PACK_BYTES_FLAG, REFS_BYTES_FLAG};
use super::job::{Boundary, Got, Job};
use super::reply::Reply;
use super::{Fetch, Guard};

/// Pieces of a pack between network and disk; with packets of 64 KiB at most 1 MiB.
const IN_FLIGHT: usize = 16;

/// What one request asks for.
#[derive(Clone, Debug)]
pub(super) struct Round {
    /// The objects.
    pub(super) wants: Vec<Oid>,
    /// What the server is told that it need not send.
    pub(super) held: Held,
    /// Commits of each history, where the objects have one.
    pub(super) depth: Option<u32>,
    /// What the pack may leave out.
    pub(super) pack: Pack,
    /// Bytes that the pack may have.
    pub(super) budget: u64,
}

/// What is held already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// The commits of the mirror.
    Tips,
    /// The wanted commits themselves: only their histories are wanted.
    Wanted,
    /// Nothing that the server could make use of.
    Nothing,
}

/// How a request went.
pub(super) struct Attempt {
    /// Comes back if there may be another attempt.
    pub(super) guard: Option<Guard>,
    pub(super) result: Result<Got, FetchError>,
    /// The server answered, and not with a pack.
    pub(super) refused: bool,
    /// Bytes of the pack.
    pub(super) bytes: u64,
}

impl Attempt {
    fn without_pack(guard: Guard, error: FetchError) -> Self {
        Self {
            guard: Some(guard),
            refused: matches!(error, FetchError::Answer { .. }),
            result: Err(error),
            bytes: 0,
        }
    }
}

impl Fetch<'_> {
    /// Asks, indexes, checks and records.
    pub(super) async fn transfer(&self, guard: Guard, opened: Opened, round: &Round) -> Attempt {
        let mut reply = match Reply::ask(self.remote, &opened, round).await {
            Ok(reply) => reply,
            Err(error) => return Attempt::without_pack(guard, error),
        };
        let mut boundary = Boundary::default();
        let first = match self.first_piece(&mut reply, &mut boundary).await {
            Ok(first) => first,
            Err(error) => return Attempt::without_pack(guard, error),
        };
        let (sender, pieces) = mpsc::channel(IN_FLIGHT);
        let job = Job {
            mirror: Arc::clone(self.mirror),
            head: self.named(),
            extent: self.extent,
            limits: self.remote.limits,
            host: reply.host().to_owned(),
            stop: self.stop.clone(),
            boundary,
        };
        let job = self.mirror.threads().run(move || job.run(guard, opened, pieces));
        let mut bytes = 0;
        let feeding = feed(reply, first, sender, round.budget, &mut bytes);
        let (fed, ended) = tokio::join!(feeding, job);
        let (guard, done) = match ended {
            Ok((guard, done)) => (Some(guard), done),
            Err(error) => (None, Err(error)),
        };
        // A job that ended on its own has the better explanation than the network side that it left alone, but one
        // that was left alone has none.
        let result = match (fed, done) {
            (Err(error), Err(FetchError::Stopped)) => Err(error),
            (_, done) => done,
        };
        Attempt {
            guard,
            result,
            refused: false,
            bytes,
        }
    }

    /// Reads the answer up to where the pack begins.
    async fn first_piece(&self, reply: &mut Reply, boundary: &mut Boundary) -> Result<Piece, FetchError> {
        let limit = self.remote.limits.refs_bytes;
        loop {
            match reply.next().await? {
                Some(Event::Shallow(id)) => boundary.shallow.push(id),
                Some(Event::Unshallow(id)) => boundary.unshallow.push(id),
                Some(Event::Pack(bytes)) => return Ok(Piece::Data(bytes)),
                Some(Event::End) => return Ok(Piece::End),
                None => {}
            }
            if reply.taken() > limit {
                return Err(FetchError::TooLarge {
                    limit,
                    unit: "bytes before the pack",
                    flag: REFS_BYTES_FLAG,
                });
            }
        }
    }
}

/// Hands the pack over to the job, piece by piece. The end is handed over only when the answer is complete.
async fn feed(
    mut reply: Reply,
    first: Piece,
    sender: mpsc::Sender<Piece>,
    budget: u64,
    total: &mut u64,
) -> Result<(), FetchError> {
    let mut piece = Some(first);
    loop {
        match piece.take() {
            Some(Piece::Data(bytes)) => {
                *total += bytes.len() as u64;
                if *total > budget {
                    return Err(FetchError::TooLarge {
                        limit: budget,
                        unit: "bytes",
                        flag: PACK_BYTES_FLAG,
                    });
                }
                if sender.send(Piece::Data(bytes)).await.is_err() {
                    return Ok(());
                }
            }
            Some(Piece::End) => {
                reply.finish().await;
                // The job may have ended before, with an error that it gives itself.
                let _ = sender.send(Piece::End).await;
                return Ok(());
            }
            None => {}
        }
        piece = match reply.next().await? {
            Some(Event::Pack(bytes)) => Some(Piece::Data(bytes)),
            Some(Event::End) => Some(Piece::End),
            Some(Event::Shallow(_) | Event::Unshallow(_)) | None => None,
        };
    }
}

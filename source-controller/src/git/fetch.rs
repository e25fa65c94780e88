//! Bringing a commit into a mirror: nothing travels if it is there, the difference if a relative is, all otherwise.

use std::future::Future;
use std::io;
use std::sync::Arc;

use git2::Oid;
use tokio::sync::{OwnedMutexGuard, mpsc};
use tokio_util::sync::CancellationToken;

use super::checkout::Checkout;
use super::error::{FetchError, ProtocolError, ReadError};
use super::head::Head;
use super::index::{Piece, index};
use super::mirror::{Mirror, Opened, Writer, open_objects};
use super::protocol::fetch::{Answer, Event, Wish, request};
use super::reference::Reference;
use super::remote::{Limits, PACK_BYTES_FLAG, Remote};
use super::transport::Packets;

/// Pieces of a pack between network and disk; with packets of 64 KiB at most 1 MiB.
const IN_FLIGHT: usize = 16;

/// Fetches the commit of `head` and gives a checkout of it. The whole operation, waiting for the mirror included, ends
/// within the remote's timeout or when `stop` is cancelled; the mirror is then as it was before.
///
/// # Errors
/// The remote cannot be reached or understood, no longer has the commit, sends more than is allowed, or the mirror
/// cannot be written.
pub async fn fetch(
    mirror: &Arc<Mirror>,
    remote: &Remote,
    head: &Head,
    stop: &CancellationToken,
) -> Result<Checkout, FetchError> {
    let inner = stop.child_token();
    // Blocking work cannot be dropped: it is told, whichever way this function is left.
    let told = inner.clone().drop_guard();
    let limit = remote.timeout;
    let fetch = Fetch {
        mirror,
        remote,
        head,
        stop: inner,
    };
    let result = within(tokio::time::timeout(limit, Box::pin(fetch.run())), stop).await;
    drop(told);
    let result = match result {
        Some(Ok(result)) => result,
        Some(Err(_)) => Err(FetchError::TimedOut {
            host: remote.address.host(),
            limit,
        }),
        None => Err(FetchError::Stopped),
    };
    result.inspect_err(|_| {
        remote.transport.forget(remote);
    })
}

async fn within<T>(work: impl Future<Output = T>, stop: &CancellationToken) -> Option<T> {
    tokio::select! {
        result = work => Some(result),
        () = stop.cancelled() => None,
    }
}

type Guard = OwnedMutexGuard<Writer>;

/// What one fetch is about.
struct Fetch<'a> {
    mirror: &'a Arc<Mirror>,
    remote: &'a Remote,
    head: &'a Head,
    stop: CancellationToken,
}

impl Fetch<'_> {
    async fn run(&self) -> Result<Checkout, FetchError> {
        let guard = self.mirror.lock().await;
        let (guard, local) = self.local(guard).await?;
        let (opened, fresh) = match local {
            Local::Held(checkout) => return Ok(checkout),
            Local::Behind(opened) => (opened, false),
            Local::Empty(opened) => (opened, true),
        };
        match self.transfer(guard, opened).await {
            // What is held does not fit together with what the server takes it for: begin anew, once.
            (Some(guard), Err(FetchError::Pack { .. } | FetchError::Read(ReadError::Object { .. })))
                if !fresh =>
            {
                tracing::info!(url = %self.remote.address, "the mirror is made anew");
                let (guard, opened) = blocking(move || guard.fresh().map(|opened| (guard, opened))).await??;
                self.transfer(guard, opened).await.1
            }
            (_, result) => result,
        }
    }

    /// Looks whether anything has to travel at all, and into which generation.
    async fn local(&self, mut guard: Guard) -> Result<(Guard, Local), FetchError> {
        let (mirror, limits) = (Arc::clone(self.mirror), self.remote.limits);
        let Head { commit, object, .. } = *self.head;
        blocking(move || {
            let mut opened = guard.opened()?;
            if opened.record.tips.contains(&commit) && !opened.generation.is_condemned() {
                match complete(mirror, &mut opened, commit, limits) {
                    // The commit came by another ref: the tag that names it now is still to come.
                    Ok(checkout) if !checkout.holds(object) => return Ok((guard, Local::Behind(opened))),
                    Ok(checkout) => {
                        guard.keep(opened);
                        return Ok((guard, Local::Held(checkout)));
                    }
                    Err(error) => {
                        tracing::info!(error = &error as &dyn std::error::Error, "a mirror lost objects");
                        opened.generation.condemn();
                    }
                }
            }
            let local = match (opened.is_frayed(), opened.record.tips.is_empty()) {
                (true, _) => Local::Empty(guard.fresh()?),
                (false, true) => Local::Empty(opened),
                (false, false) => Local::Behind(opened),
            };
            Ok((guard, local))
        })
        .await?
    }

    /// Asks, indexes, checks and records. The guard comes back if there may be another attempt.
    async fn transfer(&self, guard: Guard, opened: Opened) -> (Option<Guard>, Result<Checkout, FetchError>) {
        let mut packets = match self.ask(&opened).await {
            Ok(packets) => packets,
            Err(error) => return (Some(guard), Err(error)),
        };
        let (mut answer, mut boundary) = (Answer::default(), Boundary::default());
        let first = match self.first_piece(&mut packets, &mut answer, &mut boundary).await {
            Ok(first) => first,
            Err(error) => return (Some(guard), Err(error)),
        };
        let (sender, pieces) = mpsc::channel(IN_FLIGHT);
        let job = Job {
            mirror: Arc::clone(self.mirror),
            commit: self.head.commit,
            limits: self.remote.limits,
            host: packets.host().to_owned(),
            stop: self.stop.clone(),
            boundary,
        };
        let job = tokio::task::spawn_blocking(move || job.run(guard, opened, pieces));
        let fed = self.feed(packets, answer, first, sender).await;
        let (guard, done) = match job.await {
            Ok((guard, done)) => (Some(guard), done),
            Err(error) => (None, Err(FetchError::Storage(io::Error::other(error)))),
        };
        // A job that ended on its own has the better explanation than the network side that it left alone, but one
        // that was left alone has none.
        match (fed, done) {
            (Err(error), Err(FetchError::Stopped)) => (guard, Err(error)),
            (_, done) => (guard, done),
        }
    }

    async fn ask(&self, opened: &Opened) -> Result<Packets, FetchError> {
        let endpoint = self.remote.transport.endpoint(self.remote).await?;
        let shallow: Vec<_> = opened.record.shallow.iter().copied().collect();
        let wish = Wish {
            want: self.head.object,
            have: &opened.record.tips,
            shallow: &shallow,
        };
        self.remote
            .transport
            .command(self.remote, &endpoint, request(&endpoint.capabilities, &wish))
            .await
    }

    /// Reads the answer up to where the pack begins.
    async fn first_piece(
        &self,
        packets: &mut Packets,
        answer: &mut Answer,
        boundary: &mut Boundary,
    ) -> Result<Piece, FetchError> {
        loop {
            let packet = packets.next().await?;
            match answer
                .accept(packet)
                .map_err(|error| self.refused(ProtocolError::Answer(error), packets.host()))?
            {
                Some(Event::Shallow(id)) => boundary.shallow.push(id),
                Some(Event::Unshallow(id)) => boundary.unshallow.push(id),
                Some(Event::Pack(bytes)) => return Ok(Piece::Data(bytes)),
                Some(Event::End) => return Ok(Piece::End),
                None => {}
            }
            if packets.taken() > self.remote.limits.refs_bytes {
                return Err(ProtocolError::TooLong(self.remote.limits.refs_bytes).of(packets.host()));
            }
        }
    }

    /// Hands the pack over to the job, piece by piece. The end is handed over only when the answer is complete.
    async fn feed(
        &self,
        mut packets: Packets,
        mut answer: Answer,
        first: Piece,
        sender: mpsc::Sender<Piece>,
    ) -> Result<(), FetchError> {
        let limit = self.remote.limits.pack_bytes;
        let mut total = 0_u64;
        let mut piece = Some(first);
        loop {
            match piece.take() {
                Some(Piece::Data(bytes)) => {
                    total += bytes.len() as u64;
                    if total > limit {
                        return Err(FetchError::TooLarge {
                            limit,
                            unit: "bytes",
                            flag: PACK_BYTES_FLAG,
                        });
                    }
                    if sender.send(Piece::Data(bytes)).await.is_err() {
                        return Ok(());
                    }
                }
                Some(Piece::End) => {
                    packets.finish().await;
                    // The job may have ended before, with an error that it gives itself.
                    let _ = sender.send(Piece::End).await;
                    return Ok(());
                }
                None => {}
            }
            let event = answer.accept(packets.next().await?);
            piece = match event.map_err(|error| ProtocolError::Answer(error).of(packets.host()))? {
                Some(Event::Pack(bytes)) => Some(Piece::Data(bytes)),
                Some(Event::End) => Some(Piece::End),
                Some(Event::Shallow(_) | Event::Unshallow(_)) | None => None,
            };
        }
    }

    /// Servers say in their own words that they do not have an object.
    fn refused(&self, error: ProtocolError, host: &str) -> FetchError {
        let text = error.to_string();
        match &self.head.reference {
            Reference::Commit { commit, .. }
                if text.contains("not our ref") || text.contains("not valid") =>
            {
                FetchError::CommitNotFound {
                    commit: commit.clone(),
                }
            }
            _ => error.of(host),
        }
    }
}

/// What a mirror has for a head.
enum Local {
    /// The commit itself.
    Held(Checkout),
    /// Other commits, of which it may be a relative.
    Behind(Opened),
    /// Nothing.
    Empty(Opened),
}

/// Where the history of what is being fetched is cut off.
#[derive(Debug, Default)]
struct Boundary {
    shallow: Vec<Oid>,
    unshallow: Vec<Oid>,
}

/// The blocking half of a transfer.
struct Job {
    mirror: Arc<Mirror>,
    commit: Oid,
    limits: Limits,
    host: String,
    stop: CancellationToken,
    boundary: Boundary,
}

impl Job {
    /// The guard is held until the work has really ended, even if nobody waits for it any more.
    fn run(
        self,
        mut guard: Guard,
        mut opened: Opened,
        pieces: mpsc::Receiver<Piece>,
    ) -> (Guard, Result<Checkout, FetchError>) {
        let result = self.work(&mut opened, pieces);
        if result.is_ok() {
            guard.keep(opened);
        }
        (guard, result)
    }

    fn work(self, opened: &mut Opened, pieces: mpsc::Receiver<Piece>) -> Result<Checkout, FetchError> {
        let generation = Arc::clone(&opened.generation);
        let held = open_objects(generation.directory())
            .map_err(|error| io::Error::other(error.message().to_owned()))?;
        index(
            &held,
            &generation.packs(),
            pieces,
            &self.limits,
            &self.host,
            &self.stop,
        )?;
        drop(held);
        let checkout = complete(self.mirror, opened, self.commit, self.limits)?;
        opened
            .record
            .add(self.commit, &self.boundary.shallow, &self.boundary.unshallow);
        opened.record.write(generation.directory())?;
        Ok(checkout)
    }
}

/// Opens a commit and makes sure, once in a process, that all of it is there.
fn complete(
    mirror: Arc<Mirror>,
    opened: &mut Opened,
    commit: Oid,
    limits: Limits,
) -> Result<Checkout, FetchError> {
    let checkout = Checkout::open(mirror, Arc::clone(&opened.generation), commit, limits)?;
    if !opened.verified.contains(&commit) {
        let base = opened
            .record
            .tips
            .iter()
            .rev()
            .find(|tip| opened.verified.contains(tip))
            .copied();
        checkout.verify(base)?;
        opened.verified.insert(commit);
    }
    Ok(checkout)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, FetchError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| FetchError::Storage(io::Error::other(error)))
}

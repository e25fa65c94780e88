//! Git's protocol over ssh: one `git-upload-pack` for each command, on kept connections.
//!
//! Capabilities are learnt once for a repository, as over http. After that a command is sent together with the start
//! of the program, so that a poll on a kept connection costs two round trips: one for the channel, one for the answer.

mod connection;
mod leash;
mod pool;
mod process;

use std::fmt;
use std::sync::{Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use futures::stream;

use super::super::credentials::Credentials;
use super::super::error::FetchError;
use super::super::protocol::advertisement::{self, Capabilities};
use super::super::remote::Remote;
use super::super::ssh::command::upload_pack;
use super::super::ssh::{Algorithms, SshCredentials};
use super::answer::Packets;
use pool::Pool;
use process::{Ended, Process};

/// Behind a command: no further one comes, so the program ends.
const NO_MORE: &[u8] = b"0000";

/// Kept connections and what flags say about them.
pub(super) struct Ssh {
    pool: Pool,
    algorithms: Algorithms,
}

/// A repository as its server presented it.
pub(super) struct Place {
    /// The program that presented it waits for the first command.
    greeted: Mutex<Option<Process>>,
    /// Whether it takes commands at all.
    version_2: bool,
}

/// What is done with the words with which a program begins: capabilities, or of an older version the list of all refs.
#[derive(Clone, Copy, Debug)]
enum Opening {
    /// They are read, up to a length that capabilities have.
    Read,
    /// They are passed over; nothing of a list is kept.
    Skip,
    /// They are waited for, and read by others as they come.
    Begin,
}

impl Ssh {
    /// Without any connection yet.
    pub(super) fn new(algorithms: Algorithms) -> Self {
        Self {
            pool: Pool::default(),
            algorithms,
        }
    }

    /// Starts the program and reads what it can do.
    pub(super) async fn discover(&self, remote: &Remote) -> Result<(Place, Capabilities), FetchError> {
        let (process, greeting) = self.exchange(remote, None, Opening::Read).await?;
        let capabilities = advertisement(remote, &greeting)?;
        let version_2 = matches!(capabilities, Capabilities::V2(_));
        // A list of refs may be too long to have been read to its end here.
        let greeted = Mutex::new(Some(process).filter(|_| version_2));
        Ok((Place { greeted, version_2 }, capabilities))
    }

    /// Sends one command and gives the packets of its answer.
    pub(super) async fn command(
        &self,
        remote: &Remote,
        place: &Place,
        body: Bytes,
    ) -> Result<Packets, FetchError> {
        if !place.version_2 {
            // The request goes by the list of refs before it, which is the same as when it was read.
            let (process, _) = self.exchange(remote, Some(body), Opening::Skip).await?;
            return Ok(answer(remote, process));
        }
        let mut last = BytesMut::from(&body[..]);
        last.extend_from_slice(NO_MORE);
        let body = last.freeze();
        let greeted = place
            .greeted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let process = if let Some(process) = greeted {
            process.send(body).await.map_err(|ended| failure(remote, ended))?;
            process
        } else {
            let sent = Some(body);
            let (process, greeting) = self.exchange(remote, sent, Opening::Read).await?;
            advertisement(remote, &greeting)?;
            process
        };
        Ok(answer(remote, process))
    }

    /// The refs with which a server of an older version begins.
    pub(super) async fn listing(&self, remote: &Remote) -> Result<Packets, FetchError> {
        let no_wants = Some(Bytes::from_static(NO_MORE));
        let (process, _) = self.exchange(remote, no_wants, Opening::Begin).await?;
        Ok(answer(remote, process))
    }

    /// Starts the program, sends it a command if there is one, and reads how it presents the repository. A kept
    /// connection may have died without a sign: then this is done again, once, on a new one.
    async fn exchange(
        &self,
        remote: &Remote,
        body: Option<Bytes>,
        opening: Opening,
    ) -> Result<(Process, Bytes), FetchError> {
        let limit = listed(remote);
        let credentials = credentials(remote)?;
        loop {
            let lease = self.pool.lease(remote, credentials, &self.algorithms).await?;
            let started = Process::start(lease, upload_pack(&remote.address.ssh_path())).await;
            let (lease, ended) = match started {
                Ok(mut process) => match greet(&mut process, body.clone(), opening, limit).await {
                    Ok(greeting) => return Ok((process, greeting)),
                    Err(Ended::Lost(why)) if !process.is_fresh() => {
                        self.pool.discard(remote, &process.lease().connection).await;
                        tracing::debug!(host = remote.address.host(), why, "a kept connection is replaced");
                        continue;
                    }
                    Err(ended) => return Err(failure(remote, ended)),
                },
                Err(refused) => refused,
            };
            if lease.fresh {
                return Err(failure(remote, ended));
            }
            self.pool.discard(remote, &lease.connection).await;
            tracing::debug!(host = remote.address.host(), why = %ended, "a kept connection is replaced");
        }
    }
}

fn answer(remote: &Remote, process: Process) -> Packets {
    let pieces = stream::unfold(process, |mut process| async move {
        let piece = process.piece().await?;
        Some((piece.map_err(|ended| ended.to_string()), process))
    });
    Packets::new(pieces, remote.address.host())
}

/// Longest list of refs.
fn listed(remote: &Remote) -> usize {
    usize::try_from(remote.limits.refs_bytes).unwrap_or(usize::MAX)
}

async fn greet(
    process: &mut Process,
    body: Option<Bytes>,
    opening: Opening,
    limit: usize,
) -> Result<Bytes, Ended> {
    if let Some(body) = body {
        process.send(body).await?;
    }
    match opening {
        Opening::Read => return process.greeting(advertisement::LONGEST).await,
        Opening::Skip => process.skip_greeting(limit).await?,
        Opening::Begin => process.begin().await?,
    }
    Ok(Bytes::new())
}

fn advertisement(remote: &Remote, greeting: &[u8]) -> Result<Capabilities, FetchError> {
    advertisement::parse(greeting).map_err(|source| FetchError::Advertisement {
        url: remote.address.to_string(),
        source,
    })
}

/// The address is of ssh, so these are as well.
fn credentials(remote: &Remote) -> Result<&SshCredentials, FetchError> {
    match &remote.credentials {
        Credentials::Ssh(credentials) => Ok(credentials),
        _ => Err(FetchError::AuthenticationRequired {
            url: remote.address.to_string(),
            said: super::super::error::Said::default(),
        }),
    }
}

fn failure(remote: &Remote, ended: Ended) -> FetchError {
    match ended {
        Ended::Lost(why) => FetchError::Connection {
            host: remote.address.host(),
            why,
        },
        Ended::Program(ended) => FetchError::Command {
            url: remote.address.to_string(),
            ended,
        },
        Ended::Protocol(error) => error.of(&remote.address.host()),
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Place")
    }
}

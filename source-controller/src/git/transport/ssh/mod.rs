//! Git's protocol over ssh: one `git-upload-pack` for each command, on pooled connections.
//!
//! Capabilities are discovered once for each repository, as over http. Afterwards a command is sent together with the
//! start of the program, so a poll on a pooled connection costs two round trips: the channel and the response.

mod cancellable;
mod connection;
mod pool;
mod process;

use std::fmt;
use std::sync::Mutex;

use bytes::{Bytes, BytesMut};
use futures::stream;
use pool::Pool;
use process::{Process, ProcessError, upload_pack};
use sluice_runtime::sync::lock;

use super::super::credentials::Credentials;
use super::super::error::FetchError;
use super::super::protocol::advertisement::{self, Capabilities};
use super::super::remote::Remote;
use super::super::ssh::{Algorithms, SshCredentials};
use super::packets::Packets;

/// Flush packet after a command: no further command follows, so the program ends.
const FLUSH: &[u8] = b"0000";

/// Pooled connections and the algorithms of the flags.
pub(super) struct Ssh {
    pool: Pool,
    algorithms: Algorithms,
}

/// A repository after discovery.
pub(super) struct Target {
    /// The process of the discovery; it waits for the first command.
    waiting_process: Mutex<Option<Process>>,
    /// Whether the server supports commands, that is version 2.
    supports_v2: bool,
}

/// How the greeting of a program is read: capabilities, or the ref advertisement of an older version.
#[derive(Clone, Copy, Debug)]
enum GreetingMode {
    /// Read it, up to the maximum length of capabilities.
    Read,
    /// Skip it; no ref is stored.
    Skip,
    /// Wait for its start; the caller reads it as a stream.
    Stream,
}

impl Ssh {
    /// Creates an empty pool.
    pub(super) fn new(algorithms: Algorithms) -> Self {
        Self {
            pool: Pool::default(),
            algorithms,
        }
    }

    /// Starts the program and reads its capabilities.
    pub(super) async fn discover(&self, remote: &Remote) -> Result<(Target, Capabilities), FetchError> {
        let (process, greeting) = self.start_process(remote, None, GreetingMode::Read).await?;
        let capabilities = parse_advertisement(remote, &greeting)?;
        let supports_v2 = matches!(capabilities, Capabilities::V2(_));
        // A list of refs may be too long to have been read completely here.
        let waiting_process = Mutex::new(Some(process).filter(|_| supports_v2));
        Ok((
            Target {
                waiting_process,
                supports_v2,
            },
            capabilities,
        ))
    }

    /// Sends one command and returns the packets of its response.
    pub(super) async fn command(
        &self,
        remote: &Remote,
        target: &Target,
        body: Bytes,
    ) -> Result<Packets, FetchError> {
        if !target.supports_v2 {
            // The request refers to the advertisement that precedes it, which equals the earlier one.
            let (process, _) = self.start_process(remote, Some(body), GreetingMode::Skip).await?;
            return Ok(packets(remote, process));
        }
        let mut body_and_flush = BytesMut::from(&body[..]);
        body_and_flush.extend_from_slice(FLUSH);
        let body = body_and_flush.freeze();
        let waiting_process = lock(&target.waiting_process).take();
        let process = if let Some(process) = waiting_process {
            process
                .send(body)
                .await
                .map_err(|error| fetch_error(remote, error))?;
            process
        } else {
            let sent = Some(body);
            let (process, greeting) = self.start_process(remote, sent, GreetingMode::Read).await?;
            parse_advertisement(remote, &greeting)?;
            process
        };
        Ok(packets(remote, process))
    }

    /// Requests the ref advertisement of a server that supports only an older version.
    pub(super) async fn advertised_refs(&self, remote: &Remote) -> Result<Packets, FetchError> {
        let flush = Some(Bytes::from_static(FLUSH));
        let (process, _) = self.start_process(remote, flush, GreetingMode::Stream).await?;
        Ok(packets(remote, process))
    }

    /// Starts the program, sends the command if there is one, and reads the greeting. A pooled connection may be dead
    /// without notice: then this is repeated once on a new one.
    async fn start_process(
        &self,
        remote: &Remote,
        body: Option<Bytes>,
        mode: GreetingMode,
    ) -> Result<(Process, Bytes), FetchError> {
        let limit = max_refs_bytes(remote);
        let credentials = credentials(remote)?;
        loop {
            let lease = self.pool.lease(remote, credentials, &self.algorithms).await?;
            let started = Process::start(lease, upload_pack(&remote.address.ssh_path())).await;
            let (lease, error) = match started {
                Ok(mut process) => match read_greeting(&mut process, body.clone(), mode, limit).await {
                    Ok(greeting) => return Ok((process, greeting)),
                    Err(ProcessError::Connection(why)) if !process.lease.is_new => {
                        self.pool.discard(remote, &process.lease.connection).await;
                        tracing::debug!(host = remote.address.host(), why, "replacing a pooled connection");
                        continue;
                    }
                    Err(error) => return Err(fetch_error(remote, error)),
                },
                Err(error) => error,
            };
            if lease.is_new {
                return Err(fetch_error(remote, error));
            }
            self.pool.discard(remote, &lease.connection).await;
            tracing::debug!(host = remote.address.host(), why = %error, "replacing a pooled connection");
        }
    }
}

fn packets(remote: &Remote, process: Process) -> Packets {
    let chunks = stream::unfold(process, |mut process| async move {
        let chunk = process.next_chunk().await?;
        Some((chunk.map_err(|error| error.to_string()), process))
    });
    Packets::new(chunks, remote.address.host())
}

/// Returns the maximum size of a list of refs.
fn max_refs_bytes(remote: &Remote) -> usize {
    usize::try_from(remote.limits.refs_bytes).unwrap_or(usize::MAX)
}

async fn read_greeting(
    process: &mut Process,
    body: Option<Bytes>,
    mode: GreetingMode,
    limit: usize,
) -> Result<Bytes, ProcessError> {
    if let Some(body) = body {
        process.send(body).await?;
    }
    match mode {
        GreetingMode::Read => return process.greeting(advertisement::MAX_BYTES).await,
        GreetingMode::Skip => process.skip_greeting(limit).await?,
        GreetingMode::Stream => process.wait_for_output().await?,
    }
    Ok(Bytes::new())
}

fn parse_advertisement(remote: &Remote, greeting: &[u8]) -> Result<Capabilities, FetchError> {
    advertisement::parse(greeting).map_err(|source| FetchError::Advertisement {
        url: remote.address.to_string(),
        source,
    })
}

/// Returns the ssh credentials; an ssh address always has them.
fn credentials(remote: &Remote) -> Result<&SshCredentials, FetchError> {
    match &remote.credentials {
        Credentials::Ssh(credentials) => Ok(credentials),
        _ => Err(FetchError::AuthenticationRequired {
            url: remote.address.to_string(),
            message: super::super::error::ServerMessage::default(),
        }),
    }
}

fn fetch_error(remote: &Remote, error: ProcessError) -> FetchError {
    match error {
        ProcessError::Connection(why) => FetchError::Connection {
            host: remote.address.host(),
            why,
        },
        ProcessError::Exited(error) => FetchError::Command {
            url: remote.address.to_string(),
            why: error,
        },
        ProcessError::Protocol(error) => error.for_host(&remote.address.host()),
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Place")
    }
}

//! One `git-upload-pack` that a server runs.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use russh::client::Msg;
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf};

use super::super::super::error::ProtocolError;
use super::super::super::protocol::packet::{self, Packet};
use super::super::super::protocol::remote_text;
use super::pool::Lease;

/// Bytes of what the server's program complains about that are kept.
const COMPLAINT: usize = 4 * 1024;
/// How long a server has to report the end of a program that has fallen silent.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// The stream of a channel that carries complaints.
const STDERR: u32 = 1;

/// A program that runs at the server, and the channel to it.
pub(super) struct Process {
    read: ChannelReadHalf,
    write: Option<ChannelWriteHalf<Msg>>,
    lease: Lease,
    complaint: Vec<u8>,
    /// How it ended, as the server reported it.
    report: Option<Report>,
    /// Bytes of its output that were read and belong to what comes.
    ahead: BytesMut,
    /// The program has said all that it will say; how it ended may still come.
    silent: bool,
    over: bool,
}

enum Report {
    Status(u32),
    Signal(String),
    Refused,
}

/// A program that is gone before it said all that was awaited.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    /// Because the connection is.
    #[error("{0}")]
    Lost(String),
    /// By itself.
    #[error("{0}")]
    Program(String),
    /// It does not speak the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

impl Process {
    /// Starts a command.
    pub(super) async fn start(lease: Lease, command: String) -> Result<Self, (Lease, Ended)> {
        let opened = async {
            let channel = lease.connection.channel().await?;
            // Servers that do not take it run protocol version 0.
            channel.set_env(false, "GIT_PROTOCOL", "version=2").await?;
            channel.exec(true, command).await?;
            Ok(channel)
        };
        let opened: Result<_, russh::Error> = opened.await;
        match opened {
            Ok(channel) => {
                let (read, write) = channel.split();
                Ok(Self {
                    read,
                    write: Some(write),
                    lease,
                    complaint: Vec::new(),
                    report: None,
                    ahead: BytesMut::new(),
                    silent: false,
                    over: false,
                })
            }
            Err(russh::Error::ChannelOpenFailure(refusal)) => {
                let why = format!(
                    "the host allows no further session: {}",
                    remote_text(refusal.description().as_bytes())
                );
                Err((lease, Ended::Lost(why)))
            }
            Err(_) => {
                let why = lease.connection.loss();
                Err((lease, Ended::Lost(why)))
            }
        }
    }

    /// Whether the connection was made for this command.
    pub(super) const fn is_fresh(&self) -> bool {
        self.lease.fresh
    }

    /// The lease, so that its connection can be given up.
    pub(super) const fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Writes to the program.
    pub(super) async fn send(&self, bytes: Bytes) -> Result<(), Ended> {
        let Some(write) = &self.write else {
            return Err(Ended::Lost(self.lease.connection.loss()));
        };
        let sent = write.data_bytes(bytes).await;
        sent.map_err(|_| Ended::Lost(self.lease.connection.loss()))
    }

    /// The packets up to and with the first flush, as they came; of more than `limit` bytes the beginning.
    pub(super) async fn greeting(&mut self, limit: usize) -> Result<Bytes, Ended> {
        let mut all = BytesMut::new();
        let complete = self
            .until_flush(limit, |piece| all.extend_from_slice(piece))
            .await?;
        if complete {
            all.truncate(all.len() - self.ahead.len());
        }
        Ok(all.freeze())
    }

    /// Passes over the packets up to and with the first flush, which may have `limit` bytes.
    pub(super) async fn skip_greeting(&mut self, limit: usize) -> Result<(), Ended> {
        if self.until_flush(limit, |_| {}).await? {
            return Ok(());
        }
        Err(ProtocolError::TooLong(limit as u64).into())
    }

    /// Waits until the program has said something, which is then what comes next.
    pub(super) async fn begin(&mut self) -> Result<(), Ended> {
        match self.piece().await {
            Some(piece) => self.ahead = BytesMut::from(&piece?[..]),
            None => return Err(ProtocolError::Truncated.into()),
        }
        Ok(())
    }

    /// Reads up to the first flush, or more than `limit` bytes; whether the flush was found. What is behind it comes next.
    async fn until_flush(&mut self, limit: usize, mut each: impl FnMut(&[u8])) -> Result<bool, Ended> {
        let (mut rest, mut total) = (BytesMut::new(), 0);
        loop {
            while let Some(packet) = packet::decode(&mut rest).map_err(ProtocolError::from)? {
                if packet == Packet::Flush {
                    self.ahead = rest;
                    return Ok(true);
                }
            }
            if total > limit {
                return Ok(false);
            }
            match self.piece().await {
                Some(Ok(piece)) => {
                    total += piece.len();
                    each(&piece);
                    rest.extend_from_slice(&piece);
                }
                Some(Err(ended)) => return Err(ended),
                None => return Err(ProtocolError::Truncated.into()),
            }
        }
    }

    /// The next piece of output; nothing once the program has ended well.
    pub(super) async fn piece(&mut self) -> Option<Result<Bytes, Ended>> {
        if !self.ahead.is_empty() {
            return Some(Ok(std::mem::take(&mut self.ahead).freeze()));
        }
        while !self.over {
            let message = if self.silent {
                let report = tokio::time::timeout(LAST_WORDS, self.read.wait()).await;
                report.unwrap_or(Some(ChannelMsg::Close))
            } else {
                self.read.wait().await
            };
            match message {
                Some(ChannelMsg::Data { data }) => return Some(Ok(data)),
                Some(ChannelMsg::ExtendedData { data, ext: STDERR }) => {
                    let room = COMPLAINT.saturating_sub(self.complaint.len());
                    self.complaint.extend_from_slice(&data[..data.len().min(room)]);
                }
                Some(ChannelMsg::ExitStatus { exit_status }) => {
                    self.report = Some(Report::Status(exit_status));
                }
                Some(ChannelMsg::ExitSignal { signal_name, .. }) => {
                    self.report = Some(Report::Signal(format!("{signal_name:?}")));
                }
                Some(ChannelMsg::Failure) => {
                    self.report = Some(Report::Refused);
                    return self.end(false);
                }
                Some(ChannelMsg::Eof) => self.silent = true,
                Some(ChannelMsg::Close) => return self.end(false),
                Some(_) => {}
                None => return self.end(true),
            }
        }
        None
    }

    fn end(&mut self, lost: bool) -> Option<Result<Bytes, Ended>> {
        self.over = true;
        let said = remote_text(&self.complaint);
        let said = if said.is_empty() {
            said
        } else {
            format!(": {said}")
        };
        let ended = match &self.report {
            Some(Report::Status(0)) => return None,
            Some(Report::Status(status)) => format!("git-upload-pack ended with exit status {status}{said}"),
            Some(Report::Signal(signal)) => {
                format!(
                    "git-upload-pack ended by the signal {}{said}",
                    remote_text(signal.as_bytes())
                )
            }
            Some(Report::Refused) => format!("the host does not run git-upload-pack{said}"),
            None if lost => return Some(Err(Ended::Lost(self.lease.connection.loss()))),
            None if said.is_empty() => return None,
            None => format!("git-upload-pack ended{said}"),
        };
        Some(Err(Ended::Program(ended)))
    }
}

impl Drop for Process {
    /// A program that is left before its end is told, so that it does not wait for ever.
    fn drop(&mut self) {
        self.lease.connection.touch();
        if self.over {
            return;
        }
        self.lease.connection.doubt();
        let (Some(write), Ok(runtime)) = (self.write.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        let connection = Arc::clone(&self.lease.connection);
        runtime.spawn(async move {
            // A connection that is gone has nobody to tell.
            let _ = write.close().await;
            drop(connection);
        });
    }
}

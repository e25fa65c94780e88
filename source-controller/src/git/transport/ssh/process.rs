//! One `git-upload-pack` process on a server, and its command line.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use russh::client::Msg;
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf};

use super::super::super::error::ProtocolError;
use super::super::super::protocol::pkt_line::{self, Packet};
use super::super::super::protocol::sanitize_text;
use super::pool::Lease;

/// Maximum number of bytes of the program's error output that are stored.
const MAX_STDERR_BYTES: usize = 4 * 1024;
/// Timeout for the exit status after the end of the output.
const EXIT_STATUS_TIMEOUT: Duration = Duration::from_secs(5);
/// Extended data type of the error output.
const STDERR: u32 = 1;

/// A process on the server, and the channel to it.
pub(super) struct Process {
    read: ChannelReadHalf,
    write: Option<ChannelWriteHalf<Msg>>,
    pub(super) lease: Lease,
    stderr: Vec<u8>,
    /// Exit reported by the server.
    exit: Option<Exit>,
    /// Output that was read but not yet consumed.
    buffered: BytesMut,
    /// The output has ended; the exit status may follow.
    eof: bool,
    ended: bool,
}

enum Exit {
    Status(u32),
    Signal(String),
    ExecRefused,
}

/// A process that ended before its expected output.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProcessError {
    /// The connection was lost.
    #[error("{0}")]
    Connection(String),
    /// The process exited.
    #[error("{0}")]
    Exited(String),
    /// The output violates the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

impl Process {
    /// Starts a command.
    pub(super) async fn start(lease: Lease, command: String) -> Result<Self, (Lease, ProcessError)> {
        let channel = async {
            let channel = lease.connection.channel().await?;
            // Servers that do not accept it use protocol version 0.
            channel.set_env(false, "GIT_PROTOCOL", "version=2").await?;
            channel.exec(true, command).await?;
            Ok(channel)
        };
        let channel: Result<_, russh::Error> = channel.await;
        match channel {
            Ok(channel) => {
                let (read, write) = channel.split();
                Ok(Self {
                    read,
                    write: Some(write),
                    lease,
                    stderr: Vec::new(),
                    exit: None,
                    buffered: BytesMut::new(),
                    eof: false,
                    ended: false,
                })
            }
            Err(russh::Error::ChannelOpenFailure(refusal)) => {
                let why = format!(
                    "the host allows no further session: {}",
                    sanitize_text(refusal.description().as_bytes())
                );
                Err((lease, ProcessError::Connection(why)))
            }
            Err(_) => {
                let why = lease.connection.close_reason();
                Err((lease, ProcessError::Connection(why)))
            }
        }
    }

    /// Writes to the process.
    pub(super) async fn send(&self, bytes: Bytes) -> Result<(), ProcessError> {
        let Some(write) = &self.write else {
            return Err(ProcessError::Connection(self.lease.connection.close_reason()));
        };
        let result = write.data_bytes(bytes).await;
        result.map_err(|_| ProcessError::Connection(self.lease.connection.close_reason()))
    }

    /// Reads the packets up to and including the first flush; if there are more than `limit` bytes, only the start.
    pub(super) async fn greeting(&mut self, limit: usize) -> Result<Bytes, ProcessError> {
        let mut all = BytesMut::new();
        let complete = self
            .read_until_flush(limit, |chunk| all.extend_from_slice(chunk))
            .await?;
        if complete {
            all.truncate(all.len() - self.buffered.len());
        }
        Ok(all.freeze())
    }

    /// Skips the packets up to and including the first flush, at most `limit` bytes.
    pub(super) async fn skip_greeting(&mut self, limit: usize) -> Result<(), ProcessError> {
        if self.read_until_flush(limit, |_| {}).await? {
            return Ok(());
        }
        Err(ProtocolError::TooLong(limit as u64).into())
    }

    /// Waits for the first output, which stays available for the next read.
    pub(super) async fn wait_for_output(&mut self) -> Result<(), ProcessError> {
        match self.next_chunk().await {
            Some(chunk) => self.buffered = BytesMut::from(&chunk?[..]),
            None => return Err(ProtocolError::Truncated.into()),
        }
        Ok(())
    }

    /// Reads up to the first flush, or more than `limit` bytes; returns whether the flush was found. The rest is read
    /// next.
    async fn read_until_flush(
        &mut self,
        limit: usize,
        mut each: impl FnMut(&[u8]),
    ) -> Result<bool, ProcessError> {
        let (mut rest, mut total) = (BytesMut::new(), 0);
        loop {
            while let Some(packet) = pkt_line::decode(&mut rest).map_err(ProtocolError::from)? {
                if packet == Packet::Flush {
                    self.buffered = rest;
                    return Ok(true);
                }
            }
            if total > limit {
                return Ok(false);
            }
            match self.next_chunk().await {
                Some(Ok(chunk)) => {
                    total += chunk.len();
                    each(&chunk);
                    rest.extend_from_slice(&chunk);
                }
                Some(Err(error)) => return Err(error),
                None => return Err(ProtocolError::Truncated.into()),
            }
        }
    }

    /// Returns the next chunk of output; `None` after a successful exit.
    pub(super) async fn next_chunk(&mut self) -> Option<Result<Bytes, ProcessError>> {
        if !self.buffered.is_empty() {
            return Some(Ok(std::mem::take(&mut self.buffered).freeze()));
        }
        while !self.ended {
            let message = if self.eof {
                let message = tokio::time::timeout(EXIT_STATUS_TIMEOUT, self.read.wait()).await;
                message.unwrap_or(Some(ChannelMsg::Close))
            } else {
                self.read.wait().await
            };
            match message {
                Some(ChannelMsg::Data { data }) => return Some(Ok(data)),
                Some(ChannelMsg::ExtendedData { data, ext: STDERR }) => {
                    let free = MAX_STDERR_BYTES.saturating_sub(self.stderr.len());
                    self.stderr.extend_from_slice(&data[..data.len().min(free)]);
                }
                Some(ChannelMsg::ExitStatus { exit_status }) => {
                    self.exit = Some(Exit::Status(exit_status));
                }
                Some(ChannelMsg::ExitSignal { signal_name, .. }) => {
                    self.exit = Some(Exit::Signal(format!("{signal_name:?}")));
                }
                Some(ChannelMsg::Failure) => {
                    self.exit = Some(Exit::ExecRefused);
                    return self.end(false);
                }
                Some(ChannelMsg::Eof) => self.eof = true,
                Some(ChannelMsg::Close) => return self.end(false),
                Some(_) => {}
                None => return self.end(true),
            }
        }
        None
    }

    fn end(&mut self, lost: bool) -> Option<Result<Bytes, ProcessError>> {
        self.ended = true;
        let message = sanitize_text(&self.stderr);
        let message = if message.is_empty() {
            message
        } else {
            format!(": {message}")
        };
        let why = match &self.exit {
            Some(Exit::Status(0)) => return None,
            Some(Exit::Status(status)) => format!("git-upload-pack ended with exit status {status}{message}"),
            Some(Exit::Signal(signal)) => {
                format!(
                    "git-upload-pack ended by the signal {}{message}",
                    sanitize_text(signal.as_bytes())
                )
            }
            Some(Exit::ExecRefused) => format!("the host does not run git-upload-pack{message}"),
            None if lost => {
                return Some(Err(ProcessError::Connection(
                    self.lease.connection.close_reason(),
                )));
            }
            None if message.is_empty() => return None,
            None => format!("git-upload-pack ended{message}"),
        };
        Some(Err(ProcessError::Exited(why)))
    }
}

impl Drop for Process {
    /// Closes the channel of an abandoned process, so that it does not wait forever.
    fn drop(&mut self) {
        self.lease.connection.touch();
        if self.ended {
            return;
        }
        self.lease.connection.mark_suspect();
        let (Some(write), Ok(runtime)) = (self.write.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        let connection = Arc::clone(&self.lease.connection);
        runtime.spawn(async move {
            // Fails if the connection is gone; the process ended with it.
            let _ = write.close().await;
            drop(connection);
        });
    }
}

/// Returns the command line of Git's own client for a path of an address: `/srv/app.git`, or `/~ada/app.git` below a
/// home directory. A shell may parse it, so the path is quoted as Git quotes it.
pub(super) fn upload_pack(path: &str) -> String {
    let path = if path.starts_with("/~") { &path[1..] } else { path };
    let mut command = String::with_capacity(path.len() + 20);
    command.push_str("git-upload-pack '");
    for letter in path.chars() {
        // Git also quotes `!`, for csh.
        if matches!(letter, '\'' | '!') {
            command.push_str("'\\");
            command.push(letter);
            command.push('\'');
        } else {
            command.push(letter);
        }
    }
    command.push('\'');
    command
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_are_quoted_like_git() {
        for (path, command) in [
            ("/srv/app.git", "git-upload-pack '/srv/app.git'"),
            ("/~ada/app.git", "git-upload-pack '~ada/app.git'"),
            ("/~/app.git", "git-upload-pack '~/app.git'"),
            ("/it's!/x y", r"git-upload-pack '/it'\''s'\!'/x y'"),
            ("/", "git-upload-pack '/'"),
        ] {
            assert_eq!(upload_pack(path), command);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_shell_parses_any_path_as_one_word(path in "/[^\u{0}~][^\u{0}]{0,40}") {
            let script = format!("{} ", upload_pack(&path)).replacen("git-upload-pack", "printf %s", 1);
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            prop_assert_eq!(String::from_utf8_lossy(&output.stdout), path);
        }
    }
}

//! Prints the output of a command that runs. The command writes to a file, so that it does not depend on the runner, and the file is
//! read as it grows.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use sluice_tf_core::run_log::LogLines;
use tokio::time::MissedTickBehavior;

use crate::run::log::pod_log::PodLog;
use crate::run::status::StatusWriter;

/// Time between two reads.
const INTERVAL: Duration = Duration::from_millis(250);
/// Bytes that are read at once.
const BLOCK: usize = 64 * 1024;
/// Maximum number of blocks that are read in an interval.
const MAX_BLOCKS: usize = 16;
/// Maximum number of blocks that are read after the command has ended.
const MAX_LAST_BLOCKS: usize = 256;

/// The output of one command, up to the position that is printed.
pub(super) struct Follower<'l> {
    path: PathBuf,
    /// Absent until the command has created it, and after an error.
    file: Option<File>,
    has_failed: bool,
    lines: LogLines,
    pod: &'l PodLog,
}

impl<'l> Follower<'l> {
    pub(super) fn new(path: &Path, pod: &'l PodLog) -> Self {
        Self {
            path: path.to_owned(),
            file: None,
            has_failed: false,
            lines: LogLines::default(),
            pod,
        }
    }

    /// Prints the output until the command has ended.
    pub(super) async fn follow<T>(mut self, status: &StatusWriter, running: impl Future<Output = T>) -> T {
        let mut running = pin!(running);
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ended = loop {
            tokio::select! {
                biased;
                ended = &mut running => break ended,
                _ = ticks.tick() => {
                    self.print(status, MAX_BLOCKS);
                }
            }
        };
        if self.print(status, MAX_LAST_BLOCKS) {
            let rest = self.lines.finish(&status.secrets());
            self.pod.write(&rest);
        } else {
            self.pod.write(&self.lines.cut());
            self.pod.write(b"(the rest of this output is not printed)\n");
        }
        ended
    }

    /// Prints at most this number of blocks that are new. Returns whether that is all.
    fn print(&mut self, status: &StatusWriter, blocks: usize) -> bool {
        if self.has_failed {
            return false;
        }
        self.print_blocks(status, blocks).unwrap_or_else(|error| {
            tracing::warn!(%error, "the output of a command cannot be read");
            (self.file, self.has_failed) = (None, true);
            false
        })
    }

    fn print_blocks(&mut self, status: &StatusWriter, blocks: usize) -> io::Result<bool> {
        let file = match &mut self.file {
            Some(file) => file,
            None => match File::open(&self.path) {
                Ok(file) => self.file.insert(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
                Err(error) => return Err(error),
            },
        };
        let mut block = vec![0; BLOCK];
        for _ in 0..blocks {
            let length = file.read(&mut block)?;
            if length == 0 {
                return Ok(true);
            }
            // Not locked while it prints: a slow reader of the log must not delay the status.
            let lines = self.lines.push(&status.secrets(), &block[..length]);
            if !lines.is_empty() {
                self.pod.write(&lines);
            }
        }
        Ok(false)
    }
}

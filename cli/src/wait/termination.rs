//! The signals that ask a program to end, for commands that have something to undo.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::CliError;

/// SIGTERM, and SIGHUP of a terminal that is closed. Once they are watched, they do not end the program.
pub(crate) struct Termination {
    terminate: Signal,
    hangup: Signal,
}

impl Termination {
    /// Watches for them.
    ///
    /// # Errors
    /// The system does not permit it.
    pub(crate) fn watch() -> Result<Self, CliError> {
        let watch = |kind| {
            signal(kind).map_err(|source| CliError::File {
                what: "cannot receive signals".to_owned(),
                source,
            })
        };
        Ok(Self {
            terminate: watch(SignalKind::terminate())?,
            hangup: watch(SignalKind::hangup())?,
        })
    }

    /// Ends with the first of these signals since they are watched.
    pub(crate) async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

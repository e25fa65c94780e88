//! The log of a run's own pod.

use std::io::Write;
use std::sync::{Arc, Mutex};

use sluice_runtime::sync::lock;

/// Where the output of commands is printed, for `kubectl logs`.
#[derive(Clone)]
pub struct PodLog(Arc<Mutex<Box<dyn Write + Send>>>);

impl PodLog {
    /// Prints to standard output, or to what a test gives.
    #[must_use]
    pub fn new(output: impl Write + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Box::new(output))))
    }

    /// Prints whole lines. A log that cannot be written does not stop a run.
    pub(crate) fn write(&self, lines: &[u8]) {
        let mut output = lock(&self.0);
        if let Err(error) = output.write_all(lines).and_then(|()| output.flush()) {
            tracing::debug!(%error, "the output of a command cannot be printed");
        }
    }
}

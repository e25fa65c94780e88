//! The running controller, and the requests to stop its parts.

use std::net::SocketAddr;

use sluice_runtime::leader;
use sluice_runtime::shutdown::Token;
use tokio::task::JoinSet;

/// The requests to stop the parts of a controller. From one token: all stop together.
#[derive(Clone, Debug)]
pub struct Stop {
    /// Stops all but the file server.
    pub work: Token,
    /// Stops the file server. Consumers in the same program may need artifacts longer, unless the controller never led.
    pub server: Token,
}

impl From<Token> for Stop {
    fn from(stop: Token) -> Self {
        Self {
            work: stop.clone(),
            server: stop,
        }
    }
}

/// A controller that runs until it is stopped.
#[derive(Debug)]
pub struct Running {
    /// Address of the file server.
    pub artifacts: SocketAddr,
    /// Address of the metrics.
    pub metrics: Option<SocketAddr>,
    /// Address of the probes.
    pub health: Option<SocketAddr>,
    pub(crate) tasks: JoinSet<()>,
    pub(crate) stop: Stop,
    pub(crate) lost: Token,
}

impl Running {
    /// Waits for all tasks. A task that ends on its own stops the others.
    pub async fn wait(mut self) -> leader::LeadershipEnd {
        loop {
            let result = tokio::select! {
                // The task of the Lease reports its loss before it ends.
                biased;
                () = self.lost.cancelled() => {
                    self.tasks.abort_all();
                    return leader::LeadershipEnd::Lost;
                }
                result = self.tasks.join_next() => result,
            };
            match result {
                None => return leader::LeadershipEnd::Released,
                Some(Ok(())) => {}
                Some(Err(error)) => tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "a part of the controller failed"
                ),
            }
            if !self.stop.work.is_cancelled() {
                self.stop.server.cancel();
            }
            self.stop.work.cancel();
        }
    }
}

//! Access to a program that serves the Kubernetes API and writes a kubeconfig for it, such as `sluice up`.

use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use tokio::process::Child;

/// Time between two attempts.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Why there is no access to a program.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program ended before its API answered.
    #[error("the program ended with {0}")]
    Ended(ExitStatus),
    /// The API did not answer in time.
    #[error("the API of the program did not answer in time")]
    Timeout,
    /// The system does not tell whether the program runs.
    #[error("cannot tell whether the program runs: {0}")]
    System(#[from] io::Error),
    /// The kubeconfig is not valid.
    #[error("the kubeconfig of the program is not valid: {0}")]
    Kubeconfig(#[from] KubeconfigError),
    /// No client can be made.
    #[error("cannot make a client: {0}")]
    Client(#[from] kube::Error),
}

/// Waits for the kubeconfig of a program that starts and for an API that answers, and returns a client.
///
/// # Errors
/// When the program ends, its kubeconfig is not valid, or its API does not answer in time.
pub async fn connect(kubeconfig: &Path, program: &mut Child, limit: Duration) -> Result<Client, StartError> {
    let mut tick = tokio::time::interval(POLL_INTERVAL);
    let serving = async {
        loop {
            tick.tick().await;
            if let Some(status) = program.try_wait()? {
                return Err(StartError::Ended(status));
            }
            // The program may not have written all of it.
            let Ok(read) = Kubeconfig::read_from(kubeconfig) else {
                continue;
            };
            let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
            let client = Client::try_from(config)?;
            if client.apiserver_version().await.is_ok() {
                return Ok(client);
            }
        }
    };
    let served = tokio::time::timeout(limit, serving).await;
    served.unwrap_or(Err(StartError::Timeout))
}

#[cfg(test)]
mod tests {
    use tokio::process::Command;

    use super::*;

    #[tokio::test]
    async fn a_program_that_ends_is_not_waited_for() {
        let mut program = Command::new("false").spawn().unwrap();
        let connected = connect(Path::new("absent"), &mut program, Duration::MAX).await;
        assert!(matches!(connected, Err(StartError::Ended(_))));
    }
}

//! Shutdown on signals. The first SIGTERM or SIGINT cancels the stop token; further signals are counted, and the program
//! decides about them.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The process-wide stop token. Child tokens are cancelled with it.
pub type Token = CancellationToken;

/// The stop token, and the number of signals received.
#[derive(Clone, Debug)]
pub struct Signals {
    stop: Token,
    count: watch::Receiver<u32>,
    // Also keeps the channel open after the listening task ends with its runtime.
    sender: Arc<watch::Sender<u32>>,
}

impl Signals {
    /// Returns the token that the first signal cancels.
    #[must_use]
    pub fn token(&self) -> Token {
        self.stop.clone()
    }

    /// Counts as a signal: the user asks the program to end in another way, such as a key on a terminal that sends no signals.
    pub fn interrupt(&self) {
        self.sender.send_modify(|count| *count += 1);
        tracing::info!(
            count = *self.sender.borrow(),
            "stopping at the request of the user"
        );
        self.stop.cancel();
    }

    /// Waits until `n` signals have been received in total.
    pub async fn reached(&self, n: u32) {
        let mut count = self.count.clone();
        if count.wait_for(|seen| *seen >= n).await.is_err() {
            // `self` owns a sender, so the channel is open.
            std::future::pending::<()>().await;
        }
    }
}

/// Starts listening for SIGTERM and SIGINT.
///
/// # Errors
/// The operating system rejects a signal handler.
pub fn on_signals() -> std::io::Result<Signals> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (sender, count) = watch::channel(0);
    let sender = Arc::new(sender);
    let signals = Signals {
        stop: Token::new(),
        count,
        sender: Arc::clone(&sender),
    };
    let stop = signals.token();
    tokio::spawn(async move {
        loop {
            let (seen, name) = tokio::select! {
                seen = terminate.recv() => (seen, "SIGTERM"),
                seen = interrupt.recv() => (seen, "SIGINT"),
            };
            if seen.is_none() {
                return;
            }
            sender.send_modify(|count| *count += 1);
            tracing::info!(signal = name, count = *sender.borrow(), "stopping");
            stop.cancel();
        }
    });
    Ok(signals)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn send(signal: &str) {
        let process = std::process::id().to_string();
        let status = tokio::process::Command::new("kill")
            .args([signal, &process])
            .status()
            .await
            .unwrap();
        assert!(status.success());
    }

    // One test for both signals: signals reach the whole process, so two tests would interfere.
    #[tokio::test]
    async fn the_first_signal_stops_and_further_signals_are_counted() {
        let signals = on_signals().unwrap();
        let limit = Duration::from_secs(30);
        assert!(!signals.token().is_cancelled());
        send("-TERM").await;
        tokio::time::timeout(limit, signals.token().cancelled())
            .await
            .unwrap();
        tokio::time::timeout(limit, signals.reached(1)).await.unwrap();
        let second = signals.clone();
        let mut second = tokio::spawn(async move { second.reached(2).await });
        tokio::select! {
            biased;
            _ = &mut second => panic!("counted twice"),
            () = tokio::task::yield_now() => {}
        }
        send("-INT").await;
        tokio::time::timeout(limit, second).await.unwrap().unwrap();
        signals.interrupt();
        tokio::time::timeout(limit, signals.reached(3)).await.unwrap();
    }
}

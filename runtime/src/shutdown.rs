//! From signals to one stop token. The first SIGTERM or SIGINT cancels it; what further ones mean is the program's
//! choice, so each is also counted.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The process-wide stop token. Children made from it stop with it.
pub type Token = CancellationToken;

/// What [`on_signals`] gives: the token, and the count of signals for programs that grow more urgent.
#[derive(Clone, Debug)]
pub struct Signals {
    stop: Token,
    count: watch::Receiver<u32>,
    // Keeps the count alive when the listening task has gone with its runtime.
    _count: Arc<watch::Sender<u32>>,
}

impl Signals {
    /// Cancelled by the first signal.
    #[must_use]
    pub fn token(&self) -> Token {
        self.stop.clone()
    }

    /// Waits until `n` signals have come, those of the past included.
    pub async fn reached(&self, n: u32) {
        let mut count = self.count.clone();
        if count.wait_for(|seen| *seen >= n).await.is_err() {
            // The sender lives as long as `self`; without it there is nothing to wait for.
            std::future::pending::<()>().await;
        }
    }
}

/// Listens for SIGTERM and SIGINT from now on.
///
/// # Errors
/// The operating system refuses a signal handler.
pub fn on_signals() -> std::io::Result<Signals> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (sender, count) = watch::channel(0);
    let sender = Arc::new(sender);
    let signals = Signals {
        stop: Token::new(),
        count,
        _count: Arc::clone(&sender),
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
    use super::*;
    use std::time::Duration;

    async fn send(signal: &str) {
        let process = std::process::id().to_string();
        let status = tokio::process::Command::new("kill")
            .args([signal, &process])
            .status()
            .await
            .unwrap();
        assert!(status.success());
    }

    // One test for both signals: they reach the whole process, so that two tests would count each other's.
    #[tokio::test]
    async fn the_first_signal_stops_and_the_second_is_told_apart() {
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
    }
}

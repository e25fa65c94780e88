//! The probes `/healthz` and `/readyz`. Readiness is set explicitly, and may carry the reason why a program is not ready.

use std::fmt::Display;
use std::future;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::StatusCode;
use tokio::net::TcpListener;

use crate::serve::{Page, serve};
use crate::shutdown::Token;

/// Time between two checks of [`Readiness::set_after`].
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Whether the program is ready, or the reason why not; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<RwLock<State>>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum State {
    /// Not set yet.
    #[default]
    Starting,
    Ready,
    NotReady(String),
}

impl Readiness {
    /// Marks the program as ready.
    pub fn set(&self) {
        self.put(State::Ready);
    }

    /// Marks the program as not ready. The probe shows the reason, which must not contain secrets.
    pub fn set_not_ready(&self, why: &str) {
        self.put(State::NotReady(why.to_owned()));
    }

    /// Returns whether the program is ready.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.state() == State::Ready
    }

    /// Repeats a check until it succeeds, then marks the program as ready. Until then the probe shows the error, and each change of it is
    /// logged. Ends early at `stop`.
    pub async fn set_after<F, E>(&self, check: impl Fn() -> F, stop: &Token)
    where
        F: Future<Output = Result<(), E>>,
        E: Display,
    {
        let mut logged = String::new();
        loop {
            let Err(error) = check().await else {
                return self.set();
            };
            let text = error.to_string();
            self.set_not_ready(&text);
            if text != logged {
                tracing::error!(error = text, "not ready");
                logged = text;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
            }
        }
    }

    fn put(&self, state: State) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn state(&self) -> State {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn page(&self, path: &str) -> Option<Page> {
        match path.trim_end_matches('/') {
            "/healthz" | "/healthz/ping" => Some(Page::text(StatusCode::OK, "ok")),
            "/readyz" | "/readyz/ping" => Some(match self.state() {
                State::Ready => Page::text(StatusCode::OK, "ok"),
                State::Starting => Page::text(StatusCode::SERVICE_UNAVAILABLE, "not ready"),
                State::NotReady(why) => {
                    Page::text(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n"))
                }
            }),
            _ => None,
        }
    }
}

/// Serves the probes until `stop`.
pub async fn run(listener: TcpListener, ready: Readiness, stop: Token) {
    serve(listener, move |path| future::ready(ready.page(path)), stop).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_is_set_explicitly() {
        let ready = Readiness::default();
        let status = |path: &str| ready.page(path).map(|page| page.status.as_u16());
        assert_eq!(
            [status("/healthz"), status("/readyz"), status("/")],
            [Some(200), Some(503), None]
        );
        ready.set_not_ready("no definition");
        let page = ready.page("/readyz").unwrap();
        assert_eq!(
            (page.status.as_u16(), page.body[0].as_str()),
            (503, "not ready: no definition\n")
        );
        assert_eq!(status("/healthz"), Some(200));
        ready.set();
        assert_eq!(status("/readyz/"), Some(200));
    }
}

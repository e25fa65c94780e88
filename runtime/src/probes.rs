//! `/healthz` and `/readyz`: alive is who answers, ready is who has said so. Who is not may say why.

use std::sync::{Arc, PoisonError, RwLock};

use http::StatusCode;
use tokio::net::TcpListener;

use crate::serve::{Page, serve};
use crate::shutdown::Token;

/// Whether the program is ready, and what hinders it if it is not; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<RwLock<State>>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing was said yet.
    #[default]
    Starting,
    Ready,
    Hindered(String),
}

impl Readiness {
    /// Says that the program can do its work.
    pub fn set(&self) {
        self.put(State::Ready);
    }

    /// Says what keeps the program from its work, for whoever asks: no secrets.
    pub fn hinder(&self, why: &str) {
        self.put(State::Hindered(why.to_owned()));
    }

    /// Whether it can do its work.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.state() == State::Ready
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
                State::Hindered(why) => {
                    Page::text(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n"))
                }
            }),
            _ => None,
        }
    }
}

/// Serves the probes until `stop`.
pub async fn run(listener: TcpListener, ready: Readiness, stop: Token) {
    serve(listener, move |path| ready.page(path), stop).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_who_has_said_so() {
        let ready = Readiness::default();
        let status = |path: &str| ready.page(path).map(|page| page.status.as_u16());
        assert_eq!(
            [status("/healthz"), status("/readyz"), status("/")],
            [Some(200), Some(503), None]
        );
        ready.hinder("no definition");
        let page = ready.page("/readyz").unwrap();
        assert_eq!(
            (page.status.as_u16(), page.body.as_str()),
            (503, "not ready: no definition\n")
        );
        assert_eq!(status("/healthz"), Some(200));
        ready.set();
        assert_eq!(status("/readyz/"), Some(200));
    }
}

//! `/healthz` and `/readyz`: alive is who answers, ready is who has said so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use tokio::net::TcpListener;

use crate::serve::{Page, serve};
use crate::shutdown::Token;

/// Whether the program is ready; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// Says whether the program can do its work.
    pub fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Release);
    }

    /// Whether it can.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn page(&self, path: &str) -> Option<Page> {
        match path.trim_end_matches('/') {
            "/healthz" | "/healthz/ping" => Some(Page::text(StatusCode::OK, "ok")),
            "/readyz" | "/readyz/ping" if self.is_set() => Some(Page::text(StatusCode::OK, "ok")),
            "/readyz" | "/readyz/ping" => Some(Page::text(StatusCode::SERVICE_UNAVAILABLE, "not ready")),
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
        ready.set(true);
        assert_eq!(status("/readyz/"), Some(200));
    }
}

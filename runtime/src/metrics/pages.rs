//! The responses to requests for metrics.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use super::Metrics;
use crate::blocking::Pool;
use crate::serve::Page;
use crate::shutdown::Token;

/// How long a request waits for its page and for those before it.
const PAGE_LIMIT: Duration = Duration::from_mins(1);

/// Response to requests for Go's profiles.
const NO_PPROF: &str =
    "not a Go program: there are no pprof profiles; use perf or /proc/<pid> of the process\n";

/// The pages of a program.
#[derive(Debug)]
pub(super) struct Pages {
    metrics: Metrics,
    /// Writes the page of metrics. With thousands of objects that takes many milliseconds, in which a thread of the reconciliations would do
    /// nothing else. One page at a time: all of them read the same registry.
    writer: Pool,
    stop: Token,
}

impl Pages {
    /// Serves these metrics until `stop`.
    pub(super) fn new(metrics: Metrics, stop: Token) -> Self {
        Self {
            metrics,
            writer: Pool::new(1),
            stop,
        }
    }

    /// Returns the page of a path.
    pub(super) async fn page(self: Arc<Self>, path: String) -> Option<Page> {
        match &*path {
            "/metrics" => Some(self.all().await),
            _ if path.starts_with("/debug/pprof") => Some(Page::text(StatusCode::NOT_FOUND, NO_PPROF)),
            _ => None,
        }
    }

    /// Returns the page of all metrics.
    async fn all(&self) -> Page {
        let metrics = self.metrics.clone();
        let write = move |_: &Token| metrics.parts_at(Instant::now());
        match self.writer.run(PAGE_LIMIT, &self.stop, write).await {
            Ok(body) => Page {
                status: StatusCode::OK,
                content_type: "application/openmetrics-text; version=1.0.0; charset=utf-8",
                body,
            },
            Err(error) => {
                let text = format!("cannot write the metrics: {error}\n");
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "cannot write the metrics"
                );
                Page::text(StatusCode::SERVICE_UNAVAILABLE, text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::{Mutex, mpsc};

    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::DescriptorEncoder;

    use super::*;
    use crate::sync::lock;

    fn pages(metrics: Metrics) -> Arc<Pages> {
        Arc::new(Pages::new(metrics, Token::new()))
    }

    async fn get(pages: &Arc<Pages>, path: &str) -> Option<Page> {
        Arc::clone(pages).page(path.to_owned()).await
    }

    #[tokio::test]
    async fn requests_for_profiles_get_an_explanation() {
        let pages = pages(Metrics::new());
        for path in ["/debug/pprof/", "/debug/pprof/heap"] {
            let page = get(&pages, path).await.unwrap();
            assert_eq!(page.status, StatusCode::NOT_FOUND);
            assert!(page.body[0].contains("perf"), "{}", page.body[0]);
        }
        assert!(get(&pages, "/").await.is_none());
        let body = get(&pages, "/metrics").await.unwrap().body.concat();
        assert!(body.ends_with("# EOF\n"), "{body}");
    }

    /// A collector that waits for a message before each page.
    #[derive(Debug)]
    struct Gate(Mutex<mpsc::Receiver<()>>);

    impl Collector for Gate {
        fn encode(&self, _: DescriptorEncoder<'_>) -> fmt::Result {
            let opened = lock(&self.0).recv_timeout(Duration::from_secs(10));
            opened.map_err(|_| fmt::Error)
        }
    }

    #[tokio::test]
    async fn a_page_is_written_on_another_thread() {
        let metrics = Metrics::new();
        let (open, opened) = mpsc::channel();
        metrics.register_collector(Gate(Mutex::new(opened)));
        let pages = pages(metrics);
        let requests = [(); 3].map(|()| tokio::spawn(Arc::clone(&pages).page("/metrics".to_owned())));
        // The requests begin, and this thread goes on.
        tokio::task::yield_now().await;
        for _ in &requests {
            open.send(()).unwrap();
        }
        for request in requests {
            let page = request.await.unwrap().unwrap();
            let body = page.body.concat();
            assert_eq!(page.status, StatusCode::OK, "{body}");
            assert!(body.ends_with("# EOF\n"), "{body}");
        }
    }
}

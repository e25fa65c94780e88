//! Shared by the targets: an API server, and one request to it.

use std::sync::{Mutex, OnceLock};

use http_body_util::BodyExt;
use kube::client::Body;
use sluice_embedded::ApiServer;
use tokio::runtime::{Builder, Runtime};

/// Requests per server: objects accumulate under any name, so a new server starts now and then.
const REQUESTS: u32 = 5_000;

struct TestServer {
    api: ApiServer,
    remaining: u32,
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Builder::new_current_thread().enable_all().build().expect("a runtime"))
}

/// Messages of responses with status 500, as in kube-apiserver: a creation with a resourceVersion, and an applied configuration that
/// does not fit the schema.
const INTERNAL: [&str; 3] = [
    "resourceVersion should not be set",
    "failed to create typed patch object",
    "failed to merge config",
];

/// Sends a request. Any body must get a JSON response without a server error.
pub fn send(method: &str, path: &str, content: &str, body: &[u8]) {
    static SERVER: Mutex<Option<TestServer>> = Mutex::new(None);
    let mut server = SERVER.lock().expect("one thread");
    runtime().block_on(async {
        if server.as_ref().is_none_or(|server| server.remaining == 0) {
            let api = ApiServer::builder().build().expect("an empty API");
            *server = Some(TestServer { api, remaining: REQUESTS });
        }
        let server = server.as_mut().expect("just created");
        server.remaining -= 1;
        let request = http::Request::builder().method(method).uri(path).header("content-type", content);
        let request = request.body(Body::from(body.to_vec())).expect("a request");
        let response = server.api.client().send(request).await.expect("a response");
        let status = response.status();
        let text = response.into_body().collect().await.expect("a whole response").to_bytes();
        let message = String::from_utf8_lossy(&text);
        if status.as_u16() == 500 && INTERNAL.iter().any(|expected| message.contains(expected)) {
            return;
        }
        assert!(status.as_u16() < 500, "{status}");
        let parsed = serde_json::from_slice::<serde_json::Value>(&text);
        assert!(parsed.is_ok(), "{}", String::from_utf8_lossy(&text));
    });
}

//! What the targets share: an API, and one request to it.

use std::sync::{Mutex, OnceLock};

use http_body_util::BodyExt;
use kube::client::Body;
use sluice_embedded::{Embedded, Server};
use tokio::runtime::{Builder, Runtime};

/// Objects are made here under any name, so now and then the API begins again with none.
const REQUESTS: u32 = 5_000;

struct Desk {
    api: Embedded,
    left: u32,
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Builder::new_current_thread().enable_all().build().expect("a runtime"))
}

/// What kube-apiserver answers, with 500 and as plain text, to a creation that carries a version.
const WITH_VERSION: &[u8] = b"resourceVersion should not be set";

/// Sends a request to the API, which answers it, with no error of its own and with JSON, whatever the body is.
pub fn send(method: &str, path: &str, content: &str, body: &[u8]) {
    static DESK: Mutex<Option<Desk>> = Mutex::new(None);
    let mut desk = DESK.lock().expect("one thread");
    runtime().block_on(async {
        if desk.as_ref().is_none_or(|desk| desk.left == 0) {
            let api = Server::builder().build().expect("an empty API");
            *desk = Some(Desk { api, left: REQUESTS });
        }
        let desk = desk.as_mut().expect("just made");
        desk.left -= 1;
        let request = http::Request::builder().method(method).uri(path).header("content-type", content);
        let request = request.body(Body::from(body.to_vec())).expect("a request");
        let answer = desk.api.client().send(request).await.expect("an answer");
        let status = answer.status();
        let text = answer.into_body().collect().await.expect("a whole answer").to_bytes();
        if status.as_u16() == 500 && text.starts_with(WITH_VERSION) {
            return;
        }
        assert!(status.as_u16() < 500, "{status}");
        let parsed = serde_json::from_slice::<serde_json::Value>(&text);
        assert!(parsed.is_ok(), "{}", String::from_utf8_lossy(&text));
    });
}

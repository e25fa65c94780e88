//! Tests of the fetcher with a misbehaving server on loopback.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::StreamExt as _;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::*;
use crate::failure::{Class, Failure as _};

type Answer = Response<http_body_util::combinators::UnsyncBoxBody<Bytes, std::io::Error>>;

const CONTENT: &[u8] = b"forty-two";
const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn full(status: u16, content: &'static [u8]) -> Answer {
    let body = Full::new(Bytes::from_static(content))
        .map_err(|never: Infallible| match never {})
        .boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

/// Serves `answer(n)` to the n-th request; returns the base URL and the number of requests.
async fn serve(answer: impl Fn(u32) -> Answer + Send + Sync + 'static) -> (String, Arc<AtomicU32>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (count, answer) = (Arc::new(AtomicU32::new(0)), Arc::new(answer));
    let seen = Arc::clone(&count);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (answer, seen) = (Arc::clone(&answer), Arc::clone(&seen));
            let service = service_fn(move |_: Request<Incoming>| {
                let response = answer(seen.fetch_add(1, Ordering::SeqCst) + 1);
                async move { Ok::<_, Infallible>(response) }
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    (format!("http://{address}"), count)
}

fn fetcher() -> Fetcher {
    let client = crate::http::client(&crate::http::Settings {
        system_roots: false,
        ..Default::default()
    })
    .unwrap();
    let quick = Duration::from_millis(1);
    Fetcher {
        limit: 1000,
        retries: 3,
        min_wait: quick,
        max_wait: quick * 4,
        ..Fetcher::new(client)
    }
}

fn digest_of(content: &[u8]) -> String {
    use sha2::Digest as _;
    format!("sha256:{}", hex::encode(sha2::Sha256::digest(content)))
}

struct Outcome {
    result: Result<u64, FetchError>,
    file: Option<Vec<u8>>,
}

async fn fetch(fetcher: &Fetcher, url: &str, digest: &str, size: Option<u64>) -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("artifact");
    let stop = Token::new();
    let job = fetcher.fetch(ArtifactRef { url, digest, size }, &path, &stop);
    let result = tokio::time::timeout(Duration::from_secs(30), job).await.unwrap();
    Outcome {
        result,
        file: std::fs::read(&path).ok(),
    }
}

#[tokio::test]
async fn the_artifact_is_downloaded_and_verified() {
    let (url, _) = serve(|_| full(200, CONTENT)).await;
    let got = fetch(&fetcher(), &url, &digest_of(CONTENT), Some(9)).await;
    assert_eq!(got.result.unwrap(), 9);
    assert_eq!(got.file.unwrap(), CONTENT);
}

#[tokio::test]
async fn wrong_bytes_are_rejected_and_leave_no_file() {
    let (url, count) = serve(|_| full(200, CONTENT)).await;
    let got = fetch(&fetcher(), &url, DIGEST, None).await;
    let error = got.result.unwrap_err();
    assert!(
        error.to_string().contains("computed digest doesn't match"),
        "{error}"
    );
    assert_eq!((got.file, count.load(Ordering::SeqCst)), (None, 1));
    let got = fetch(&fetcher(), &url, &digest_of(CONTENT), Some(10)).await;
    assert_eq!(
        got.result.unwrap_err().to_string(),
        format!("expected artifact size 10, got 9 from {url}/")
    );
}

#[tokio::test]
async fn failing_servers_are_retried_within_limits() {
    let (url, count) = serve(|n| if n < 4 { full(503, b"") } else { full(200, CONTENT) }).await;
    assert_eq!(
        fetch(&fetcher(), &url, &digest_of(CONTENT), None)
            .await
            .result
            .unwrap(),
        9
    );
    assert_eq!(count.load(Ordering::SeqCst), 4);
    let (url, count) = serve(|_| full(429, b"")).await;
    let error = fetch(&fetcher(), &url, &digest_of(CONTENT), None)
        .await
        .result
        .unwrap_err();
    assert!(matches!(
        error,
        FetchError::Status {
            status: StatusCode::TOO_MANY_REQUESTS,
            ..
        }
    ));
    assert_eq!(
        (error.class(), count.load(Ordering::SeqCst)),
        (Class::Transient, 4)
    );
}

#[tokio::test]
async fn each_attempt_that_is_repeated_is_reported() {
    let (url, _) = serve(|_| full(503, b"")).await;
    let (dir, digest) = (tempfile::tempdir().unwrap(), digest_of(CONTENT));
    let (path, stop, mut reports) = (dir.path().join("artifact"), Token::new(), Vec::new());
    let wanted = ArtifactRef {
        url: &url,
        digest: &digest,
        size: None,
    };
    let result = fetcher()
        .fetch_with(wanted, &path, &stop, |failed| reports.push(failed.to_string()))
        .await;
    assert!(matches!(result, Err(FetchError::Status { .. })), "{result:?}");
    let cause = format!("cannot download {url}/: status 503 Service Unavailable");
    let expected = [(1, "1ms"), (2, "2ms"), (3, "4ms")]
        .map(|(number, delay)| format!("attempt {number} of 4 failed, the next follows in {delay}: {cause}"));
    assert_eq!(reports, expected, "the last one is the error");
}

#[tokio::test]
async fn an_absent_artifact_is_waited_for_and_a_refusal_is_final() {
    let (url, count) = serve(|_| full(404, b"")).await;
    let error = fetch(&fetcher(), &url, &digest_of(CONTENT), None)
        .await
        .result
        .unwrap_err();
    assert_eq!(
        (error.class(), count.load(Ordering::SeqCst)),
        (Class::Waiting(Duration::from_secs(30)), 1)
    );
    let (url, count) = serve(|_| full(403, b"")).await;
    let error = fetch(&fetcher(), &url, &digest_of(CONTENT), None)
        .await
        .result
        .unwrap_err();
    assert!(error.to_string().ends_with("status 403 Forbidden"), "{error}");
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_endless_body_ends_at_the_limit() {
    let (url, _) = serve(|_| {
        let endless = futures::stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(&[0; 512]))));
        Response::new(StreamBody::new(endless).boxed_unsync())
    })
    .await;
    let got = fetch(&fetcher(), &url, &digest_of(CONTENT), None).await;
    assert!(
        matches!(got.result, Err(FetchError::TooLarge { limit: 1000, .. })),
        "{:?}",
        got.result
    );
    assert_eq!(got.file, None);
}

#[tokio::test]
async fn an_incomplete_body_is_fetched_again() {
    let (url, _) = serve(|n| {
        if n > 2 {
            return full(200, CONTENT);
        }
        let part = futures::stream::iter([Ok(Frame::data(Bytes::from_static(b"forty")))]);
        Response::new(
            StreamBody::new(part.chain(futures::stream::iter([Err(std::io::Error::other("cut"))])))
                .boxed_unsync(),
        )
    })
    .await;
    assert_eq!(
        fetch(&fetcher(), &url, &digest_of(CONTENT), None)
            .await
            .file
            .unwrap(),
        CONTENT
    );
}

#[tokio::test]
async fn a_stalled_body_times_out() {
    let (url, _) = serve(|_| Response::new(StreamBody::new(futures::stream::pending()).boxed_unsync())).await;
    let fetcher = Fetcher {
        idle: Duration::from_millis(30),
        retries: 0,
        ..fetcher()
    };
    let error = fetch(&fetcher, &url, &digest_of(CONTENT), None)
        .await
        .result
        .unwrap_err();
    assert!(matches!(error, FetchError::Silent { .. }), "{error:?}");
}

#[tokio::test]
async fn a_closed_port_is_an_error_that_names_the_masked_url() {
    // Bound without listening, so that no other test gets the port.
    let taken = tokio::net::TcpSocket::new_v4().unwrap();
    taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let closed = taken.local_addr().unwrap();
    let url = format!("http://user:pa55@{closed}/a");
    let error = fetch(&fetcher(), &url, &digest_of(CONTENT), None)
        .await
        .result
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("cannot download http://user:***@{closed}/a")
    );
    assert!(std::error::Error::source(&error).is_some());
}

#[tokio::test]
async fn the_host_can_be_replaced() {
    let (url, count) = serve(|_| full(200, CONTENT)).await;
    let fetcher = Fetcher {
        host: Some(url.trim_start_matches("http://").to_owned()),
        ..fetcher()
    };
    let away = "http://source-controller.flux-system.svc.cluster.local./gitrepository/a.tar.gz";
    assert_eq!(
        fetch(&fetcher, away, &digest_of(CONTENT), None)
            .await
            .result
            .unwrap(),
        9
    );
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn invalid_requests_are_rejected_before_any_connection() {
    for url in ["", "file:///etc/passwd", "ftp://x/y", "http://", "::"] {
        let error = fetch(&fetcher(), url, DIGEST, None).await.result.unwrap_err();
        assert!(matches!(error, FetchError::BadUrl { .. }), "{url}: {error}");
    }
    let error = fetch(&fetcher(), "http://127.0.0.1:1/", "md5:00", None)
        .await
        .result
        .unwrap_err();
    assert!(matches!(error, FetchError::BadDigest(_)));
}

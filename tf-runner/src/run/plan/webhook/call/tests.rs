//! Calls of real servers on loopback, over TLS and without.

use sluice_harness::tls::{Authority, ClientCertificates, TlsOptions};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

const BODY: &str = r#"{"spec":{}}"#;

/// Reads one request to the end of its body, and answers with these bytes.
async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, bytes: Vec<u8>) {
    let mut request = Vec::new();
    while !request.ends_with(BODY.as_bytes()) {
        let mut buffer = [0; 1024];
        match stream.read(&mut buffer).await {
            Ok(count) if count > 0 => request.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&request).to_lowercase();
    assert!(head.starts_with("post /check http/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: application/json\r\n"), "{head}");
    let _ = stream.write_all(&bytes).await;
    let _ = stream.shutdown().await;
}

fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

async fn plain(bytes: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/check", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        answer(stream, bytes).await;
    });
    url
}

/// A server with a certificate of its own authority.
async fn tls(authority: &Authority, clients: ClientCertificates) -> String {
    client::install_crypto();
    let terms = TlsOptions {
        clients,
        http2: false,
        ..TlsOptions::default()
    };
    let acceptor = authority.acceptor(&terms).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "https://localhost:{}/check",
        listener.local_addr().unwrap().port()
    );
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        if let Ok(stream) = acceptor.accept(stream).await {
            answer(stream, ok(r#"{"passed":true}"#)).await;
        }
    });
    url
}

fn client(certificates: &Path, without_certificates: bool) -> WebhookClient {
    WebhookClient {
        certificates: certificates.to_owned(),
        without_certificates,
        route: Route::Direct,
        timeout: Duration::from_secs(20),
    }
}

async fn call(client: &WebhookClient, url: &str) -> Result<Value, String> {
    let endpoint = client.endpoint(3, url).map_err(|error| error.to_string())?;
    let answer = client.call(&endpoint, BODY.into()).await;
    answer.map_err(|error| error.to_string())
}

#[tokio::test]
async fn only_an_object_with_status_200_is_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let client = client(dir.path(), true);
    let of = async |bytes: Vec<u8>| call(&client, &plain(bytes).await).await;
    assert_eq!(of(ok(r#"{"a":1}"#)).await.unwrap()["a"], 1);
    assert_eq!(
        of(ok("[1]")).await.unwrap_err(),
        "webhook 127.0.0.1: its response is not a JSON object"
    );
    assert_eq!(
        of(ok("hunter2")).await.unwrap_err(),
        "webhook 127.0.0.1: its response is not a JSON object"
    );
    let moved = b"HTTP/1.1 307 Moved\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n".to_vec();
    assert_eq!(
        of(moved).await.unwrap_err(),
        "webhook 127.0.0.1: HTTP status 307 instead of 200",
        "a plan goes nowhere else"
    );
    let long = ok(&format!("{{\"a\":\"{}\"}}", "x".repeat(ANSWER_LIMIT)));
    assert_eq!(
        of(long).await.unwrap_err(),
        "webhook 127.0.0.1: its response has more than 1048576 bytes"
    );
}

#[tokio::test]
async fn userinfo_of_an_address_is_sent_only_as_header() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let request = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(BODY.as_bytes()) {
            stream.read_buf(&mut request).await.unwrap();
        }
        stream.write_all(&ok("{}")).await.unwrap();
        String::from_utf8(request).unwrap()
    });
    let dir = tempfile::tempdir().unwrap();
    let client = client(dir.path(), true);
    let url = format!("http://user:p%40ss@{address}/check?x=1");
    call(&client, &url).await.unwrap();
    let request = request.await.unwrap();
    assert!(request.starts_with("POST /check?x=1 HTTP/1.1\r\n"), "{request}");
    assert!(
        request.to_lowercase().contains(&format!("host: {address}\r\n")),
        "{request}"
    );
    let value = STANDARD.encode("user:p@ss");
    assert!(
        request.contains(&format!("authorization: Basic {value}\r\n")),
        "{request}"
    );
    assert!(!request.contains("p%40ss"), "{request}");
    // The error names the host and not the password.
    let error = call(&client, &url).await.unwrap_err();
    assert!(
        error.starts_with("webhook 127.0.0.1: request failed") && !error.contains("p%40ss"),
        "{error}"
    );
}

#[test]
fn a_certificate_file_is_read_completely_or_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ca.crt");
    std::fs::File::create(&file)
        .unwrap()
        .set_len(FILE_LIMIT + 1)
        .unwrap();
    assert!(
        read_if_present(&file)
            .unwrap_err()
            .to_string()
            .contains("longer than 1048576 bytes")
    );
    std::fs::File::create(&file).unwrap().set_len(FILE_LIMIT).unwrap();
    assert_eq!(read_if_present(&file).unwrap().unwrap().len() as u64, FILE_LIMIT);
    assert!(read_if_present(&dir.path().join("none")).unwrap().is_none());
}

#[tokio::test]
async fn an_unresponsive_service_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/check", listener.local_addr().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let client = WebhookClient {
        timeout: Duration::from_millis(100),
        ..client(dir.path(), true)
    };
    assert_eq!(
        call(&client, &url).await.unwrap_err(),
        "webhook 127.0.0.1: no response within 100ms"
    );
}

#[tokio::test]
async fn the_directory_of_a_host_contains_its_ca_and_client_certificate() {
    let authority = Authority::create().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let host = dir.path().join("localhost");
    std::fs::create_dir(&host).unwrap();
    let client = client(dir.path(), false);
    let unknown = call(&client, &tls(&authority, ClientCertificates::Ignored).await)
        .await
        .unwrap_err();
    assert!(
        unknown.starts_with("webhook localhost: request failed: "),
        "{unknown}"
    );

    std::fs::write(host.join("ca.crt"), authority.pem()).unwrap();
    assert!(
        call(&client, &tls(&authority, ClientCertificates::Ignored).await)
            .await
            .is_ok()
    );
    assert!(
        call(&client, &tls(&authority, ClientCertificates::Required).await)
            .await
            .is_err()
    );

    let identity = authority.issue("runner", "tests", &["runner"]).unwrap();
    std::fs::write(host.join("tls.crt"), &identity.certificate).unwrap();
    let half = call(&client, &tls(&authority, ClientCertificates::Required).await)
        .await
        .unwrap_err();
    assert!(half.contains("tls.crt and tls.key are both required"), "{half}");
    std::fs::write(host.join("tls.key"), &identity.key).unwrap();
    assert!(
        call(&client, &tls(&authority, ClientCertificates::Required).await)
            .await
            .is_ok()
    );

    // Without certificates the server is verified with the system's authorities.
    let without = WebhookClient {
        without_certificates: true,
        ..client
    };
    assert!(
        call(&without, &tls(&authority, ClientCertificates::Ignored).await)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn an_invalid_address_is_rejected_before_any_request() {
    let dir = tempfile::tempdir().unwrap();
    let strict = client(dir.path(), false);
    let refused = |url: &str| strict.endpoint(3, url).err().unwrap().to_string();
    assert!(
        refused("http://user:hunter2@host/")
            .starts_with("webhook host: plans are sent over plain http only if")
    );
    for url in [
        "",
        "no address",
        "ftp://host/",
        "https://../x",
        "https://%2e%2e/",
        "file:///etc/passwd",
    ] {
        assert_eq!(
            refused(url),
            "webhook 3: its url is not an http or https URL",
            "{url}"
        );
    }
    assert!(strict.endpoint(0, "https://[::1]:8080/").is_ok());
}

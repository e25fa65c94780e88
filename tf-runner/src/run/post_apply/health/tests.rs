//! Checks against real listeners.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::json;

use super::*;

/// Answers each request with the status line of its path: `/200`, `/404`, `/to/<path>` redirects.
fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 2048];
            let read = stream.read(&mut head).unwrap_or(0);
            let text = String::from_utf8_lossy(&head[..read]).into_owned();
            let path = text.split(' ').nth(1).unwrap_or_default().trim_start_matches('/');
            let path = path.split('?').next().unwrap_or_default().to_owned();
            let answer = match path.strip_prefix("to/") {
                Some(next) => format!("302 Found\r\nLocation: /{next}"),
                None if path == "circle" => "302 Found\r\nLocation: /circle".to_owned(),
                None => format!("{path} Answer"),
            };
            let _ = write!(
                stream,
                "HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
        }
    });
    address
}

async fn get(target: &str) -> Result<(), String> {
    sluice_runtime::http::install_crypto();
    tokio::time::timeout(Duration::from_secs(30), probe::http(target, &BTreeMap::new()))
        .await
        .unwrap()
}

#[tokio::test]
async fn a_get_passes_from_200_to_399_and_follows_redirects() {
    let address = serve();
    for (path, passes) in [
        ("200", true),
        ("204", true),
        ("304", true),
        ("to/to/200", true),
        ("400", false),
        ("to/503", false),
        ("circle", false),
    ] {
        let answer = get(&format!("http://{address}/{path}")).await;
        assert_eq!(answer.is_ok(), passes, "{path}: {answer:?}");
    }
    for bad in ["", "localhost", "/path", "ftp://localhost/", "http://"] {
        assert!(get(bad).await.is_err(), "{bad}");
    }
    let error = get("http://user:hunter2@[bad/").await.unwrap_err();
    assert!(!error.contains("hunter2"), "{error}");
}

#[tokio::test]
async fn a_connection_is_enough_for_tcp() {
    let address = serve();
    assert_eq!(probe::tcp(&address).await, Ok(()));
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let free = held.local_addr().unwrap();
    drop(held);
    assert!(probe::tcp(&format!("127.0.0.2:{}", free.port())).await.is_err());
    for bad in ["", "localhost", "localhost:99999", "http://localhost:80"] {
        assert!(probe::tcp(bad).await.is_err(), "{bad}");
    }
}

fn context() -> Context {
    let client = sluice_runtime::http::client(&sluice_runtime::http::Settings::default()).unwrap();
    Context {
        client: kube::Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap(),
        fetcher: sluice_runtime::artifact::Fetcher::new(client),
        environment: BTreeMap::new(),
        kubeconfig: None,
        backend_kubeconfig: None,
        pod_log: None,
        bundle: None,
        run: None,
        identity: crate::run::Identity::of_this_process(None, &BTreeMap::new()),
        settings: crate::run::Settings::new("team", "net-1"),
    }
}

#[tokio::test]
async fn addresses_are_rendered_from_outputs_without_quoting_secrets() {
    sluice_runtime::http::install_crypto();
    let address = serve();
    let check = |target: &str, kind| HealthCheck {
        name: "it".to_owned(),
        kind,
        target: target.to_owned(),
        timeout_millis: 20_000,
    };
    let data = json!({ "host": address, "token": "hunter2" });
    let shown = json!({ "host": address, "token": SENSITIVE });
    let far = Instant::now() + Duration::from_mins(1);
    let context = context();
    let tcp = check("${{ .host }}", HealthCheckKind::Tcp);
    check_one(&tcp, &data, &shown, &context, far).await.unwrap();
    let fine = check(
        "http://${{ .host }}/200?token=${{ .token }}",
        HealthCheckKind::Http,
    );
    check_one(&fine, &data, &shown, &context, far).await.unwrap();
    for (target, kind, told) in [
        (
            "http://${{ .host }}/404?token=${{ .token }}",
            HealthCheckKind::Http,
            "404?token=(sensitive): the answer is 404",
        ),
        (
            "${{ .token }}:x",
            HealthCheckKind::Tcp,
            "TCP health check error: it, url: (sensitive):x: the port is not a number",
        ),
        (
            "${{ .host",
            HealthCheckKind::Tcp,
            "TCP health check error: it, url: ${{ .host: ",
        ),
    ] {
        let error = check_one(&check(target, kind), &data, &shown, &context, far)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(told) && !error.contains("hunter2"), "{error}");
    }
}

#[test]
fn a_value_at_the_cut_of_an_address_is_removed_completely() {
    let mut secrets = Redactor::default();
    secrets.add_text("a-token-of-the-service");
    let front = "x".repeat(ADDRESS_LIMIT - 4);
    let error = HealthError::Http {
        name: "it".to_owned(),
        address: format!("{front}a-token-of-the-service/path"),
        why: "the answer is 404".to_owned(),
    };
    let message = error.redact(&secrets).to_string();
    let expected = format!("HTTP health check error: it, url: {front}(sen...: the answer is 404");
    assert_eq!(message, expected);
}

#[tokio::test]
async fn a_check_ends_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let check = HealthCheck {
        name: "slow".to_owned(),
        kind: HealthCheckKind::Http,
        target: format!("http://{}/", silent.local_addr().unwrap()),
        timeout_millis: 100,
    };
    sluice_runtime::http::install_crypto();
    let far = Instant::now() + Duration::from_mins(1);
    let error = check_one(&check, &json!({}), &json!({}), &context(), far)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("no response within 100ms"), "{error}");
    drop(silent);
}

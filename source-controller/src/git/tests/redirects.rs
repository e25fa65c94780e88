//! Redirects of the first request.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// Starts a host that redirects every request to `location`; returns its address.
async fn redirecting(location: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut buffer = vec![0; 16 * 1024];
            let _ = socket.read(&mut buffer).await;
            let answer = format!(
                "HTTP/1.1 301 Moved\r\nLocation: {location}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    format!("{address}/old.git")
}

#[tokio::test]
async fn a_moved_repository_is_followed_without_its_credentials() {
    let env = TestEnvironment::with_files().await;
    let old = redirecting(format!("{}/info/refs?service=git-upload-pack", env.url)).await;
    let remote = env.remote_at(&format!("http://user:pw@{old}"));
    let checkout = env.fetch_from(&remote, &main()).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&env.repository, "HEAD"));
    assert!(
        env.server
            .requests()
            .iter()
            .all(|request| request.username.is_none())
    );
    assert_eq!(env.steps(), [Step::InfoRefs, Step::LsRefs, Step::Fetch]);
}

#[tokio::test]
async fn invalid_redirects_are_refused() {
    let env = TestEnvironment::new().await;
    env.repository.commit("one").unwrap();
    for (location, expected) in [
        (
            format!("{}/login", env.url),
            "the path does not end in '/info/refs'",
        ),
        ("/old.git/info/refs".into(), "more than 10 times in a row"),
        ("ftp://127.0.0.1/x".into(), "to the scheme 'ftp'"),
    ] {
        let old = redirecting(location).await;
        let error = bounded(head(&env.remote_at(&format!("http://{old}")), &main()))
            .await
            .unwrap_err();
        assert!(
            matches!(&error, FetchError::Redirect { why, .. } if why.contains(expected)),
            "{error}"
        );
    }
}

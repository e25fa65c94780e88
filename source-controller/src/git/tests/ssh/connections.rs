//! Connections that are pooled, shared, broken and replaced.

use std::time::Instant;

use sluice_harness::ssh::Fault;

use super::*;

#[tokio::test]
async fn successive_commits_are_fetched_over_one_connection() {
    let env = Ssh::new();
    let remote = env.remote();
    let checkout = env.fetch(&remote).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&env.repository, "main"));
    read_all(checkout).await.unwrap();
    env.repository.commit_files(&[("new", "x")], "second").unwrap();
    let checkout = env.fetch(&remote).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&env.repository, "main"));
    assert_eq!(env.connections().len(), 1, "{:?}", env.server.commands());
    // Two lookups and two fetches; the first lookup reuses the process of the discovery.
    assert_eq!(env.server.commands().len(), 4, "{:?}", env.server.commands());
}

#[tokio::test]
async fn objects_share_connections_within_the_session_limit() {
    let env = Ssh::new();
    bounded(head(&env.remote(), &main())).await.unwrap();
    let lookups = (0..40).map(|_| {
        let remote = env.remote();
        async move { bounded(head(&remote, &main())).await.unwrap().commit.to_string() }
    });
    for found in futures::future::join_all(lookups).await {
        assert_eq!(found, env.commit);
    }
    // OpenSSH allows ten sessions on a connection.
    let connections = env.connections().len();
    assert!(connections <= 5, "{connections}");
}

#[tokio::test]
async fn other_credentials_use_another_connection() {
    let env = Ssh::new();
    bounded(head(&env.remote(), &main())).await.unwrap();
    let stranger = key("ed25519", 256);
    let remote = env.remote_with(&env.url, &stranger.private, "", &env.server.known_hosts());
    assert!(matches!(
        bounded(head(&remote, &main())).await,
        Err(FetchError::Handshake { .. })
    ));
    assert_eq!(env.connections().len(), 1);
}

#[tokio::test]
async fn the_default_user_is_git_and_home_directories_are_supported() {
    let env = Ssh::new();
    let port = env.server.address().port();
    let known = env.server.known_hosts();
    if env.server.user() == "git" {
        let url = env.url.replace("git@", "");
        let remote = env.remote_with(&url, &env.key.private, "", &known);
        assert_eq!(env.look_up(remote).await.unwrap(), env.commit);
    }
    let url = format!("ssh://{}@127.0.0.1:{port}/~/app.git", env.server.user());
    let remote = env.remote_with(&url, &env.key.private, "", &known);
    assert_eq!(env.look_up(remote).await.unwrap(), env.commit);
}

#[tokio::test]
async fn a_dead_connection_is_replaced_without_an_error() {
    let env = Ssh::new();
    let remote = env.remote();
    bounded(head(&remote, &main())).await.unwrap();
    env.server.fault(Some(Fault::ClosedOnce)).unwrap();
    let found = bounded(head(&remote, &main())).await.unwrap();
    assert_eq!(found.commit.to_string(), env.commit);
    assert_eq!(env.connections().len(), 2);
}

#[tokio::test]
async fn the_error_of_a_failed_command_contains_its_output() {
    let env = Ssh::new();
    env.server.fault(Some(Fault::Failed)).unwrap();
    let error = env.look_up(env.remote()).await.unwrap_err().to_string();
    assert!(
        error.ends_with("git-upload-pack ended with exit status 7: fatal: the disk is on fire"),
        "{error}"
    );
    env.server.fault(None).unwrap();
    let missing = env.server.url("/nowhere.git");
    let remote = env.remote_with(&missing, &env.key.private, "", &env.server.known_hosts());
    let error = env.look_up(remote).await.unwrap_err();
    assert!(matches!(error, FetchError::Command { .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .contains("'/nowhere.git' does not appear to be a git repository"),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .starts_with("unable to list remote for 'ssh://127.0.0.1:"),
        "{error}"
    );
}

#[tokio::test]
async fn a_hanging_server_times_out_and_is_reused_afterwards() {
    let env = Ssh::new();
    let limit = Duration::from_millis(500);
    let short = Remote {
        timeout: limit,
        ..env.remote()
    };
    let found = bounded(head(&env.remote(), &main())).await.unwrap();
    env.server.fault(Some(Fault::Hung)).unwrap();
    let error = bounded(head(&short, &main())).await.unwrap_err();
    assert!(matches!(error, FetchError::TimedOut { .. }), "{error}");
    env.server.fault(Some(Fault::Stalled(40_000))).unwrap();
    let mirror = env.mirrors.open(&short);
    let error = bounded(fetch(&mirror, &short, &found, &CancellationToken::new()))
        .await
        .unwrap_err();
    assert!(matches!(error, FetchError::TimedOut { .. }), "{error}");
    env.server.fault(None).unwrap();
    env.fetch(&env.remote()).await.unwrap();
    // The connection passes its check, so it stays in the pool.
    assert_eq!(env.connections().len(), 1);
}

#[tokio::test]
async fn a_truncated_response_fails_and_the_next_one_succeeds() {
    let env = Ssh::new();
    let found = bounded(head(&env.remote(), &main())).await.unwrap();
    let remote = env.remote();
    for bytes in [0, 10, 400, 40_000] {
        env.server.fault(Some(Fault::Truncated(bytes))).unwrap();
        let mirror = env.mirrors.open(&remote);
        let error = bounded(fetch(&mirror, &remote, &found, &CancellationToken::new()))
            .await
            .unwrap_err();
        let named = matches!(
            error,
            FetchError::Protocol { .. }
                | FetchError::Command { .. }
                | FetchError::Connection { .. }
                | FetchError::Advertisement { .. }
        );
        assert!(named, "{bytes}: {error:?}");
    }
    env.server.fault(None).unwrap();
    env.fetch(&remote).await.unwrap();
}

#[tokio::test]
async fn a_server_killed_during_a_fetch_is_detected_at_once() {
    let mut env = Ssh::new();
    let remote = env.remote();
    let found = bounded(head(&remote, &main())).await.unwrap();
    env.server.fault(Some(Fault::Stalled(40_000))).unwrap();
    let before = env.server.commands().len();
    let mirror = env.mirrors.open(&remote);
    let started = Instant::now();
    let fetching =
        tokio::spawn(async move { fetch(&mirror, &remote, &found, &CancellationToken::new()).await });
    bounded(async {
        while env.server.commands().len() == before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    env.server.kill();
    let error = bounded(fetching).await.unwrap().unwrap_err();
    assert!(matches!(error, FetchError::Connection { .. }), "{error:?}");
    assert!(
        error.to_string().starts_with("cannot talk to 127.0.0.1:"),
        "{error}"
    );
    assert!(started.elapsed() < DEADLINE);
    let error = env.look_up(env.remote()).await.unwrap_err();
    assert!(matches!(error, FetchError::Connection { .. }), "{error:?}");
}

#[tokio::test]
async fn version_0_is_used_if_the_server_ignores_the_requested_version() {
    let env = Ssh::new();
    env.server.fault(Some(Fault::Version0)).unwrap();
    let remote = env.remote();
    let checkout = env.fetch(&remote).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&env.repository, "main"));
    env.repository.commit_files(&[("new", "x")], "second").unwrap();
    let checkout = env.fetch(&remote).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&env.repository, "main"));
    read_all(checkout).await.unwrap();
    assert_eq!(env.connections().len(), 1, "{:?}", env.server.commands());
}

#[tokio::test]
async fn a_closed_port_is_a_connection_error() {
    let env = Ssh::new();
    let url = "ssh://git@127.0.0.1:1/x";
    let error = env
        .look_up(env.remote_with(url, &env.key.private, "", &env.server.known_hosts()))
        .await
        .unwrap_err();
    assert!(
        error.to_string().starts_with("cannot talk to 127.0.0.1:1: "),
        "{error}"
    );
}

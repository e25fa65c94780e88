//! Connections that are kept, shared, broken and replaced.

use std::time::Instant;

use sluice_harness::ssh::Fault;

use super::*;

#[tokio::test]
async fn a_commit_and_its_successor_come_over_one_connection() {
    let world = Ssh::new();
    let remote = world.remote();
    let checkout = world.fetch(&remote).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&world.repository, "main"));
    read_all(checkout).await.unwrap();
    world.repository.commit_files(&[("new", "x")], "second").unwrap();
    let checkout = world.fetch(&remote).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&world.repository, "main"));
    assert_eq!(world.connections().len(), 1, "{:?}", world.server.commands());
    // Two lookups and two fetches; the first lookup goes on with the program that presented the repository.
    assert_eq!(world.server.commands().len(), 4, "{:?}", world.server.commands());
}

#[tokio::test]
async fn objects_share_connections_and_a_server_is_not_asked_for_more_than_it_allows() {
    let world = Ssh::new();
    bounded(head(&world.remote(), &main())).await.unwrap();
    let lookups = (0..40).map(|_| {
        let remote = world.remote();
        async move { bounded(head(&remote, &main())).await.unwrap().commit.to_string() }
    });
    for found in futures::future::join_all(lookups).await {
        assert_eq!(found, world.commit);
    }
    // OpenSSH allows ten sessions on a connection.
    let connections = world.connections().len();
    assert!(connections <= 5, "{connections}");
}

#[tokio::test]
async fn other_credentials_have_a_connection_of_their_own() {
    let world = Ssh::new();
    bounded(head(&world.remote(), &main())).await.unwrap();
    let stranger = key("ed25519", 256);
    let remote = world.remote_with(&world.url, &stranger.private, "", &world.server.known_hosts());
    assert!(matches!(
        bounded(head(&remote, &main())).await,
        Err(FetchError::Handshake { .. })
    ));
    assert_eq!(world.connections().len(), 1);
}

#[tokio::test]
async fn the_user_is_git_unless_the_address_says_otherwise_and_home_directories_are_known() {
    let world = Ssh::new();
    let port = world.server.address().port();
    let known = world.server.known_hosts();
    if world.server.user() == "git" {
        let url = world.url.replace("git@", "");
        let remote = world.remote_with(&url, &world.key.private, "", &known);
        assert_eq!(world.look(remote).await.unwrap(), world.commit);
    }
    let url = format!("ssh://{}@127.0.0.1:{port}/~/app.git", world.server.user());
    let remote = world.remote_with(&url, &world.key.private, "", &known);
    assert_eq!(world.look(remote).await.unwrap(), world.commit);
}

#[tokio::test]
async fn a_connection_that_died_is_replaced_without_a_word() {
    let world = Ssh::new();
    let remote = world.remote();
    bounded(head(&remote, &main())).await.unwrap();
    world.server.fault(Some(Fault::ClosedOnce)).unwrap();
    let found = bounded(head(&remote, &main())).await.unwrap();
    assert_eq!(found.commit.to_string(), world.commit);
    assert_eq!(world.connections().len(), 2);
}

#[tokio::test]
async fn a_command_that_fails_says_what_the_server_said() {
    let world = Ssh::new();
    world.server.fault(Some(Fault::Failed)).unwrap();
    let error = world.look(world.remote()).await.unwrap_err().to_string();
    assert!(
        error.ends_with("git-upload-pack ended with exit status 7: fatal: the disk is on fire"),
        "{error}"
    );
    world.server.fault(None).unwrap();
    let missing = world.server.url("/nowhere.git");
    let remote = world.remote_with(&missing, &world.key.private, "", &world.server.known_hosts());
    let error = world.look(remote).await.unwrap_err();
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
async fn a_server_that_hangs_is_left_after_the_time_allowed_and_found_again() {
    let world = Ssh::new();
    let limit = Duration::from_millis(500);
    let short = Remote {
        timeout: limit,
        ..world.remote()
    };
    let found = bounded(head(&world.remote(), &main())).await.unwrap();
    world.server.fault(Some(Fault::Hung)).unwrap();
    let error = bounded(head(&short, &main())).await.unwrap_err();
    assert!(matches!(error, FetchError::TimedOut { .. }), "{error}");
    world.server.fault(Some(Fault::Stalled(40_000))).unwrap();
    let mirror = world.mirrors.open(&short);
    let error = bounded(fetch(&mirror, &short, &found, &CancellationToken::new()))
        .await
        .unwrap_err();
    assert!(matches!(error, FetchError::TimedOut { .. }), "{error}");
    world.server.fault(None).unwrap();
    world.fetch(&world.remote()).await.unwrap();
    // The connection answers for itself, so it is kept.
    assert_eq!(world.connections().len(), 1);
}

#[tokio::test]
async fn an_answer_that_ends_early_is_an_error_and_the_next_one_is_not() {
    let world = Ssh::new();
    let found = bounded(head(&world.remote(), &main())).await.unwrap();
    let remote = world.remote();
    for bytes in [0, 10, 400, 40_000] {
        world.server.fault(Some(Fault::Truncated(bytes))).unwrap();
        let mirror = world.mirrors.open(&remote);
        let error = bounded(fetch(&mirror, &remote, &found, &CancellationToken::new()))
            .await
            .unwrap_err();
        let named = matches!(
            error,
            FetchError::Answer { .. }
                | FetchError::Command { .. }
                | FetchError::Connection { .. }
                | FetchError::Advertisement { .. }
        );
        assert!(named, "{bytes}: {error:?}");
    }
    world.server.fault(None).unwrap();
    world.fetch(&remote).await.unwrap();
}

#[tokio::test]
async fn a_server_killed_in_the_middle_of_a_fetch_is_noticed_at_once() {
    let mut world = Ssh::new();
    let remote = world.remote();
    let found = bounded(head(&remote, &main())).await.unwrap();
    world.server.fault(Some(Fault::Stalled(40_000))).unwrap();
    let before = world.server.commands().len();
    let mirror = world.mirrors.open(&remote);
    let started = Instant::now();
    let fetching =
        tokio::spawn(async move { fetch(&mirror, &remote, &found, &CancellationToken::new()).await });
    bounded(async {
        while world.server.commands().len() == before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    world.server.kill();
    let error = bounded(fetching).await.unwrap().unwrap_err();
    assert!(matches!(error, FetchError::Connection { .. }), "{error:?}");
    assert!(
        error.to_string().starts_with("cannot talk to 127.0.0.1:"),
        "{error}"
    );
    assert!(started.elapsed() < DEADLINE);
    let error = world.look(world.remote()).await.unwrap_err();
    assert!(matches!(error, FetchError::Connection { .. }), "{error:?}");
}

#[tokio::test]
async fn a_server_that_does_not_pass_the_version_on_is_spoken_to_in_its_own() {
    let world = Ssh::new();
    world.server.fault(Some(Fault::Version0)).unwrap();
    let remote = world.remote();
    let checkout = world.fetch(&remote).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&world.repository, "main"));
    world.repository.commit_files(&[("new", "x")], "second").unwrap();
    let checkout = world.fetch(&remote).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&world.repository, "main"));
    read_all(checkout).await.unwrap();
    assert_eq!(world.connections().len(), 1, "{:?}", world.server.commands());
}

#[tokio::test]
async fn nobody_listening_is_a_connection_error() {
    let world = Ssh::new();
    let url = "ssh://git@127.0.0.1:1/x";
    let error = world
        .look(world.remote_with(url, &world.key.private, "", &world.server.known_hosts()))
        .await
        .unwrap_err();
    assert!(
        error.to_string().starts_with("cannot talk to 127.0.0.1:1: "),
        "{error}"
    );
}

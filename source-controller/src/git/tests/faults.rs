//! Servers that fail in the middle of a response. Afterwards the mirror is unchanged, and the next fetch succeeds.

use sluice_harness::git::{Fault, Scope};
use sluice_runtime::failure::Failure as _;

use super::*;

/// Checks that no file of an interrupted fetch remains, and that a fetch without the fault succeeds.
async fn assert_recovery(env: &TestEnvironment) {
    env.server.clear_faults();
    let checkout = env.fetch(&main()).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&env.repository, "main"));
    read_all(checkout).await.unwrap();
    assert_eq!(env.files(|name| name.contains("git2")), Vec::<PathBuf>::new());
    assert_eq!(fsck(&generation(env)), "");
}

#[tokio::test]
async fn a_corrupted_pack_is_refused() {
    let env = TestEnvironment::with_files().await;
    for offset in [0, 9, 40, 5_000, 400_000] {
        env.server.fault(Scope::FETCH, Fault::Corrupted(offset));
        let error = env.fetch(&main()).await.unwrap_err();
        let named = matches!(&error, FetchError::Pack { host, .. } if env.url.contains(host))
            || matches!(&error, FetchError::TooLarge { .. });
        assert!(named, "{offset}: {error}");
        assert_eq!(error.reason(), "GitOperationFailed");
        env.server.clear_faults();
    }
    assert_recovery(&env).await;
}

#[tokio::test]
async fn a_corrupted_incremental_pack_leaves_the_mirror_unchanged() {
    let env = TestEnvironment::with_files().await;
    let before = env.fetch(&main()).await.unwrap();
    env.repository
        .commit_files(&[("a", noise(1, 4000))], "two")
        .unwrap();
    env.server.fault(Scope::FETCH, Fault::Corrupted(60));
    let error = env.fetch(&main()).await.unwrap_err();
    assert!(matches!(error, FetchError::Pack { .. }), "{error}");
    read_all(before).await.unwrap();
    assert_recovery(&env).await;
}

#[tokio::test]
async fn a_truncated_pack_is_refused() {
    let env = TestEnvironment::with_files().await;
    for bytes in [0, 20, 300, 100_000] {
        env.server.fault(Scope::FETCH, Fault::Truncated(bytes));
        let error = env.fetch(&main()).await.unwrap_err();
        assert!(
            matches!(error, FetchError::Connection { .. } | FetchError::Protocol { .. }),
            "{bytes}: {error}"
        );
        env.server.clear_faults();
    }
    assert_recovery(&env).await;
}

#[tokio::test]
async fn more_bytes_than_allowed_are_refused() {
    let env = TestEnvironment::with_files().await;
    env.server.fault(Scope::FETCH, Fault::Oversized);
    let mut remote = env.remote();
    remote.limits.pack_bytes = 1 << 20;
    // Its only object announces 1 TiB.
    let error = env.fetch_from(&remote, &main()).await.unwrap_err();
    assert!(
        error.to_string().contains("raise --git-max-unpacked-bytes"),
        "{error}"
    );
    remote.limits.pack.unpacked_bytes = 2 << 40;
    let error = env.fetch_from(&remote, &main()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the repository is too large: more than 1048576 bytes in one fetch; raise --git-max-pack-bytes or make it smaller"
    );
    env.server.clear_faults();
    remote.limits.pack_bytes = 100_000;
    let error = env.fetch_from(&remote, &main()).await.unwrap_err();
    assert!(
        matches!(error, FetchError::TooLarge { unit: "bytes", .. }),
        "{error}"
    );
    assert_recovery(&env).await;
}

#[tokio::test]
async fn more_objects_than_allowed_are_refused() {
    let env = TestEnvironment::with_files().await;
    let mut remote = env.remote();
    remote.limits.pack.objects = 100;
    let error = env.fetch_from(&remote, &main()).await.unwrap_err();
    assert!(
        matches!(
            error,
            FetchError::TooLarge {
                limit: 100,
                unit: "objects",
                ..
            }
        ),
        "{error}"
    );
    assert_recovery(&env).await;
}

#[tokio::test]
async fn a_silent_server_times_out() {
    let env = TestEnvironment::with_files().await;
    let mut remote = env.remote();
    let limit = Duration::from_millis(400);
    for (scope, fault) in [
        (Scope::INFO_REFS, Fault::Hung),
        (Scope::LS_REFS, Fault::Hung),
        (Scope::FETCH, Fault::Hung),
        (Scope::FETCH, Fault::Stalled(100_000)),
    ] {
        remote.timeout = limit;
        // The lookup has its own timeout; only the faulty request must time out.
        let found = env.head(&main()).await.unwrap();
        env.transport.forget(&remote);
        env.server.fault(scope, fault);
        let error = if scope == Scope::LS_REFS {
            bounded(head(&remote, &main())).await.unwrap_err()
        } else {
            bounded(fetch(
                &env.mirrors.open(&remote),
                &remote,
                &found,
                &CancellationToken::new(),
            ))
            .await
            .unwrap_err()
        };
        assert_eq!(
            error.to_string(),
            format!(
                "timed out: no complete response from {} within 400ms (deadline exceeded)",
                remote.address.host()
            )
        );
        env.server.clear_faults();
    }
    assert_recovery(&env).await;
}

#[tokio::test]
async fn a_fetch_can_be_stopped() {
    let env = TestEnvironment::with_files().await;
    env.server.fault(Scope::FETCH, Fault::Stalled(100_000));
    let (remote, stop) = (env.remote(), CancellationToken::new());
    let found = env.head(&main()).await.unwrap();
    let mirror = env.mirrors.open(&remote);
    let running = fetch(&mirror, &remote, &found, &stop);
    let stopping = async {
        // Wait for the first bytes of the response.
        while env
            .server
            .requests()
            .last()
            .is_none_or(|last| last.step != Step::Fetch || last.response_bytes == 0)
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stop.cancel();
    };
    let (result, ()) = bounded(async { tokio::join!(running, stopping) }).await;
    assert!(matches!(result, Err(FetchError::Stopped)));
    assert_recovery(&env).await;
}

#[tokio::test]
async fn a_dropped_fetch_leaves_the_mirror_usable() {
    let env = TestEnvironment::with_files().await;
    env.server.fault(Scope::FETCH, Fault::Stalled(100_000));
    let remote = env.remote();
    let found = env.head(&main()).await.unwrap();
    let mirror = env.mirrors.open(&remote);
    let (first, stop) = (Duration::from_millis(300), CancellationToken::new());
    let dropped = tokio::time::timeout(first, fetch(&mirror, &remote, &found, &stop)).await;
    assert!(dropped.is_err());
    assert_recovery(&env).await;
}

#[tokio::test]
async fn a_slow_server_succeeds() {
    let env = TestEnvironment::with_files().await;
    env.server.fault(
        Scope::FETCH,
        Fault::Slow {
            bytes: 64 << 10,
            pause: Duration::from_millis(5),
        },
    );
    read_all(env.fetch(&main()).await.unwrap()).await.unwrap();
}

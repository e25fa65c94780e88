//! Servers that break in the middle. After each, the mirror is as it was, and the next fetch works.

use sluice_harness::git::{Fault, Scope};
use sluice_runtime::failure::Failure as _;

use super::*;

/// Nothing of an interrupted fetch is on disk, and a fetch without the fault works.
async fn recovers(world: &World) {
    world.server.clear_faults();
    let checkout = world.fetch(&main()).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&world.repository, "main"));
    read_all(checkout).await.unwrap();
    assert_eq!(world.files(|name| name.contains("git2")), Vec::<PathBuf>::new());
    assert_eq!(fsck(&generation(world)), "");
}

#[tokio::test]
async fn a_corrupted_pack_is_refused() {
    let world = World::with_files().await;
    for offset in [0, 9, 40, 5_000, 400_000] {
        world.server.fault(Scope::FETCH, Fault::Corrupted(offset));
        let error = world.fetch(&main()).await.unwrap_err();
        let named = matches!(&error, FetchError::Pack { host, .. } if world.url.contains(host))
            || matches!(&error, FetchError::TooLarge { .. });
        assert!(named, "{offset}: {error}");
        assert_eq!(error.reason(), "GitOperationFailed");
        world.server.clear_faults();
    }
    recovers(&world).await;
}

#[tokio::test]
async fn a_corrupted_difference_leaves_the_mirror_as_it_was() {
    let world = World::with_files().await;
    let before = world.fetch(&main()).await.unwrap();
    world
        .repository
        .commit_files(&[("a", noise(1, 4000))], "two")
        .unwrap();
    world.server.fault(Scope::FETCH, Fault::Corrupted(60));
    let error = world.fetch(&main()).await.unwrap_err();
    assert!(matches!(error, FetchError::Pack { .. }), "{error}");
    read_all(before).await.unwrap();
    recovers(&world).await;
}

#[tokio::test]
async fn a_pack_that_ends_early_is_refused() {
    let world = World::with_files().await;
    for bytes in [0, 20, 300, 100_000] {
        world.server.fault(Scope::FETCH, Fault::Truncated(bytes));
        let error = world.fetch(&main()).await.unwrap_err();
        assert!(
            matches!(error, FetchError::Connection { .. } | FetchError::Answer { .. }),
            "{bytes}: {error}"
        );
        world.server.clear_faults();
    }
    recovers(&world).await;
}

#[tokio::test]
async fn more_bytes_than_allowed_are_refused() {
    let world = World::with_files().await;
    world.server.fault(Scope::FETCH, Fault::Oversized);
    let mut remote = world.remote();
    remote.limits.pack_bytes = 1 << 20;
    // Its one object says that it has 1 TiB.
    let error = world.fetch_from(&remote, &main()).await.unwrap_err();
    assert!(
        error.to_string().contains("raise --git-max-unpacked-bytes"),
        "{error}"
    );
    remote.limits.unpacked_bytes = 2 << 40;
    let error = world.fetch_from(&remote, &main()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the repository is too large: more than 1048576 bytes in one fetch; raise --git-max-pack-bytes or make it smaller"
    );
    world.server.clear_faults();
    remote.limits.pack_bytes = 100_000;
    let error = world.fetch_from(&remote, &main()).await.unwrap_err();
    assert!(
        matches!(error, FetchError::TooLarge { unit: "bytes", .. }),
        "{error}"
    );
    recovers(&world).await;
}

#[tokio::test]
async fn more_objects_than_allowed_are_refused() {
    let world = World::with_files().await;
    let mut remote = world.remote();
    remote.limits.pack_objects = 100;
    let error = world.fetch_from(&remote, &main()).await.unwrap_err();
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
    recovers(&world).await;
}

#[tokio::test]
async fn a_server_that_goes_silent_is_left_after_the_time_allowed() {
    let world = World::with_files().await;
    let mut remote = world.remote();
    let limit = Duration::from_millis(400);
    for (scope, fault) in [
        (Scope::INFO_REFS, Fault::Hung),
        (Scope::LS_REFS, Fault::Hung),
        (Scope::FETCH, Fault::Hung),
        (Scope::FETCH, Fault::Stalled(100_000)),
    ] {
        remote.timeout = limit;
        // The lookup has its own time; here only what is struck shall run out.
        let found = world.head(&main()).await.unwrap();
        world.transport.forget(&remote);
        world.server.fault(scope, fault);
        let error = if scope == Scope::LS_REFS {
            bounded(head(&remote, &main())).await.unwrap_err()
        } else {
            bounded(fetch(
                &world.mirrors.open(&remote),
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
                "timed out: no complete answer from {} within 400ms (deadline exceeded)",
                remote.address.host()
            )
        );
        world.server.clear_faults();
    }
    recovers(&world).await;
}

#[tokio::test]
async fn a_fetch_can_be_stopped() {
    let world = World::with_files().await;
    world.server.fault(Scope::FETCH, Fault::Stalled(100_000));
    let (remote, stop) = (world.remote(), CancellationToken::new());
    let found = world.head(&main()).await.unwrap();
    let mirror = world.mirrors.open(&remote);
    let running = fetch(&mirror, &remote, &found, &stop);
    let stopping = async {
        // Once bytes are on their way.
        while world
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
    recovers(&world).await;
}

#[tokio::test]
async fn a_dropped_fetch_leaves_the_mirror_usable() {
    let world = World::with_files().await;
    world.server.fault(Scope::FETCH, Fault::Stalled(100_000));
    let remote = world.remote();
    let found = world.head(&main()).await.unwrap();
    let mirror = world.mirrors.open(&remote);
    let (first, stop) = (Duration::from_millis(300), CancellationToken::new());
    let dropped = tokio::time::timeout(first, fetch(&mirror, &remote, &found, &stop)).await;
    assert!(dropped.is_err());
    recovers(&world).await;
}

#[tokio::test]
async fn a_slow_server_is_waited_for() {
    let world = World::with_files().await;
    world.server.fault(
        Scope::FETCH,
        Fault::Slow {
            bytes: 64 << 10,
            pause: Duration::from_millis(5),
        },
    );
    read_all(world.fetch(&main()).await.unwrap()).await.unwrap();
}

//! The lifecycle of mirrors.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;

use git2::Oid;

use super::*;

impl TestEnvironment {
    fn packs(&self) -> Vec<PathBuf> {
        let all = self.files(|_| true);
        all.into_iter()
            .filter(|path| path.extension().is_some_and(|extension| extension == "pack"))
            .collect()
    }

    /// Simulates a restart: memory is empty, the disk is unchanged.
    fn restart(self) -> Self {
        let Self {
            repository,
            server,
            url,
            mirrors,
            transport: _,
            root,
        } = self;
        drop(mirrors);
        let mirrors = reopen(root.path());
        Self {
            repository,
            server,
            url,
            mirrors,
            transport: Transport::new().unwrap(),
            root,
        }
    }
}

#[tokio::test]
async fn a_restart_fetches_nothing_again() {
    let env = TestEnvironment::with_files().await;
    env.fetch(&main()).await.unwrap();
    let env = env.restart();
    env.steps();
    let checkout = env.fetch(&main()).await.unwrap();
    assert_eq!(env.steps(), [Step::InfoRefs, Step::LsRefs]);
    assert_eq!(files(&checkout), ls_tree(&env.repository, "HEAD"));
}

#[tokio::test]
async fn leftovers_of_a_killed_fetch_are_removed() {
    let env = TestEnvironment::with_files().await;
    env.fetch(&main()).await.unwrap();
    let pack = generation(&env).join("objects/pack");
    for name in ["pack_git2_8f3a1c", "pack-1234.idx"] {
        fs::write(pack.join(name), "half of it").unwrap();
    }
    fs::create_dir_all(
        generation(&env)
            .with_file_name("generation-9")
            .join("objects/pack"),
    )
    .unwrap();
    let env = env.restart();
    env.repository.commit_files(&[("a", "1")], "two").unwrap();
    let checkout = env.fetch(&main()).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&env.repository, "HEAD"));
    assert_eq!(fs::read_dir(&pack).unwrap().count(), 4);
    assert_eq!(fsck(&generation(&env)), "");
}

#[tokio::test]
async fn a_mirror_without_its_packs_is_replaced() {
    let env = TestEnvironment::with_files().await;
    env.fetch(&main()).await.unwrap();
    for pack in env.packs() {
        fs::remove_file(pack).unwrap();
    }
    let env = env.restart();
    let checkout = env.fetch(&main()).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&env.repository, "HEAD"));
    read_all(checkout).await.unwrap();
    assert_eq!(fsck(&generation(&env)), "");
}

#[tokio::test]
async fn a_mirror_without_its_packs_is_not_fetched_incrementally() {
    let env = TestEnvironment::with_files().await;
    env.fetch(&main()).await.unwrap();
    for pack in env.packs() {
        fs::remove_file(pack).unwrap();
    }
    let env = env.restart();
    env.repository
        .commit_files(&[("modules/7/main.tf", noise(1000, 10))], "two")
        .unwrap();
    let checkout = env.fetch(&main()).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&env.repository, "HEAD"));
    read_all(checkout).await.unwrap();
    assert_eq!(env.server.count(Step::Fetch), 3);
}

#[tokio::test]
async fn a_corrupt_stored_pack_is_detected_and_the_mirror_is_replaced() {
    let env = TestEnvironment::with_files().await;
    env.fetch(&main()).await.unwrap();
    let pack = env.packs().pop().unwrap();
    let mut bytes = fs::read(&pack).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 64].fill(0x5a);
    fs::remove_file(&pack).unwrap();
    fs::write(&pack, bytes).unwrap();
    let env = env.restart();
    let error = read_all(env.fetch(&main()).await.unwrap()).await.unwrap_err();
    assert!(matches!(error, ReadError::Object { .. }), "{error}");
    let env = env;
    read_all(env.fetch(&main()).await.unwrap()).await.unwrap();
    assert_eq!(env.server.count(Step::Fetch), 2);
}

#[tokio::test]
async fn a_mirror_with_too_many_commits_is_replaced() {
    let env = TestEnvironment::with_files().await;
    let existing = env.fetch(&main()).await.unwrap();
    let old = generation(&env);
    let mut refs = fs::read_to_string(old.join("packed-refs")).unwrap();
    for number in 1..100 {
        writeln!(refs, "{number:040x} refs/tips/{number:06}").unwrap();
    }
    fs::write(old.join("packed-refs"), refs).unwrap();
    drop(existing);
    let env = env.restart();
    env.repository.commit_files(&[("a", "1")], "two").unwrap();
    let checkout = env.fetch(&main()).await.unwrap();
    assert_ne!(generation(&env), old);
    assert_eq!(files(&checkout), ls_tree(&env.repository, "HEAD"));
    let request_body = env.server.requests().pop().unwrap().body_text();
    assert!(!request_body.contains("have "), "{request_body}");
}

#[tokio::test]
async fn a_commit_is_verified_once_in_a_process() {
    let env = TestEnvironment::with_files().await;
    let verified = async || {
        let mirror = env.mirrors.open(&env.remote());
        let opened = mirror.lock().await.open_current().unwrap();
        opened.verified
    };
    assert!(verified().await.is_empty());
    // Each reconciliation opens and closes the mirror.
    let mut commits = HashSet::new();
    for content in ["1", "2"] {
        let commit = env.repository.commit_files(&[("a", content)], content).unwrap();
        env.fetch(&main()).await.unwrap();
        commits.insert(Oid::from_str(&commit).unwrap());
        assert_eq!(verified().await, commits);
    }
    // A new generation starts without verified commits, even if its directory has the name of a deleted one.
    let mirror = env.mirrors.open(&env.remote());
    mirror
        .lock()
        .await
        .open_current()
        .unwrap()
        .generation
        .mark_corrupt();
    drop(mirror);
    assert!(verified().await.is_empty());
}

#[tokio::test]
async fn readers_of_an_old_generation_are_not_disturbed() {
    let env = TestEnvironment::with_files().await;
    let existing = env.fetch(&main()).await.unwrap();
    let (remote, old) = (env.remote(), generation(&env));
    // Simulate an unreadable object.
    let mirror = env.mirrors.open(&remote);
    mirror
        .lock()
        .await
        .open_current()
        .unwrap()
        .generation
        .mark_corrupt();
    env.repository.commit_files(&[("a", "1")], "two").unwrap();
    env.fetch(&main()).await.unwrap();
    assert!(old.exists());
    read_all(existing).await.unwrap();
    assert!(!old.exists());
    generation(&env);
}

#[tokio::test]
async fn a_mirror_is_shared_only_by_the_same_credentials() {
    let env = TestEnvironment::new().await;
    let with = |user: &str| env.remote_at(&env.url.replace("http://", &format!("http://{user}@")));
    let open = |remote: &Remote| env.mirrors.open(remote);
    assert!(Arc::ptr_eq(&open(&with("a:b")), &open(&with("a:b"))));
    let existing = open(&with("a:b"));
    for other in [with("a:c"), env.remote(), env.remote_at(&format!("{}x", env.url))] {
        assert!(!Arc::ptr_eq(&existing, &open(&other)));
    }
}

/// Returns the remote of an object whose credentials come from the Secret with this digest.
fn owned(remote: Remote, principal: u8) -> Remote {
    remote.with_access(|access| {
        access.owner = Owner {
            namespace: "team".into(),
            principal: Some([principal; 32]),
        };
    })
}

#[tokio::test]
async fn a_mirror_belongs_to_the_secret_independent_of_its_content() {
    let env = TestEnvironment::new().await;
    let with = |user: &str| env.remote_at(&env.url.replace("http://", &format!("http://{user}@")));
    let open = |remote: &Remote| env.mirrors.open(remote);
    let existing = open(&owned(with("a:old"), 1));
    assert!(Arc::ptr_eq(&existing, &open(&owned(with("a:new"), 1))), "renewed");
    let other = open(&owned(with("a:old"), 2));
    assert!(
        !Arc::ptr_eq(&existing, &other),
        "the same password in another Secret"
    );
    assert!(
        !Arc::ptr_eq(&existing, &open(&with("a:old"))),
        "the same password in the address"
    );
    // Without credentials all readers are equal.
    let (one, two) = (owned(env.remote(), 1), owned(env.remote(), 2));
    assert!(Arc::ptr_eq(&open(&one), &open(&two)));
}

#[tokio::test]
async fn each_route_to_an_address_has_its_own_mirror() {
    let env = TestEnvironment::new().await;
    let open = |remote: &Remote| env.mirrors.open(remote);
    let by = |proxy: &str, password: &str| {
        let proxy = Arc::new(Proxy::new(proxy, Some("u"), Some(password)).unwrap());
        env.remote().with_access(|access| access.proxy = Some(proxy))
    };
    let trusting = env.remote().with_access(|access| {
        access.tls = Arc::new(Tls {
            authorities: b"own".to_vec(),
            identity: None,
        });
    });
    let existing = open(&env.remote());
    let proxied = open(&by("http://127.0.0.1:1", "old"));
    for other in [
        &proxied,
        &open(&trusting),
        &open(&by("http://127.0.0.1:2", "old")),
    ] {
        assert!(!Arc::ptr_eq(&existing, other));
    }
    assert!(Arc::ptr_eq(&proxied, &open(&by("http://127.0.0.1:1", "new"))));
    assert!(!Arc::ptr_eq(&proxied, &open(&by("http://127.0.0.1:2", "old"))));
}

#[tokio::test]
async fn access_is_verified_with_the_current_credentials() {
    let env = TestEnvironment::new().await;
    let with = |user: &str| {
        owned(
            env.remote_at(&env.url.replace("http://", &format!("http://{user}@"))),
            1,
        )
    };
    env.mirrors.record_access(&with("a:old"));
    assert!(env.mirrors.is_access_verified(&with("a:old")));
    assert!(!env.mirrors.is_access_verified(&with("a:new")));
    assert!(!env.mirrors.is_access_verified(&owned(with("a:old"), 2)));
    assert!(with("a:old").needs_access_check() && !env.remote().needs_access_check());
}

#[tokio::test]
async fn over_limit_the_least_recently_used_mirrors_are_deleted() {
    let env = TestEnvironment::with_files().await;
    drop(env.mirrors);
    let bounds = DiskLimits {
        total: 0,
        namespace: 2 << 20,
    };
    let root = TempDir::new().unwrap();
    let mirrors = Mirrors::with_limits(root.path(), bounds, Duration::ZERO).unwrap();
    let count = || fs::read_dir(root.path()).unwrap().count() - 1;
    let mut remotes = Vec::new();
    for name in ["one", "two", "three", "four"] {
        let access = Access {
            address: Address::parse(&env.server.serve(name, &env.repository)).unwrap(),
            credentials: Credentials::Anonymous,
            tls: Arc::default(),
            proxy: None,
            owner: Owner {
                namespace: "team".into(),
                principal: None,
            },
        };
        let remote = Remote {
            transport: env.transport.clone(),
            access: access.into(),
            timeout: DEADLINE,
            limits: Limits::default(),
        };
        let head = bounded(head(&remote, &main())).await.unwrap();
        let mirror = mirrors.open(&remote);
        let stop = CancellationToken::new();
        bounded(fetch(&mirror, &remote, &head, &stop)).await.unwrap();
        remotes.push(remote);
    }
    assert_eq!(count(), 2, "each is smaller than the minimum of 1 MiB");
    // A mirror in use stays on a full disk, and after a restart the sizes are read from disk.
    let existing = mirrors.open(&remotes[3]);
    assert_eq!((mirrors.free_space(), mirrors.free_space()), (1, 0));
    drop((existing, mirrors));
    let again = reopen(root.path());
    assert_eq!((again.free_space(), count()), (1, 0));
}

#[tokio::test]
async fn a_mirror_is_renamed_before_it_is_deleted() {
    let env = TestEnvironment::with_files().await;
    env.fetch(&main()).await.unwrap();
    let directory = generation(&env).parent().unwrap().to_owned();
    let _ = (env.mirrors.sweep(), env.mirrors.sweep());
    assert!(!directory.exists());
    let names = fs::read_dir(env.root.path()).unwrap();
    let left: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"], "the renamed directory is deleted");
    // A directory that a crash left half deleted is removed at the next start.
    fs::create_dir_all(env.root.path().join(".deleted-0/generation-0")).unwrap();
    let env = env.restart();
    assert!(!env.root.path().join(".deleted-0").exists());
}

#[tokio::test]
async fn unused_mirrors_are_swept() {
    let env = TestEnvironment::with_files().await;
    env.fetch(&main()).await.unwrap();
    assert_eq!(env.mirrors.sweep(), 0);
    let existing = env.mirrors.open(&env.remote());
    assert_eq!(env.mirrors.sweep(), 0);
    assert_eq!(env.mirrors.sweep(), 0, "it is in use");
    drop(existing);
    assert_eq!(env.mirrors.sweep(), 1);
    env.fetch(&main()).await.unwrap();
}

#[tokio::test]
async fn one_process_at_a_time() {
    let root = TempDir::new().unwrap();
    let existing = Mirrors::new(root.path()).unwrap();
    assert!(
        Mirrors::new(root.path())
            .unwrap_err()
            .to_string()
            .contains("in use by another process")
    );
    let timeout = Duration::from_mins(1);
    let (path, started) = (root.path().to_owned(), std::time::Instant::now());
    let next = std::thread::spawn(move || Mirrors::with_limits(&path, DiskLimits::default(), timeout));
    drop(existing);
    next.join().unwrap().unwrap();
    assert!(started.elapsed() < timeout, "it takes the lock once it is free");
}

//! Mirrors over their life.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;

use git2::Oid;

use super::*;

/// A process that another test is just starting holds a copy of the lock for a moment, until its `exec`.
fn reopen(root: &Path) -> Mirrors {
    let start = std::time::Instant::now();
    loop {
        match Mirrors::new(root) {
            Ok(mirrors) => return mirrors,
            Err(error) => assert!(start.elapsed() < DEADLINE, "{error}"),
        }
        std::thread::yield_now();
    }
}

impl World {
    fn packs(&self) -> Vec<PathBuf> {
        let all = self.files(|_| true);
        all.into_iter()
            .filter(|path| path.extension().is_some_and(|extension| extension == "pack"))
            .collect()
    }

    /// As after a restart: nothing in memory, everything on disk.
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
    let world = World::with_files().await;
    world.fetch(&main()).await.unwrap();
    let world = world.restart();
    world.steps();
    let checkout = world.fetch(&main()).await.unwrap();
    assert_eq!(world.steps(), [Step::InfoRefs, Step::LsRefs]);
    assert_eq!(files(&checkout), ls_tree(&world.repository, "HEAD"));
}

#[tokio::test]
async fn what_a_killed_fetch_left_is_cleaned_up() {
    let world = World::with_files().await;
    world.fetch(&main()).await.unwrap();
    let pack = generation(&world).join("objects/pack");
    for name in ["pack_git2_8f3a1c", "pack-1234.idx"] {
        fs::write(pack.join(name), "half of it").unwrap();
    }
    fs::create_dir_all(
        generation(&world)
            .with_file_name("generation-9")
            .join("objects/pack"),
    )
    .unwrap();
    let world = world.restart();
    world.repository.commit_files(&[("a", "1")], "two").unwrap();
    let checkout = world.fetch(&main()).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&world.repository, "HEAD"));
    assert_eq!(fs::read_dir(&pack).unwrap().count(), 4);
    assert_eq!(fsck(&generation(&world)), "");
}

#[tokio::test]
async fn a_mirror_that_lost_its_packs_is_made_anew() {
    let world = World::with_files().await;
    world.fetch(&main()).await.unwrap();
    for pack in world.packs() {
        fs::remove_file(pack).unwrap();
    }
    let world = world.restart();
    let checkout = world.fetch(&main()).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&world.repository, "HEAD"));
    read_all(checkout).await.unwrap();
    assert_eq!(fsck(&generation(&world)), "");
}

#[tokio::test]
async fn a_mirror_that_lost_its_packs_cannot_take_a_difference() {
    let world = World::with_files().await;
    world.fetch(&main()).await.unwrap();
    for pack in world.packs() {
        fs::remove_file(pack).unwrap();
    }
    let world = world.restart();
    world
        .repository
        .commit_files(&[("modules/7/main.tf", noise(1000, 10))], "two")
        .unwrap();
    let checkout = world.fetch(&main()).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&world.repository, "HEAD"));
    read_all(checkout).await.unwrap();
    assert_eq!(world.server.count(Step::Fetch), 3);
}

#[tokio::test]
async fn a_pack_with_flipped_bits_is_noticed_and_the_mirror_made_anew() {
    let world = World::with_files().await;
    world.fetch(&main()).await.unwrap();
    let pack = world.packs().pop().unwrap();
    let mut bytes = fs::read(&pack).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 64].fill(0x5a);
    fs::remove_file(&pack).unwrap();
    fs::write(&pack, bytes).unwrap();
    let world = world.restart();
    let error = read_all(world.fetch(&main()).await.unwrap()).await.unwrap_err();
    assert!(matches!(error, ReadError::Object { .. }), "{error}");
    let world = world;
    read_all(world.fetch(&main()).await.unwrap()).await.unwrap();
    assert_eq!(world.server.count(Step::Fetch), 2);
}

#[tokio::test]
async fn a_frayed_mirror_is_followed_by_a_new_one() {
    let world = World::with_files().await;
    let held = world.fetch(&main()).await.unwrap();
    let old = generation(&world);
    let mut refs = fs::read_to_string(old.join("packed-refs")).unwrap();
    for number in 1..100 {
        writeln!(refs, "{number:040x} refs/tips/{number:06}").unwrap();
    }
    fs::write(old.join("packed-refs"), refs).unwrap();
    drop(held);
    let world = world.restart();
    world.repository.commit_files(&[("a", "1")], "two").unwrap();
    let checkout = world.fetch(&main()).await.unwrap();
    assert_ne!(generation(&world), old);
    assert_eq!(files(&checkout), ls_tree(&world.repository, "HEAD"));
    let asked = world.server.requests().pop().unwrap().body_text();
    assert!(!asked.contains("have "), "{asked}");
}

#[tokio::test]
async fn a_commit_is_verified_once_in_a_process() {
    let world = World::with_files().await;
    let verified = async || {
        let mirror = world.mirrors.open(&world.remote());
        let opened = mirror.lock().await.opened().unwrap();
        opened.verified
    };
    assert!(verified().await.is_empty());
    // Each pass opens the mirror and closes it.
    let mut commits = HashSet::new();
    for content in ["1", "2"] {
        let commit = world.repository.commit_files(&[("a", content)], content).unwrap();
        world.fetch(&main()).await.unwrap();
        commits.insert(Oid::from_str(&commit).unwrap());
        assert_eq!(verified().await, commits);
    }
    // Another generation begins with nothing, also where its directory has the name of one that is gone.
    let mirror = world.mirrors.open(&world.remote());
    mirror.lock().await.opened().unwrap().generation.condemn();
    drop(mirror);
    assert!(verified().await.is_empty());
}

#[tokio::test]
async fn who_reads_an_old_mirror_is_not_disturbed() {
    let world = World::with_files().await;
    let held = world.fetch(&main()).await.unwrap();
    let (remote, old) = (world.remote(), generation(&world));
    // As if something had been unreadable.
    let mirror = world.mirrors.open(&remote);
    mirror.lock().await.opened().unwrap().generation.condemn();
    world.repository.commit_files(&[("a", "1")], "two").unwrap();
    world.fetch(&main()).await.unwrap();
    assert!(old.exists());
    read_all(held).await.unwrap();
    assert!(!old.exists());
    generation(&world);
}

#[tokio::test]
async fn a_mirror_is_shared_only_by_the_same_credentials() {
    let world = World::new().await;
    let with = |user: &str| world.remote_at(&world.url.replace("http://", &format!("http://{user}@")));
    let open = |remote: &Remote| world.mirrors.open(remote);
    assert!(Arc::ptr_eq(&open(&with("a:b")), &open(&with("a:b"))));
    let held = open(&with("a:b"));
    for other in [
        with("a:c"),
        world.remote(),
        world.remote_at(&format!("{}x", world.url)),
    ] {
        assert!(!Arc::ptr_eq(&held, &open(&other)));
    }
}

/// As an object whose credentials come from the Secret with this digest.
fn owned(remote: Remote, principal: u8) -> Remote {
    let owner = Owner {
        namespace: "team".into(),
        principal: Some([principal; 32]),
    };
    Remote { owner, ..remote }
}

#[tokio::test]
async fn a_mirror_belongs_to_the_secret_whatever_stands_in_it() {
    let world = World::new().await;
    let with = |user: &str| world.remote_at(&world.url.replace("http://", &format!("http://{user}@")));
    let open = |remote: &Remote| world.mirrors.open(remote);
    let held = open(&owned(with("a:old"), 1));
    assert!(Arc::ptr_eq(&held, &open(&owned(with("a:new"), 1))), "renewed");
    let other = open(&owned(with("a:old"), 2));
    assert!(!Arc::ptr_eq(&held, &other), "the same password in another Secret");
    assert!(
        !Arc::ptr_eq(&held, &open(&with("a:old"))),
        "the same password in the address"
    );
    // Without credentials everybody is the same.
    let (one, two) = (owned(world.remote(), 1), owned(world.remote(), 2));
    assert!(Arc::ptr_eq(&open(&one), &open(&two)));
}

#[tokio::test]
async fn each_way_to_an_address_has_a_mirror_of_its_own() {
    let world = World::new().await;
    let open = |remote: &Remote| world.mirrors.open(remote);
    let by = |proxy: &str, password: &str| Remote {
        proxy: Some(Arc::new(Proxy::new(proxy, Some("u"), Some(password)).unwrap())),
        ..world.remote()
    };
    let trusting = Remote {
        tls: Arc::new(Tls {
            authorities: b"own".to_vec(),
            identity: None,
        }),
        ..world.remote()
    };
    let held = open(&world.remote());
    let proxied = open(&by("http://127.0.0.1:1", "old"));
    for other in [
        &proxied,
        &open(&trusting),
        &open(&by("http://127.0.0.1:2", "old")),
    ] {
        assert!(!Arc::ptr_eq(&held, other));
    }
    assert!(Arc::ptr_eq(&proxied, &open(&by("http://127.0.0.1:1", "new"))));
    assert!(!Arc::ptr_eq(&proxied, &open(&by("http://127.0.0.1:2", "old"))));
}

#[tokio::test]
async fn access_is_proved_by_the_credentials_of_today() {
    let world = World::new().await;
    let with = |user: &str| {
        owned(
            world.remote_at(&world.url.replace("http://", &format!("http://{user}@"))),
            1,
        )
    };
    world.mirrors.prove(&with("a:old"));
    assert!(world.mirrors.is_proved(&with("a:old")));
    assert!(!world.mirrors.is_proved(&with("a:new")));
    assert!(!world.mirrors.is_proved(&owned(with("a:old"), 2)));
    assert!(with("a:old").needs_proof() && !world.remote().needs_proof());
}

#[tokio::test]
async fn beyond_their_bounds_the_mirrors_go_that_were_not_used_for_longest() {
    let world = World::with_files().await;
    drop(world.mirrors);
    let bounds = Room {
        total: 0,
        namespace: 2 << 20,
    };
    let root = TempDir::new().unwrap();
    let mirrors = Mirrors::within(root.path(), bounds).unwrap();
    let count = || fs::read_dir(root.path()).unwrap().count() - 1;
    let mut remotes = Vec::new();
    for name in ["one", "two", "three", "four"] {
        let remote = Remote {
            transport: world.transport.clone(),
            address: Address::parse(&world.server.serve(name, &world.repository)).unwrap(),
            credentials: Credentials::Anonymous,
            tls: Arc::default(),
            proxy: None,
            timeout: DEADLINE,
            limits: Limits::default(),
            owner: Owner {
                namespace: "team".into(),
                principal: None,
            },
        };
        let head = bounded(head(&remote, &main())).await.unwrap();
        let mirror = mirrors.open(&remote);
        let stop = CancellationToken::new();
        bounded(fetch(&mirror, &remote, &head, &stop)).await.unwrap();
        remotes.push(remote);
    }
    assert_eq!(count(), 2, "each is less than 1 MiB and counts as that");
    // What is read stays on a full disk, and after a start the files themselves tell what is there.
    let held = mirrors.open(&remotes[3]);
    assert_eq!((mirrors.make_room(), mirrors.make_room()), (1, 0));
    drop((held, mirrors));
    let again = reopen(root.path());
    assert_eq!((again.make_room(), count()), (1, 0));
}

#[tokio::test]
async fn a_mirror_is_set_aside_before_it_is_deleted() {
    let world = World::with_files().await;
    world.fetch(&main()).await.unwrap();
    let directory = generation(&world).parent().unwrap().to_owned();
    let _ = (world.mirrors.sweep(), world.mirrors.sweep());
    assert!(!directory.exists());
    let names = fs::read_dir(world.root.path()).unwrap();
    let left: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"], "what was set aside is gone as well");
    // What a crash left half deleted goes at the next start.
    fs::create_dir_all(world.root.path().join(".deleted-0/generation-0")).unwrap();
    let world = world.restart();
    assert!(!world.root.path().join(".deleted-0").exists());
}

#[tokio::test]
async fn mirrors_that_nobody_names_are_swept() {
    let world = World::with_files().await;
    world.fetch(&main()).await.unwrap();
    assert_eq!(world.mirrors.sweep(), 0);
    let held = world.mirrors.open(&world.remote());
    assert_eq!(world.mirrors.sweep(), 0);
    assert_eq!(world.mirrors.sweep(), 0, "somebody holds it");
    drop(held);
    assert_eq!(world.mirrors.sweep(), 1);
    world.fetch(&main()).await.unwrap();
}

#[tokio::test]
async fn one_process_at_a_time() {
    let root = TempDir::new().unwrap();
    let held = Mirrors::new(root.path()).unwrap();
    assert!(
        Mirrors::new(root.path())
            .unwrap_err()
            .to_string()
            .contains("in use by another process")
    );
    drop(held);
    reopen(root.path());
}

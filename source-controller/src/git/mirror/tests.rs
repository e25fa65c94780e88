//! The deletion of mirrors while others open them.

use std::sync::mpsc;
use std::thread;

use super::*;
use crate::git::{Access, Address, Credentials, Limits, Owner, Transport};

/// Timeout of every wait.
const DEADLINE: Duration = Duration::from_mins(1);

/// Returns the remote of a public repository.
fn remote() -> Remote {
    let access = Access {
        address: Address::parse("https://git.example/app").unwrap(),
        credentials: Credentials::Anonymous,
        tls: Arc::default(),
        proxy: None,
        owner: Owner {
            namespace: "team".to_owned(),
            principal: None,
        },
    };
    Remote {
        transport: Transport::new().unwrap(),
        access: access.into(),
        timeout: DEADLINE,
        limits: Limits::default(),
    }
}

/// Opens the mirror on disk, as the first step of a fetch.
fn open_current(mirror: &Mirror) -> PathBuf {
    let mut writer = Arc::clone(&mirror.writer).try_lock_owned().unwrap();
    let opened = writer.open_current().unwrap();
    opened.generation.directory().to_owned()
}

#[tokio::test]
async fn a_stalled_rename_delays_only_those_that_use_the_disk() {
    let root = tempfile::tempdir().unwrap();
    let (mirrors, remote) = (Mirrors::new(root.path()).unwrap(), remote());
    let renaming = lock(&mirrors.shared.renaming);
    // The steps of a reconciliation on the thread of all others.
    let mirror = mirrors.open(&remote);
    mirrors.touch_partial(&remote);
    assert!(!mirrors.is_access_verified(&remote));
    let (sender, opened) = mpsc::channel();
    let opening = thread::spawn(move || sender.send(open_current(&mirror)).unwrap());
    assert!(
        opened.recv_timeout(Duration::from_millis(50)).is_err(),
        "the directory may be the one that is being renamed"
    );
    drop(renaming);
    let directory = opened.recv_timeout(DEADLINE).unwrap();
    assert!(directory.exists());
    opening.join().unwrap();
}

#[tokio::test]
async fn a_mirror_that_is_opened_during_its_deletion_is_a_new_one() {
    let root = tempfile::tempdir().unwrap();
    let (mirrors, remote) = (Mirrors::new(root.path()).unwrap(), remote());
    let (shared, name) = (
        Arc::clone(&mirrors.shared),
        remote.mirror_name(Extent::Full).to_owned(),
    );
    let opening = thread::spawn(move || {
        for _ in 0..300 {
            let mirror = mirrors.open(&remote);
            let directory = open_current(&mirror);
            assert!(directory.exists(), "it is in use");
        }
    });
    while !opening.is_finished() {
        shared.discard(vec![name.clone()]);
    }
    opening.join().unwrap();
}

#[tokio::test]
async fn a_mirror_that_cannot_be_renamed_counts_on() {
    let root = tempfile::tempdir().unwrap();
    let (mirrors, remote) = (Mirrors::new(root.path()).unwrap(), remote());
    let name = remote.mirror_name(Extent::Full).to_owned();
    let directory = open_current(&mirrors.open(&remote));
    // A file of that name is in the way.
    fs::write(root.path().join(".deleted-0"), "").unwrap();
    assert_eq!(mirrors.shared.discard(vec![name.clone()]), 0);
    assert!(directory.exists());
    assert_eq!(mirrors.shared.discard(vec![name.clone()]), 1, "it is retried");
    assert!(!directory.exists());
    assert_eq!(mirrors.shared.discard(vec![name]), 0);
}

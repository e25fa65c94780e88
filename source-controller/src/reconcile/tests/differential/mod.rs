//! Compares archives with a reference implementation: a sorted walk of a work tree that the real `git` checks out, with
//! its own matcher and tar writer.

mod reference;
mod subtrees;
mod trees;
mod ustar;

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};

use reference::reference;
use serde_json::json;
use sluice_harness::git::{GitServer, Repository};
use sluice_runtime::shutdown::Token;
use trees::{TREES, checked_out, import, random_tree};

use crate::archive::{Algorithm, Capacity, Settings};
use crate::git::{
    Access, Address, Checkout, Credentials, Head, Limits, Mirrors, Oid, Owner, Reference, Remote, Transport,
    fetch,
};
use crate::reconcile::pack::pack;
use crate::reconcile::tests::environment::TestEnvironment;
use crate::tree::Tree;

/// Fetches the commit of a branch.
async fn fetched(remote: &Remote, mirrors: &Mirrors, name: &str, commit: &str) -> Checkout {
    let id = Oid::from_str(commit).unwrap();
    let head = Head {
        commit: id,
        object: id,
        reference: Reference::Branch(name.to_owned()),
    };
    fetch(&mirrors.open(remote), remote, &head, &Token::new())
        .await
        .unwrap()
}

/// Returns the uncompressed archive made by the controller.
async fn packed(
    remote: &Remote,
    mirrors: &Mirrors,
    name: &str,
    commit: &str,
    ignore: Option<String>,
) -> Vec<u8> {
    let checkout = fetched(remote, mirrors, name, commit).await;
    let work = move || {
        let tree = Tree::new(checkout, None);
        let settings = Settings {
            algorithm: Algorithm::Sha256,
            capacity: &Capacity::new(2, 4),
            stop: &Token::new(),
        };
        let (written, _) = pack(&tree, ignore.as_deref(), None, &settings, Vec::new()).unwrap();
        let mut tar = Vec::new();
        flate2::read::GzDecoder::new(written.out.as_slice())
            .read_to_end(&mut tar)
            .unwrap();
        tar
    };
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// Returns names, types and sizes, for readable differences.
fn listing(tar: &[u8]) -> String {
    let mut text = String::new();
    for entry in tar::Archive::new(tar).entries().unwrap() {
        let entry = entry.unwrap();
        let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        writeln!(
            text,
            "{path:?} {:?} {}",
            entry.header().entry_type(),
            entry.size()
        )
        .unwrap();
    }
    text
}

async fn compare(repository: &Repository, trees: Vec<(String, Option<String>)>) {
    let server = GitServer::start().await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mirrors = Mirrors::new(directory.path()).unwrap();
    let remote = remote(&server.serve("trees", repository));
    for (name, ignore) in trees {
        let commit = repository.resolve(&format!("refs/heads/{name}")).unwrap();
        let ours = packed(&remote, &mirrors, &name, &commit, ignore.clone()).await;
        let work = checked_out(repository, &commit);
        let expected = reference(&work.path().join("work"), ignore.as_deref());
        if ours != expected {
            assert_eq!(listing(&ours), listing(&expected), "{name} {ignore:?}");
            panic!("{name}: same entries, different bytes");
        }
    }
}

fn remote(url: &str) -> Remote {
    let access = Access {
        address: Address::parse(url).unwrap(),
        credentials: Credentials::Anonymous,
        tls: std::sync::Arc::default(),
        proxy: None,
        owner: Owner::default(),
    };
    Remote {
        transport: Transport::new().unwrap(),
        access: access.into(),
        timeout: std::time::Duration::from_mins(1),
        limits: Limits::default(),
    }
}

#[tokio::test]
async fn random_trees_are_packed_as_the_reference_packs_a_work_tree_of_git() {
    let repository = Repository::create().unwrap();
    let mut stream = Vec::new();
    let trees = (0..TREES)
        .map(|number| (format!("t{number}"), random_tree(number, &mut stream)))
        .collect();
    import(&repository, &stream);
    compare(&repository, trees).await;
}

/// Number of trees for complete reconciliations, which cost more than packing alone.
const LIVE: u64 = 40;

#[tokio::test]
async fn random_trees_become_the_artifacts_of_the_reference() {
    let env = TestEnvironment::with(Repository::create().unwrap()).await;
    let mut stream = Vec::new();
    let trees: Vec<_> = (TREES..TREES + LIVE)
        .map(|number| (format!("t{number}"), random_tree(number, &mut stream)))
        .collect();
    import(&env.repository, &stream);
    for (name, ignore) in trees {
        let commit = env.repository.resolve(&format!("refs/heads/{name}")).unwrap();
        let spec = json!({ "ref": { "branch": name }, "ignore": ignore });
        env.create(&name, spec).await;
        env.reconcile(&name).await;
        let artifact = env.artifact(&name).await;
        assert_eq!(artifact.revision, format!("{name}@sha1:{commit}"));
        let mut tar = Vec::new();
        flate2::read::GzDecoder::new(std::fs::File::open(env.file(&artifact)).unwrap())
            .read_to_end(&mut tar)
            .unwrap();
        let work = checked_out(&env.repository, &commit);
        let expected = reference(&work.path().join("work"), ignore.as_deref());
        assert!(tar == expected, "{name} {ignore:?}: {}", listing(&tar));
    }
}

#[tokio::test]
async fn trees_of_unusual_shape_are_packed_as_the_reference_packs_a_work_tree_of_git() {
    let repository = Repository::create().unwrap();
    let mut stream = Vec::new();
    let file = |stream: &mut Vec<u8>, mode: &str, path: &str, content: &str| {
        write!(
            stream,
            "M {mode} inline \"{path}\"\ndata {}\n{content}\n",
            content.len()
        )
        .unwrap();
    };
    let begin = |stream: &mut Vec<u8>, name: &str| {
        write!(
            stream,
            "commit refs/heads/{name}\ncommitter T <t@t> 1 +0000\ndata 0\ndeleteall\n"
        )
        .unwrap();
    };
    begin(&mut stream, "wide");
    for number in 0..10_000 {
        file(&mut stream, "100644", &format!("wide/{number}"), "");
    }
    begin(&mut stream, "shapes");
    for (mode, path, content) in [
        ("100644", "crlf.txt", "a\r\nb\r\n"),
        ("100755", "bin/run", "#!/bin/sh\n"),
        ("120000", "link", "bin/run"),
        ("120000", "only/links", "nowhere"),
        ("100644", "é/ü", "x"),
        ("100644", &format!("{}f", "d/".repeat(1000)), "deep"),
        ("100644", &"n".repeat(255), "long"),
        (
            "100644",
            &format!("{}/{}", "p".repeat(155), "n".repeat(100)),
            "split",
        ),
        (
            "100644",
            &format!("{}/{}", "p".repeat(156), "n".repeat(99)),
            "no split",
        ),
        ("100644", &"e".repeat(100), "just"),
        ("100644", &"e".repeat(101), "over"),
        ("100644", "block", &"b".repeat(512)),
    ] {
        file(&mut stream, mode, path, content);
    }
    writeln!(stream, "M 160000 {} \"vendor/empty\"", "1".repeat(40)).unwrap();
    begin(&mut stream, "empty");
    import(&repository, &stream);
    let trees = ["wide", "shapes", "empty"].map(|name| (name.to_owned(), None));
    compare(&repository, trees.to_vec()).await;
}

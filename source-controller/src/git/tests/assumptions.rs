//! The first contact with a repository at a host that is known to support version 2: without a discovery, unless the
//! repository differs from the others there.

use super::*;

impl TestEnvironment {
    /// Creates an environment whose transport knows that the host supports version 2.
    async fn with_known_host() -> Self {
        let env = Self::with_files().await;
        env.head(&main()).await.unwrap();
        assert_eq!(env.steps(), [Step::InfoRefs, Step::LsRefs]);
        env
    }

    /// Serves another repository at the same host.
    fn serve_another(&self, repository: &Repository) -> Remote {
        self.remote_at(&self.server.serve("another", repository))
    }
}

#[tokio::test]
async fn the_first_contact_takes_two_requests() {
    let env = TestEnvironment::with_known_host().await;
    let another = Repository::create().unwrap();
    another.commit_files(&[("a", "1")], "one").unwrap();
    let remote = env.serve_another(&another);
    let checkout = env.fetch_from(&remote, &main()).await.unwrap();
    assert_eq!(env.steps(), [Step::LsRefs, Step::Fetch]);
    assert_eq!(files(&checkout), ls_tree(&another, "HEAD"));
    another.commit_files(&[("a", "2")], "two").unwrap();
    let checkout = env.fetch_from(&remote, &main()).await.unwrap();
    assert_eq!(env.steps(), [Step::LsRefs, Step::Fetch]);
    assert_eq!(files(&checkout), ls_tree(&another, "HEAD"));
}

#[tokio::test]
async fn other_credentials_and_routes_are_kept_apart() {
    let env = TestEnvironment::with_known_host().await;
    env.server.require_basic("flux", "s3cret");
    let url = env.url.replace("http://", "http://flux:s3cret@");
    env.head_at(&env.remote_at(&url), &main()).await.unwrap();
    assert_eq!(env.steps(), [Step::LsRefs], "the route is the same");
    let trusting = env.remote_at(&url).with_access(|access| {
        access.tls = Arc::new(Tls {
            authorities: b"own".to_vec(),
            identity: None,
        });
    });
    env.head_at(&trusting, &main()).await.unwrap();
    assert_eq!(env.steps(), [Step::InfoRefs, Step::LsRefs], "another route");
}

#[tokio::test]
async fn a_pinned_commit_is_not_fetched_from_an_unconfirmed_endpoint() {
    let env = TestEnvironment::with_known_host().await;
    let another = Repository::create().unwrap();
    let commit = another.commit_files(&[("a", "1")], "one").unwrap();
    let remote = env.serve_another(&another);
    env.fetch_from(&remote, &pinned(&commit)).await.unwrap();
    assert_eq!(env.steps(), [Step::InfoRefs, Step::Fetch]);
}

#[tokio::test]
async fn a_repository_with_an_older_version_is_discovered_once() {
    let env = TestEnvironment::with_known_host().await;
    let another = Repository::create().unwrap();
    another.commit_files(&[("a", "1")], "one").unwrap();
    let remote = env.serve_another(&another);
    env.server.limit_protocol_version(0);
    for steps in [
        &[Step::LsRefs, Step::InfoRefs, Step::InfoRefs][..],
        &[Step::InfoRefs],
    ] {
        env.head_at(&remote, &main()).await.unwrap();
        assert_eq!(env.steps(), steps);
    }
    let checkout = env.fetch_from(&remote, &main()).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&another, "HEAD"));
}

#[tokio::test]
async fn the_error_of_a_wrong_assumption_is_that_of_the_discovery() {
    let env = TestEnvironment::with_known_host().await;
    let sha256 = Repository::create_with(&["--initial-branch=main", "--object-format=sha256"]).unwrap();
    sha256.commit("one").unwrap();
    let remote = env.serve_another(&sha256);
    let missing = env.remote_at(&env.server.url("missing"));
    for (remote, expected) in [
        (&remote, "object format is sha256; only sha1 is supported"),
        (&missing, "repository not found"),
    ] {
        for steps in [&[Step::LsRefs, Step::InfoRefs][..], &[Step::InfoRefs]] {
            let error = env.head_at(remote, &main()).await.unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            assert_eq!(env.steps(), steps, "{expected}");
        }
    }
    env.head(&main()).await.unwrap();
    assert_eq!(
        env.steps(),
        [Step::LsRefs],
        "the other repository is not affected"
    );
}

#[tokio::test]
async fn several_refs_are_found_with_one_request() {
    let env = TestEnvironment::with_known_host().await;
    let commit = env.repository.head().unwrap();
    env.repository.branch("dev").unwrap();
    env.repository.branch("develop").unwrap();
    let tag = env.repository.annotated_tag("v1", "release").unwrap();
    let remote = env.remote();
    let further = [
        Reference::Branch("dev".into()),
        Reference::Tag("v1".into()),
        Reference::Name("refs/heads/gone".into()),
    ];
    let mirror = env.mirrors.open(&remote);
    let stop = CancellationToken::new();
    let heads = bounded(resolve(&mirror, &remote, &main(), &further, &stop))
        .await
        .unwrap();
    let body = env.server.requests().pop().unwrap().body_text();
    assert_eq!(env.steps(), [Step::LsRefs]);
    for prefix in [
        "refs/heads/main",
        "refs/heads/dev",
        "refs/tags/v1",
        "refs/heads/gone",
    ] {
        assert!(body.contains(&format!("ref-prefix {prefix}")), "{prefix}: {body}");
    }
    assert_eq!(heads.head.commit.to_string(), commit);
    assert_eq!(heads.others.len(), 2, "{heads:?}");
    assert_eq!(heads.others[&further[0]].revision(), format!("dev@sha1:{commit}"));
    assert_eq!(heads.others[&further[1]].object.to_string(), tag);
}

#[tokio::test]
async fn the_refs_of_others_do_not_make_a_lookup_fail() {
    let env = TestEnvironment::with_known_host().await;
    let commit = env.repository.head().unwrap();
    let lines = (0..1000).map(|number| format!("{commit} refs/heads/many/{number:04}\n"));
    let lines = lines.collect::<Vec<_>>().concat();
    std::fs::write(env.repository.git_dir().join("packed-refs"), lines).unwrap();
    let mut remote = env.remote();
    remote.limits.refs_bytes = 1 << 10;
    let mirror = env.mirrors.open(&remote);
    let (further, stop) = ([Reference::Branch("many".into())], CancellationToken::new());
    let heads = bounded(resolve(&mirror, &remote, &main(), &further, &stop))
        .await
        .unwrap();
    assert_eq!(heads.head.commit.to_string(), commit);
    assert!(heads.others.is_empty());
    assert_eq!(env.steps(), [Step::LsRefs, Step::LsRefs]);
}

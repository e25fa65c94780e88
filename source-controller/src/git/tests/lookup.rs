//! Finding heads.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sluice_harness::git::{Fault, Scope};
use sluice_runtime::failure::{Class, Failure as _};
use sluice_runtime::http::Settings;

use super::*;

#[tokio::test]
async fn an_unchanged_head_costs_one_request() {
    let env = TestEnvironment::new().await;
    let commit = env.repository.commit_files(&[("a", "1")], "one").unwrap();
    let first = env.head(&main()).await.unwrap();
    assert_eq!(
        (first.commit.to_string(), first.revision()),
        (commit.clone(), format!("main@sha1:{commit}"))
    );
    assert_eq!(env.steps(), [Step::InfoRefs, Step::LsRefs]);
    assert_eq!(env.head(&main()).await.unwrap(), first);
    assert_eq!(env.steps(), [Step::LsRefs]);
    let next = env.repository.commit("two").unwrap();
    assert_eq!(env.head(&main()).await.unwrap().commit.to_string(), next);
}

#[tokio::test]
async fn the_response_size_is_independent_of_the_number_of_refs() {
    let env = TestEnvironment::new().await;
    let commit = env.repository.commit_files(&[("a", "1")], "one").unwrap();
    env.head(&main()).await.unwrap();
    let before = env.server.requests().pop().unwrap().response_bytes;
    let lines: Vec<_> = (0..11_000)
        .map(|number| format!("{commit} refs/tags/v0.{number:05}"))
        .collect();
    std::fs::write(
        env.repository.git_dir().join("packed-refs"),
        lines.join("\n") + "\n",
    )
    .unwrap();
    assert_eq!(
        env.repository.git(["tag", "--list"]).unwrap().lines().count(),
        11_000
    );
    env.head(&main()).await.unwrap();
    assert_eq!(env.server.requests().pop().unwrap().response_bytes, before);
    assert!(before < 200, "{before}");
}

#[tokio::test]
async fn a_branch_with_the_same_prefix_is_not_matched() {
    let env = TestEnvironment::new().await;
    env.repository.commit_files(&[("a", "1")], "one").unwrap();
    env.repository.branch("main-2").unwrap();
    env.repository.commit("two").unwrap();
    env.repository
        .git(["branch", "--delete", "--force", "main"])
        .unwrap();
    let error = env.head(&main()).await.unwrap_err();
    let expected = format!(
        "unable to clone '{}': couldn't find remote ref \"refs/heads/main\"",
        env.url
    );
    assert_eq!(
        (error.to_string(), error.reason()),
        (expected, "GitOperationFailed")
    );
    assert_eq!(error.class(), Class::Transient);
}

#[tokio::test]
async fn a_tag_is_peeled_to_its_commit() {
    let env = TestEnvironment::new().await;
    let commit = env.repository.commit_files(&[("a", "1")], "one").unwrap();
    let tag = env.repository.annotated_tag("v1.0.0", "release").unwrap();
    env.repository.tag("light").unwrap();
    let annotated = env.head(&Reference::Tag("v1.0.0".into())).await.unwrap();
    assert_eq!(
        (annotated.commit.to_string(), annotated.object.to_string()),
        (commit.clone(), tag)
    );
    assert_eq!(annotated.revision(), format!("v1.0.0@sha1:{commit}"));
    let light = env.head(&Reference::Tag("light".into())).await.unwrap();
    assert_eq!((light.commit, light.object), (annotated.commit, annotated.commit));
}

#[tokio::test]
async fn an_empty_repository_is_distinguished_from_a_missing_branch() {
    let env = TestEnvironment::new().await;
    let error = env.head(&main()).await.unwrap_err();
    assert_eq!(
        (error.to_string(), error.reason()),
        ("git repository is empty".into(), "EmptyGitRepository")
    );
    for (reference, doing) in [
        (Reference::Tag("v1".into()), "clone"),
        (Reference::Semver("*".into()), "clone"),
        (Reference::Name("refs/heads/main".into()), "list remote for"),
    ] {
        let error = env.head(&reference).await.unwrap_err();
        let expected = format!("unable to {doing} '{}': remote repository is empty", env.url);
        assert_eq!(
            (error.to_string(), error.reason()),
            (expected, "GitOperationFailed")
        );
    }
    let error = env.head(&Reference::Branch("a b".into())).await.unwrap_err();
    assert!(matches!(error, FetchError::Empty), "{error}");
}

#[tokio::test]
async fn a_pinned_commit_needs_no_request() {
    let env = TestEnvironment::new().await;
    let commit = env.repository.commit("one").unwrap();
    let head = env
        .head(&Reference::Commit {
            commit: commit.clone(),
            branch: Some("main".into()),
            name: None,
        })
        .await
        .unwrap();
    assert_eq!(head.revision(), format!("main@sha1:{commit}"));
    let error = env.head(&pinned(&commit[..12])).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "unable to resolve commit object for '{}': object not found",
            &commit[..12]
        )
    );
    assert_eq!(env.steps(), []);
}

#[tokio::test]
async fn credentials_are_checked_by_the_server() {
    let env = TestEnvironment::new().await;
    env.repository.commit("one").unwrap();
    env.server.require_basic("flux", "s3cret");
    let error = env.head(&main()).await.unwrap_err();
    assert!(matches!(error, FetchError::AuthenticationRequired { .. }));
    let expected = format!("unable to list remote for '{}': authentication required", env.url);
    assert!(error.to_string().starts_with(&expected), "{error}");
    let with = |user: &str| env.remote_at(&env.url.replace("http://", &format!("http://{user}@")));
    let error = bounded(head(&with("flux:wrong"), &main())).await.unwrap_err();
    assert!(
        matches!(error, FetchError::AuthenticationRequired { .. }) && !error.to_string().contains("wrong"),
        "{error}"
    );
    env.server.clear_requests();
    bounded(head(&with("flux:s3cret"), &main())).await.unwrap();
    assert!(
        env.server
            .requests()
            .iter()
            .all(|request| request.username.as_deref() == Some("flux"))
    );
    assert_eq!(env.steps(), [Step::InfoRefs, Step::LsRefs]);
}

#[tokio::test]
async fn renewed_workload_identity_credentials_are_used_with_a_cached_endpoint() {
    let env = TestEnvironment::new().await;
    env.repository.commit("one").unwrap();
    let workload_identity = |token: &str| {
        env.remote().with_access(|access| {
            access.credentials = Credentials::WorkloadIdentity {
                identity: [7; 32],
                version: 0,
                credentials: Box::new(Credentials::Bearer(token.into())),
            };
        })
    };
    env.server.require_bearer("old");
    bounded(head(&workload_identity("old"), &main())).await.unwrap();
    env.server.require_bearer("new");
    bounded(head(&workload_identity("new"), &main())).await.unwrap();
    assert_eq!(env.steps(), [Step::InfoRefs, Step::LsRefs, Step::LsRefs]);
}

#[tokio::test]
async fn http_statuses_are_reported() {
    let env = TestEnvironment::new().await;
    env.repository.commit("one").unwrap();
    for (status, expected) in [
        (403, "authorization failed"),
        (404, "repository not found"),
        (500, "unexpected HTTP status 500"),
        (503, "unexpected HTTP status 503"),
    ] {
        env.server.fault(Scope::Any, Fault::Status(status));
        let error = env.head(&main()).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.class(), Class::Transient);
        env.server.clear_faults();
    }
    env.head(&main()).await.unwrap();
    env.server.fault(Scope::LS_REFS, Fault::RetryAfter(429, 7));
    assert_eq!(
        env.head(&main()).await.unwrap_err().class(),
        Class::Waiting(Duration::from_secs(7))
    );
    env.server.clear_faults();
    env.head(&main()).await.unwrap();
}

#[tokio::test]
async fn unsupported_servers_are_reported() {
    let env = TestEnvironment::new().await;
    env.repository.commit("one").unwrap();
    let id = "8".repeat(40);
    for (kind, page, expected) in [
        (
            "text/html",
            "<html>Log in".into(),
            "the response is not Git's smart HTTP protocol",
        ),
        (
            "text/plain",
            format!("{id}\trefs/heads/main\n"),
            "the response is not Git's smart HTTP protocol",
        ),
    ] {
        env.server.fault(Scope::INFO_REFS, Fault::Page(kind, page));
        let error = env.head(&main()).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        env.server.clear_faults();
    }
    env.server
        .fault(Scope::LS_REFS, Fault::Page("text/html", "<html>Log in".into()));
    let error = env.head(&main()).await.unwrap_err();
    assert!(error.to_string().contains("content type 'text/html'"), "{error}");
}

#[tokio::test]
async fn an_unsupported_hash_function_is_reported() {
    let env = TestEnvironment::of(
        Repository::create_with(&["--initial-branch=main", "--object-format=sha256"]).unwrap(),
    )
    .await;
    env.repository.commit("one").unwrap();
    let error = env.head(&main()).await.unwrap_err().to_string();
    assert!(
        error.ends_with("object format is sha256; only sha1 is supported"),
        "{error}"
    );
}

#[tokio::test]
async fn endless_lists_are_refused() {
    let env = TestEnvironment::new().await;
    env.repository.commit("one").unwrap();
    env.server.fault(Scope::INFO_REFS, Fault::Oversized);
    let error = env.head(&main()).await.unwrap_err();
    assert!(matches!(error, FetchError::Advertisement { .. }), "{error}");
    env.server.clear_faults();
    env.server.fault(Scope::LS_REFS, Fault::Oversized);
    let error = env.head(&main()).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("in more than 67108864 bytes; raise --git-max-refs-bytes"),
        "{text}"
    );
}

#[tokio::test]
async fn a_closed_port_is_a_connection_error() {
    let env = TestEnvironment::new().await;
    let closed = sluice_harness::closed_port::ClosedPort::reserve().unwrap();
    let free = closed.address().unwrap();
    let error = bounded(head(&env.remote_at(&format!("http://{free}/x")), &main()))
        .await
        .unwrap_err();
    assert!(
        error.to_string().starts_with(&format!("cannot talk to {free}: ")),
        "{error}"
    );
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_refused() {
    let env = TestEnvironment::new().await;
    let server = GitServer::start_tls().await.unwrap();
    let url = server.serve("stack", &env.repository);
    let error = bounded(head(&env.remote_at(&url), &main())).await.unwrap_err();
    assert!(
        matches!(&error, FetchError::Connection { why, .. } if why.contains("certificate")),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_of_a_trusted_authority_is_accepted() {
    let env = TestEnvironment::with_files().await;
    let server = GitServer::start_tls().await.unwrap();
    let url = server.serve("stack", &env.repository);
    let authority = CertificateDer::from_pem_slice(server.authority_pem().unwrap().as_bytes()).unwrap();
    let settings = Settings {
        extra_roots: vec![authority],
        system_roots: false,
        ..Settings::default()
    };
    let remote = Remote {
        transport: Transport::with_settings(&settings, crate::git::ssh::Algorithms::default()).unwrap(),
        ..env.remote_at(&url)
    };
    let checkout = env.fetch_from(&remote, &main()).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&env.repository, "HEAD"));
}

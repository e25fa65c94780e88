//! Finding heads.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sluice_harness::git::{Fault, Scope};
use sluice_runtime::failure::{Class, Failure as _};
use sluice_runtime::http::Settings;

use super::*;

#[tokio::test]
async fn an_unchanged_head_costs_one_request() {
    let world = World::new().await;
    let commit = world.repository.commit_files(&[("a", "1")], "one").unwrap();
    let first = world.head(&main()).await.unwrap();
    assert_eq!(
        (first.commit.to_string(), first.revision()),
        (commit.clone(), format!("main@sha1:{commit}"))
    );
    assert_eq!(world.steps(), [Step::InfoRefs, Step::LsRefs]);
    assert_eq!(world.head(&main()).await.unwrap(), first);
    assert_eq!(world.steps(), [Step::LsRefs]);
    let next = world.repository.commit("two").unwrap();
    assert_eq!(world.head(&main()).await.unwrap().commit.to_string(), next);
}

#[tokio::test]
async fn the_answer_does_not_grow_with_the_number_of_refs() {
    let world = World::new().await;
    let commit = world.repository.commit_files(&[("a", "1")], "one").unwrap();
    world.head(&main()).await.unwrap();
    let before = world.server.requests().pop().unwrap().response_bytes;
    let lines: Vec<_> = (0..11_000)
        .map(|number| format!("{commit} refs/tags/v0.{number:05}"))
        .collect();
    std::fs::write(
        world.repository.git_dir().join("packed-refs"),
        lines.join("\n") + "\n",
    )
    .unwrap();
    assert_eq!(
        world.repository.git(["tag", "--list"]).unwrap().lines().count(),
        11_000
    );
    world.head(&main()).await.unwrap();
    assert_eq!(world.server.requests().pop().unwrap().response_bytes, before);
    assert!(before < 200, "{before}");
}

#[tokio::test]
async fn a_longer_name_with_the_same_beginning_is_another_branch() {
    let world = World::new().await;
    world.repository.commit_files(&[("a", "1")], "one").unwrap();
    world.repository.branch("main-2").unwrap();
    world.repository.commit("two").unwrap();
    world
        .repository
        .git(["branch", "--delete", "--force", "main"])
        .unwrap();
    let error = world.head(&main()).await.unwrap_err();
    let wanted = format!(
        "unable to clone '{}': couldn't find remote ref \"refs/heads/main\"",
        world.url
    );
    assert_eq!(
        (error.to_string(), error.reason()),
        (wanted, "GitOperationFailed")
    );
    assert_eq!(error.class(), Class::Transient);
}

#[tokio::test]
async fn a_tag_leads_to_its_commit() {
    let world = World::new().await;
    let commit = world.repository.commit_files(&[("a", "1")], "one").unwrap();
    let tag = world.repository.annotated_tag("v1.0.0", "release").unwrap();
    world.repository.tag("light").unwrap();
    let annotated = world.head(&Reference::Tag("v1.0.0".into())).await.unwrap();
    assert_eq!(
        (annotated.commit.to_string(), annotated.object.to_string()),
        (commit.clone(), tag)
    );
    assert_eq!(annotated.revision(), format!("v1.0.0@sha1:{commit}"));
    let light = world.head(&Reference::Tag("light".into())).await.unwrap();
    assert_eq!((light.commit, light.object), (annotated.commit, annotated.commit));
}

#[tokio::test]
async fn an_empty_repository_is_told_from_a_missing_branch() {
    let world = World::new().await;
    let error = world.head(&main()).await.unwrap_err();
    assert_eq!(
        (error.to_string(), error.reason()),
        ("git repository is empty".into(), "EmptyGitRepository")
    );
    for (reference, doing) in [
        (Reference::Tag("v1".into()), "clone"),
        (Reference::Semver("*".into()), "clone"),
        (Reference::Name("refs/heads/main".into()), "list remote for"),
    ] {
        let error = world.head(&reference).await.unwrap_err();
        let wanted = format!("unable to {doing} '{}': remote repository is empty", world.url);
        assert_eq!(
            (error.to_string(), error.reason()),
            (wanted, "GitOperationFailed")
        );
    }
    let error = world.head(&Reference::Branch("a b".into())).await.unwrap_err();
    assert!(matches!(error, FetchError::Empty), "{error}");
}

#[tokio::test]
async fn a_pinned_commit_needs_no_request() {
    let world = World::new().await;
    let commit = world.repository.commit("one").unwrap();
    let head = world
        .head(&Reference::Commit {
            commit: commit.clone(),
            branch: Some("main".into()),
            name: None,
        })
        .await
        .unwrap();
    assert_eq!(head.revision(), format!("main@sha1:{commit}"));
    let error = world.head(&pinned(&commit[..12])).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "unable to resolve commit object for '{}': object not found",
            &commit[..12]
        )
    );
    assert_eq!(world.steps(), []);
}

#[tokio::test]
async fn credentials_are_checked_by_the_server() {
    let world = World::new().await;
    world.repository.commit("one").unwrap();
    world.server.require_basic("flux", "s3cret");
    let error = world.head(&main()).await.unwrap_err();
    assert!(matches!(error, FetchError::AuthenticationRequired { .. }));
    let wanted = format!(
        "unable to list remote for '{}': authentication required",
        world.url
    );
    assert!(error.to_string().starts_with(&wanted), "{error}");
    let with = |user: &str| world.remote_at(&world.url.replace("http://", &format!("http://{user}@")));
    let error = bounded(head(&with("flux:wrong"), &main())).await.unwrap_err();
    assert!(
        matches!(error, FetchError::AuthenticationRequired { .. }) && !error.to_string().contains("wrong"),
        "{error}"
    );
    world.server.clear_requests();
    bounded(head(&with("flux:s3cret"), &main())).await.unwrap();
    assert!(
        world
            .server
            .requests()
            .iter()
            .all(|request| request.username.as_deref() == Some("flux"))
    );
    assert_eq!(world.steps(), [Step::InfoRefs, Step::LsRefs]);
}

#[tokio::test]
async fn a_renewed_loan_is_shown_at_once_to_a_server_that_is_known() {
    let world = World::new().await;
    world.repository.commit("one").unwrap();
    let lent = |token: &str| Remote {
        credentials: Credentials::Lent {
            who: [7; 32],
            loan: 0,
            credentials: Box::new(Credentials::Bearer(token.into())),
        },
        ..world.remote()
    };
    world.server.require_bearer("old");
    bounded(head(&lent("old"), &main())).await.unwrap();
    world.server.require_bearer("new");
    bounded(head(&lent("new"), &main())).await.unwrap();
    assert_eq!(world.steps(), [Step::InfoRefs, Step::LsRefs, Step::LsRefs]);
}

#[tokio::test]
async fn statuses_are_named() {
    let world = World::new().await;
    world.repository.commit("one").unwrap();
    for (status, wanted) in [
        (403, "authorization failed"),
        (404, "repository not found"),
        (500, "unexpected HTTP status 500"),
        (503, "unexpected HTTP status 503"),
    ] {
        world.server.fault(Scope::Any, Fault::Status(status));
        let error = world.head(&main()).await.unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
        assert_eq!(error.class(), Class::Transient);
        world.server.clear_faults();
    }
    world.head(&main()).await.unwrap();
    world.server.fault(Scope::LS_REFS, Fault::RetryAfter(429, 7));
    assert_eq!(
        world.head(&main()).await.unwrap_err().class(),
        Class::Waiting(Duration::from_secs(7))
    );
    world.server.clear_faults();
    world.head(&main()).await.unwrap();
}

#[tokio::test]
async fn servers_that_cannot_be_spoken_to_are_named() {
    let world = World::new().await;
    world.repository.commit("one").unwrap();
    let id = "8".repeat(40);
    for (kind, page, wanted) in [
        (
            "text/html",
            "<html>Log in".into(),
            "the answer is not Git's smart HTTP protocol",
        ),
        (
            "text/plain",
            format!("{id}\trefs/heads/main\n"),
            "the answer is not Git's smart HTTP protocol",
        ),
    ] {
        world.server.fault(Scope::INFO_REFS, Fault::Page(kind, page));
        let error = world.head(&main()).await.unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
        world.server.clear_faults();
    }
    world
        .server
        .fault(Scope::LS_REFS, Fault::Page("text/html", "<html>Log in".into()));
    let error = world.head(&main()).await.unwrap_err();
    assert!(error.to_string().contains("content type 'text/html'"), "{error}");
}

#[tokio::test]
async fn a_repository_of_another_hash_function_is_named() {
    let world =
        World::of(Repository::create_with(&["--initial-branch=main", "--object-format=sha256"]).unwrap())
            .await;
    world.repository.commit("one").unwrap();
    let error = world.head(&main()).await.unwrap_err().to_string();
    assert!(
        error.ends_with("object format is sha256; only sha1 is supported"),
        "{error}"
    );
}

#[tokio::test]
async fn lists_without_end_are_cut_off() {
    let world = World::new().await;
    world.repository.commit("one").unwrap();
    world.server.fault(Scope::INFO_REFS, Fault::Oversized);
    let error = world.head(&main()).await.unwrap_err();
    assert!(matches!(error, FetchError::Advertisement { .. }), "{error}");
    world.server.clear_faults();
    world.server.fault(Scope::LS_REFS, Fault::Oversized);
    let error = world.head(&main()).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("in more than 67108864 bytes; raise --git-max-refs-bytes"),
        "{text}"
    );
}

#[tokio::test]
async fn nobody_listening_is_a_connection_error() {
    let world = World::new().await;
    let closed = sluice_harness::closed::ClosedPort::take().unwrap();
    let free = closed.address().unwrap();
    let error = bounded(head(&world.remote_at(&format!("http://{free}/x")), &main()))
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
    let world = World::new().await;
    let server = GitServer::start_tls().await.unwrap();
    let url = server.serve("stack", &world.repository);
    let error = bounded(head(&world.remote_at(&url), &main())).await.unwrap_err();
    assert!(
        matches!(&error, FetchError::Connection { why, .. } if why.contains("certificate")),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_of_a_trusted_authority_is_spoken_to_over_tls() {
    let world = World::with_files().await;
    let server = GitServer::start_tls().await.unwrap();
    let url = server.serve("stack", &world.repository);
    let authority = CertificateDer::from_pem_slice(server.authority_pem().unwrap().as_bytes()).unwrap();
    let settings = Settings {
        extra_roots: vec![authority],
        system_roots: false,
        ..Settings::default()
    };
    let remote = Remote {
        transport: Transport::with(&settings, crate::git::ssh::Algorithms::default()).unwrap(),
        ..world.remote_at(&url)
    };
    let checkout = world.fetch_from(&remote, &main()).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&world.repository, "HEAD"));
}

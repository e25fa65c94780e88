//! The server's statement about the target of a tag is not trusted: the tag object is followed in the fetched objects.

use sluice_harness::git::pack::{fetch_response, packet};
use sluice_harness::git::{Fault, Scope};
use sluice_runtime::failure::Failure as _;

use super::*;

/// A repository with a tag of one commit, and another commit that the tag does not point to.
struct FalseTagServer {
    env: TestEnvironment,
    tag: String,
    other: String,
}

impl FalseTagServer {
    async fn new() -> Self {
        let env = TestEnvironment::with_files().await;
        let tag = env.repository.annotated_tag("v1.0.0", "release").unwrap();
        env.repository.annotated_tag("v1.0.1", "v1.0.0 again").unwrap();
        let files = [("modules/1/main.tf", "locals {}\n")];
        let other = env.repository.commit_files(&files, "not released").unwrap();
        Self { env, tag, other }
    }

    /// Returns a pack of the tag and the other commit.
    fn pack(&self) -> Vec<u8> {
        let revisions = format!("{}\n{}\n", self.tag, self.other);
        self.env.repository.pack(&[], &revisions).unwrap()
    }

    fn advertise_wrong_object(&self) {
        let line = format!("{} refs/tags/v1.0.0 peeled:{}\n", self.tag, self.other);
        let list = [&packet(line.as_bytes())[..], b"0000"].concat();
        self.env.server.fault(Scope::LS_REFS, Fault::Reply(list.into()));
    }

    async fn assert_refused(&self, reference: &Reference) {
        let error = self.env.fetch(reference).await.unwrap_err();
        let host = self.env.remote().address.host();
        assert_eq!(
            error.to_string(),
            format!(
                "{host} reports commit {} for tag object {}, which does not point to it",
                self.other, self.tag
            )
        );
        assert_eq!(error.reason(), "GitOperationFailed");
    }

    /// Checks that the mirror contains nothing of the refused response.
    fn assert_no_packs(&self) {
        assert_eq!(
            self.env.files(|name| name.starts_with("pack-")),
            Vec::<PathBuf>::new()
        );
    }
}

fn tagged() -> Reference {
    Reference::Tag("v1.0.0".into())
}

#[tokio::test]
async fn a_wrong_peeled_object_in_version_2_is_refused() {
    let server = FalseTagServer::new().await;
    server.advertise_wrong_object();
    let answer = fetch_response(&[], &server.pack());
    server.env.server.fault(Scope::FETCH, Fault::Reply(answer.into()));
    server.assert_refused(&tagged()).await;
    server.assert_refused(&Reference::Semver("1.0.0".into())).await;
    // A pinned commit with the name of the tag.
    let pin = Reference::Commit {
        commit: server.other.clone(),
        branch: None,
        name: Some("refs/tags/v1.0.0".into()),
    };
    server.assert_refused(&pin).await;
    server.assert_no_packs();
    server.env.server.clear_faults();
    let checkout = server.env.fetch(&tagged()).await.unwrap();
    assert_eq!(
        checkout.commit().id.to_string(),
        server.env.repository.resolve("v1.0.0^{}").unwrap()
    );
}

#[tokio::test]
async fn a_wrong_peeled_object_of_existing_objects_is_refused() {
    let server = FalseTagServer::new().await;
    server.env.fetch(&tagged()).await.unwrap();
    server.env.fetch(&main()).await.unwrap();
    server.env.steps();
    server.advertise_wrong_object();
    server.assert_refused(&tagged()).await;
    assert_eq!(server.env.steps(), [Step::LsRefs], "nothing is transferred");
    server.env.server.clear_faults();
    server.env.fetch(&tagged()).await.unwrap();
}

#[tokio::test]
async fn a_wrong_peeled_object_in_version_0_is_refused() {
    let server = FalseTagServer::new().await;
    let (tag, other) = (&server.tag, &server.other);
    let list = [
        packet(b"# service=git-upload-pack\n"),
        b"0000".to_vec(),
        packet(format!("{other} HEAD\0side-band-64k ofs-delta\n").as_bytes()),
        packet(format!("{tag} refs/tags/v1.0.0\n").as_bytes()),
        packet(format!("{other} refs/tags/v1.0.0^{{}}\n").as_bytes()),
        b"0000".to_vec(),
    ];
    server.env.server.limit_protocol_version(0);
    server
        .env
        .server
        .fault(Scope::INFO_REFS, Fault::Reply(list.concat().into()));
    let answer = fetch_response(&[], &server.pack());
    let bands = &answer[packet(b"packfile\n").len()..];
    let answer = [&packet(b"NAK\n")[..], bands].concat();
    server.env.server.fault(Scope::FETCH, Fault::Reply(answer.into()));
    server.assert_refused(&tagged()).await;
    server.assert_no_packs();
}

#[tokio::test]
async fn a_nested_tag_is_peeled_to_its_commit() {
    let env = TestEnvironment::with_files().await;
    let first = env.repository.annotated_tag("v1.0.0", "release").unwrap();
    env.repository
        .git(["tag", "-a", "-m", "again", "v1.0.1", &first])
        .unwrap();
    let checkout = env.fetch(&Reference::Tag("v1.0.1".into())).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&env.repository, "main"));
}

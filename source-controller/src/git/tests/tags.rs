//! A server's word for where a tag leads is not taken: the tag object is followed in what was fetched.

use sluice_harness::git::pack::{fetch_answer, packet};
use sluice_harness::git::{Fault, Scope};
use sluice_runtime::failure::Failure as _;

use super::super::pack::tests::packed;
use super::*;

/// A repository with a tag of one commit, and another commit that the tag does not lead to.
struct Lie {
    world: World,
    tag: String,
    other: String,
}

impl Lie {
    async fn new() -> Self {
        let world = World::with_files().await;
        let tag = world.repository.annotated_tag("v1.0.0", "release").unwrap();
        world.repository.annotated_tag("v1.0.1", "v1.0.0 again").unwrap();
        let files = [("modules/1/main.tf", "locals {}\n")];
        let other = world.repository.commit_files(&files, "not released").unwrap();
        Self { world, tag, other }
    }

    /// The tag and the other commit.
    fn pack(&self) -> Vec<u8> {
        packed(
            &self.world.repository,
            &[],
            &format!("{}\n{}\n", self.tag, self.other),
        )
    }

    fn lists_it_falsely(&self) {
        let line = format!("{} refs/tags/v1.0.0 peeled:{}\n", self.tag, self.other);
        let list = [&packet(line.as_bytes())[..], b"0000"].concat();
        self.world.server.fault(Scope::LS_REFS, Fault::Reply(list.into()));
    }

    async fn is_refused(&self, reference: &Reference) {
        let error = self.world.fetch(reference).await.unwrap_err();
        let host = self.world.remote().address.host();
        assert_eq!(
            error.to_string(),
            format!(
                "{host} says that tag object {} leads to commit {}, which it does not",
                self.tag, self.other
            )
        );
        assert_eq!(error.reason(), "GitOperationFailed");
    }

    /// The mirror has nothing of what was refused.
    fn nothing_is_left(&self) {
        assert_eq!(
            self.world.files(|name| name.starts_with("pack-")),
            Vec::<PathBuf>::new()
        );
    }
}

fn tagged() -> Reference {
    Reference::Tag("v1.0.0".into())
}

#[tokio::test]
async fn a_server_of_version_2_that_lies_about_a_tag_is_refused() {
    let lie = Lie::new().await;
    lie.lists_it_falsely();
    let answer = fetch_answer(&[], &lie.pack());
    lie.world.server.fault(Scope::FETCH, Fault::Reply(answer.into()));
    lie.is_refused(&tagged()).await;
    lie.is_refused(&Reference::Semver("1.0.0".into())).await;
    // A pin by the name of the tag.
    let pin = Reference::Commit {
        commit: lie.other.clone(),
        branch: None,
        name: Some("refs/tags/v1.0.0".into()),
    };
    lie.is_refused(&pin).await;
    lie.nothing_is_left();
    lie.world.server.clear_faults();
    let checkout = lie.world.fetch(&tagged()).await.unwrap();
    assert_eq!(
        checkout.commit().id.to_string(),
        lie.world.repository.resolve("v1.0.0^{}").unwrap()
    );
}

#[tokio::test]
async fn a_lie_about_objects_that_are_held_is_refused() {
    let lie = Lie::new().await;
    lie.world.fetch(&tagged()).await.unwrap();
    lie.world.fetch(&main()).await.unwrap();
    lie.world.steps();
    lie.lists_it_falsely();
    lie.is_refused(&tagged()).await;
    assert_eq!(lie.world.steps(), [Step::LsRefs], "nothing travels");
    lie.world.server.clear_faults();
    lie.world.fetch(&tagged()).await.unwrap();
}

#[tokio::test]
async fn a_server_of_version_0_that_lies_about_a_tag_is_refused() {
    let lie = Lie::new().await;
    let (tag, other) = (&lie.tag, &lie.other);
    let list = [
        packet(b"# service=git-upload-pack\n"),
        b"0000".to_vec(),
        packet(format!("{other} HEAD\0side-band-64k ofs-delta\n").as_bytes()),
        packet(format!("{tag} refs/tags/v1.0.0\n").as_bytes()),
        packet(format!("{other} refs/tags/v1.0.0^{{}}\n").as_bytes()),
        b"0000".to_vec(),
    ];
    lie.world.server.speak_at_most(0);
    lie.world
        .server
        .fault(Scope::INFO_REFS, Fault::Reply(list.concat().into()));
    let answer = fetch_answer(&[], &lie.pack());
    let bands = &answer[packet(b"packfile\n").len()..];
    let answer = [&packet(b"NAK\n")[..], bands].concat();
    lie.world.server.fault(Scope::FETCH, Fault::Reply(answer.into()));
    lie.is_refused(&tagged()).await;
    lie.nothing_is_left();
}

#[tokio::test]
async fn a_tag_of_a_tag_leads_to_its_commit() {
    let world = World::with_files().await;
    let first = world.repository.annotated_tag("v1.0.0", "release").unwrap();
    world
        .repository
        .git(["tag", "-a", "-m", "again", "v1.0.1", &first])
        .unwrap();
    let checkout = world.fetch(&Reference::Tag("v1.0.1".into())).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&world.repository, "main"));
}

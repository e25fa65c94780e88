//! What happens to an object before the controller that may die looks at it.

use serde_json::json;

use super::super::world::World;
use super::life::Life;
use super::live;

/// One story. The object is `app`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Story {
    FirstArtifact,
    NewRevision,
    IgnoreChange,
    IncludeChange,
    Failure,
    Recovery,
    LostFile,
    Deletion,
}

impl Story {
    /// Brings the world to where the story begins.
    pub(super) async fn begin(self, world: &mut World, before: &Life) {
        if self == Self::IncludeChange {
            world.serve("lib", &[("a.tf", "# a\n")]);
            world.create_of("lib").await;
            let include = json!({ "include": [{ "repository": { "name": "lib" } }] });
            world.create("app", include).await;
        } else {
            world.create("app", json!({})).await;
        }
        if self == Self::FirstArtifact {
            return;
        }
        live(world, before).await;
        match self {
            Self::FirstArtifact => {}
            Self::NewRevision => {
                world.commit("second", &[("main.tf", "locals { a = 1 }\n")]);
            }
            Self::IgnoreChange => world.edit("app", json!({ "spec": { "ignore": "*.tf\n" } })).await,
            Self::IncludeChange => {
                world.serve("lib", &[("b.tf", "# b\n")]);
                world.pass("lib").await;
            }
            Self::Failure => world.server.withdraw("app"),
            Self::Recovery => {
                world.server.withdraw("app");
                live(world, before).await;
                world.commit("second", &[("main.tf", "locals { a = 1 }\n")]);
                world.server.serve("app", &world.repository);
            }
            Self::LostFile => {
                std::fs::remove_file(world.file(&world.artifact("app").await)).unwrap();
            }
            Self::Deletion => world.delete("app").await,
        }
    }

    /// What the undisturbed controller's outcome says, so that no story ends before it began.
    pub(super) const fn ends_with(self) -> &'static str {
        match self {
            Self::FirstArtifact | Self::IgnoreChange | Self::IncludeChange | Self::LostFile => {
                "artifact main@sha1:<first>"
            }
            Self::NewRevision | Self::Recovery => "artifact main@sha1:<second>",
            Self::Failure => "FetchFailed=True",
            Self::Deletion => "gone",
        }
    }

    /// Steps that there are at least.
    pub(super) const fn fewest_steps(self) -> usize {
        match self {
            Self::Deletion => 2,
            Self::Failure => 3,
            _ => 6,
        }
    }
}

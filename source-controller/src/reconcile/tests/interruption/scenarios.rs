//! The scenarios: what happens to an object before the interrupted reconciliation.

use serde_json::json;

use super::super::environment::TestEnvironment;
use super::kill_switch::KillSwitch;
use super::run_until_settled;

/// A scenario. The object is `app`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scenario {
    FirstArtifact,
    NewRevision,
    IgnoreChange,
    IncludeChange,
    Failure,
    Recovery,
    LostFile,
    Deletion,
}

impl Scenario {
    /// Prepares the environment.
    pub(super) async fn begin(self, env: &mut TestEnvironment, before: &KillSwitch) {
        if self == Self::IncludeChange {
            env.serve("lib", &[("a.tf", "# a\n")]);
            env.create_and_reconcile("lib").await;
            let include = json!({ "include": [{ "repository": { "name": "lib" } }] });
            env.create("app", include).await;
        } else {
            env.create("app", json!({})).await;
        }
        if self == Self::FirstArtifact {
            return;
        }
        run_until_settled(env, before).await;
        match self {
            Self::FirstArtifact => {}
            Self::NewRevision => {
                env.commit("second", &[("main.tf", "locals { a = 1 }\n")]);
            }
            Self::IgnoreChange => env.edit("app", json!({ "spec": { "ignore": "*.tf\n" } })).await,
            Self::IncludeChange => {
                env.serve("lib", &[("b.tf", "# b\n")]);
                env.reconcile("lib").await;
            }
            Self::Failure => env.server.withdraw("app"),
            Self::Recovery => {
                env.server.withdraw("app");
                run_until_settled(env, before).await;
                env.commit("second", &[("main.tf", "locals { a = 1 }\n")]);
                env.server.serve("app", &env.repository);
            }
            Self::LostFile => {
                std::fs::remove_file(env.file(&env.artifact("app").await)).unwrap();
            }
            Self::Deletion => env.delete("app").await,
        }
    }

    /// Part of the uninterrupted final state, to ensure that the scenario takes place.
    pub(super) const fn expected_outcome(self) -> &'static str {
        match self {
            Self::FirstArtifact | Self::IgnoreChange | Self::IncludeChange | Self::LostFile => {
                "artifact main@sha1:<first>"
            }
            Self::NewRevision | Self::Recovery => "artifact main@sha1:<second>",
            Self::Failure => "FetchFailed=True",
            Self::Deletion => "gone",
        }
    }

    /// Minimum number of steps.
    pub(super) const fn min_steps(self) -> usize {
        match self {
            Self::Deletion => 2,
            Self::Failure => 3,
            _ => 6,
        }
    }
}

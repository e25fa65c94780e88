//! Errored states in the status of runs. A writer of Secrets could forge a state, and the CLI downloads and executes the providers
//! that a state names. So only a state with a digest in the status of a run of this stack is pushed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use sluice_api::run::{ErroredState, TerraformRun};
use sluice_api::terraform::run_sequence;

use super::{DIGEST, LOCATION, WORKSPACE, annotation};
use crate::chunk;

/// Returns the digest that a run records of an errored state: `sha256:` and hex digits, over content, workspace and location. It
/// is the same for each Secret of the state.
#[must_use]
pub fn digest_of(secret: &Secret) -> String {
    let labels = secret.metadata.labels.as_ref();
    let workspace = labels.and_then(|all| all.get(WORKSPACE));
    let parts = [
        annotation(secret, DIGEST),
        workspace.map_or("", String::as_str),
        annotation(secret, LOCATION),
    ];
    format!("sha256:{}", chunk::digest_of_parts(parts.map(str::as_bytes)))
}

/// Returns the errored states that may not be pushed yet, with the runs that recorded them: a run pushes the states of its workspace
/// before it plans, so states from before the last plan in their workspace are pushed.
fn unpushed<'r>(
    runs: impl IntoIterator<Item = &'r TerraformRun>,
) -> Vec<(&'r TerraformRun, &'r ErroredState)> {
    let mut objects: BTreeMap<&str, Vec<&TerraformRun>> = BTreeMap::new();
    for run in runs {
        objects.entry(&run.spec.terraform.uid).or_default().push(run);
    }
    let mut found = Vec::new();
    for history in objects.values_mut() {
        history.sort_by_key(|run| Reverse(run_sequence(run.metadata.name.as_deref().unwrap_or_default())));
        let mut planned = BTreeSet::new();
        for run in history {
            let Some(status) = &run.status else { continue };
            let recorded = status.errored_states.iter();
            let unpushed = recorded.filter(|state| !planned.contains(state.workspace.as_str()));
            found.extend(unpushed.map(|state| (*run, state)));
            if status.has_changes.is_some() {
                planned.insert(status.workspace.as_str());
            }
        }
    }
    found
}

/// Returns the runs with errored states that may not be pushed yet.
#[must_use]
pub fn recording_runs<'r>(runs: impl IntoIterator<Item = &'r TerraformRun>) -> Vec<&'r TerraformRun> {
    let mut found: Vec<_> = unpushed(runs).into_iter().map(|(run, _)| run).collect();
    found.dedup_by_key(|run| run.metadata.name.as_deref());
    found
}

/// Returns the first Secret that neither these runs nor this run (`own`) recorded.
#[must_use]
pub fn find_unrecorded<'s>(
    secrets: &'s [Secret],
    runs: &[TerraformRun],
    own: &[ErroredState],
) -> Option<&'s Secret> {
    let states = unpushed(runs).into_iter().map(|(_, state)| state);
    let known: BTreeSet<_> = states.chain(own).map(|state| &state.digest).collect();
    secrets.iter().find(|secret| !known.contains(&digest_of(secret)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{StateLocation, encode};
    use super::*;
    use crate::bundle::Stack;

    fn stored(state: &[u8], workspace: &str, location: &str) -> Vec<Secret> {
        let stack = Stack {
            namespace: "team".into(),
            name: "net".into(),
            uid: "u".into(),
        };
        encode(state, &stack, StateLocation { workspace, location }).unwrap()
    }

    fn run(number: u32, uid: &str, status: &Value) -> TerraformRun {
        serde_json::from_value(json!({
            "metadata": { "name": format!("net-{uid}-{number}") },
            "spec": { "action": "Apply", "attempt": 1, "deadline": "2h", "trigger": "Approval",
                      "source": { "kind": "GitRepository", "name": "x", "namespace": "team" },
                      "terraform": { "name": "net", "uid": uid, "generation": 1 } },
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn only_a_state_that_a_run_recorded_is_known() {
        let state = stored(b"state", "default", "here");
        let digest = digest_of(&state[0]);
        let runs = [run(
            1,
            "u1",
            &json!({ "erroredStates": [{ "digest": &digest, "workspace": "default" }] }),
        )];
        assert!(find_unrecorded(&state, &runs, &[]).is_none());
        let own = ErroredState {
            digest,
            workspace: "default".into(),
        };
        assert!(
            find_unrecorded(&state, &[], &[own]).is_none(),
            "rescued by this run"
        );
        assert!(find_unrecorded(&state, &[], &[]).is_some());
        for other in [
            stored(b"forged", "default", "here"),
            stored(b"state", "other", "here"),
            stored(b"state", "default", "there"),
        ] {
            assert!(find_unrecorded(&other, &runs, &[]).is_some());
            let both = [state.clone(), other].concat();
            assert!(
                find_unrecorded(&both, &runs, &[]).is_some(),
                "beside the right one"
            );
        }
    }

    #[test]
    fn a_state_pushed_before_the_last_plan_is_not_pushed_again() {
        let states = || json!([{ "digest": "sha256:1", "workspace": "blue" }]);
        let record = || json!({ "erroredStates": states() });
        let planned = json!({ "hasChanges": true, "workspace": "blue" });
        let both = json!({ "hasChanges": true, "workspace": "blue", "erroredStates": states() });
        let names = |runs: &[TerraformRun]| -> Vec<String> {
            let name = |run: &&TerraformRun| run.metadata.name.clone().unwrap();
            recording_runs(runs).iter().map(name).collect()
        };
        let runs = [
            run(1, "u1", &record()),
            run(2, "u1", &planned),
            run(10, "u1", &record()),
        ];
        assert_eq!(names(&runs), ["net-u1-10"]);
        assert_eq!(
            names(&[run(1, "u1", &record()), run(2, "u1", &both)]),
            ["net-u1-2"]
        );
        let successor = [run(7, "u1", &both), run(1, "u2", &planned)];
        assert_eq!(names(&successor), ["net-u1-7"], "of the object before");
    }

    #[test]
    fn a_plan_in_another_workspace_does_not_hide_an_errored_state() {
        let states = json!([{ "digest": "sha256:1", "workspace": "blue" }]);
        let recorded = json!({ "hasChanges": true, "workspace": "blue", "erroredStates": states });
        let planned = |workspace: &str| json!({ "hasChanges": false, "workspace": workspace });
        let green = [run(1, "u1", &recorded), run(2, "u1", &planned("green"))];
        assert_eq!(recording_runs(&green).len(), 1);
        let blue = [green.as_slice(), &[run(3, "u1", &planned("blue"))]].concat();
        assert!(recording_runs(&blue).is_empty());
        // A run of `green` found the state of `blue` in its working directory.
        let rescued = json!({ "hasChanges": true, "workspace": "green", "erroredStates": states });
        let later = [run(1, "u1", &rescued), run(2, "u1", &planned("green"))];
        assert_eq!(recording_runs(&later).len(), 1);
    }
}

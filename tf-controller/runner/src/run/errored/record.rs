//! Which kept states are on record (pure). Who may write Secrets may write a state that looks kept, and what a state names is
//! downloaded and run: only a state that a run of this stack has in its status is pushed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use sha2::{Digest as _, Sha256};
use sluice_api::run::TerraformRun;
use sluice_api::terraform::run_sequence;

use super::{DIGEST, PLACE, WORKSPACE, held};

/// What a run records of a kept state: `sha256:` and hex digits, over its content, its workspace and its place. The same for each
/// of its Secrets.
pub(super) fn digest_of(secret: &Secret) -> String {
    let labels = secret.metadata.labels.as_ref();
    let workspace = labels.and_then(|all| all.get(WORKSPACE)).cloned();
    let mut hash = Sha256::new();
    for part in [
        held(secret, DIGEST),
        workspace.unwrap_or_default(),
        held(secret, PLACE),
    ] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    format!("sha256:{}", hex::encode(hash.finalize()))
}

/// The runs that kept a state which may still have to be pushed: of each object, those since its last run that planned, that one
/// among them. A run pushes what is kept before it plans.
#[must_use]
pub fn recorders<'r>(runs: impl IntoIterator<Item = &'r TerraformRun>) -> Vec<&'r TerraformRun> {
    let mut objects: BTreeMap<&str, Vec<&TerraformRun>> = BTreeMap::new();
    for run in runs {
        objects.entry(&run.spec.terraform.uid).or_default().push(run);
    }
    let mut found = Vec::new();
    for runs in objects.values_mut() {
        runs.sort_by_key(|run| Reverse(run_sequence(run.metadata.name.as_deref().unwrap_or_default())));
        for run in runs {
            let Some(status) = &run.status else { continue };
            if !status.errored_state_digests.is_empty() {
                found.push(*run);
            }
            if status.has_changes.is_some() {
                break;
            }
        }
    }
    found
}

/// The first of the Secrets that none of the runs has on record, and not this run either.
pub(super) fn stray<'s>(secrets: &'s [Secret], runs: &[TerraformRun], own: &[String]) -> Option<&'s Secret> {
    let digests = recorders(runs)
        .into_iter()
        .filter_map(|run| run.status.as_ref())
        .flat_map(|status| &status.errored_state_digests);
    let known: BTreeSet<_> = digests.chain(own).collect();
    secrets.iter().find(|secret| !known.contains(&digest_of(secret)))
}

#[cfg(test)]
mod tests {
    use super::super::{Belongs, encode};
    use super::*;
    use crate::bundle::Stack;
    use serde_json::{Value, json};

    fn kept(state: &[u8], workspace: &str, place: &str) -> Vec<Secret> {
        let stack = Stack {
            namespace: "team".into(),
            name: "net".into(),
            uid: "u".into(),
        };
        encode(state, &stack, Belongs { workspace, place }).unwrap()
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
        let state = kept(b"state", "default", "here");
        let digest = digest_of(&state[0]);
        let runs = [run(1, "u1", &json!({ "erroredStateDigests": [&digest] }))];
        assert!(stray(&state, &runs, &[]).is_none());
        assert!(
            stray(&state, &[], std::slice::from_ref(&digest)).is_none(),
            "rescued by this run"
        );
        assert!(stray(&state, &[], &[]).is_some());
        for other in [
            kept(b"forged", "default", "here"),
            kept(b"state", "other", "here"),
            kept(b"state", "default", "there"),
        ] {
            assert!(stray(&other, &runs, &[]).is_some());
            let both = [state.clone(), other].concat();
            assert!(stray(&both, &runs, &[]).is_some(), "beside the right one");
        }
    }

    #[test]
    fn what_was_pushed_before_the_last_plan_is_not_taken_again() {
        let record = || json!({ "erroredStateDigests": ["sha256:1"] });
        let planned = json!({ "hasChanges": true });
        let both = json!({ "hasChanges": true, "erroredStateDigests": ["sha256:1"] });
        let names = |runs: &[TerraformRun]| -> Vec<String> {
            let name = |run: &&TerraformRun| run.metadata.name.clone().unwrap();
            recorders(runs).iter().map(name).collect()
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
}

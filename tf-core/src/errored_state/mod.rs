//! Errored states: states that the CLI could not write to their backend, stored in Secrets that the Terraform object owns.

mod choice;
mod record;

use std::collections::BTreeMap;

pub use choice::{Choice, ChoiceError, choose};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
pub use record::{digest_of, find_unrecorded, recording_runs};
use sha2::{Digest as _, Sha256};
use sluice_api::terraform::workspace_label;

use crate::bundle::Stack;
use crate::chunk;
use crate::plan::store::{self, short_label};

/// The file that the CLI writes.
pub const FILE: &str = "errored.tfstate";
/// Label: the stack.
pub const LABEL: &str = "infra.sluice.dev/errored-state";
/// Label: the workspace.
pub const WORKSPACE: &str = "infra.sluice.dev/errored-state-workspace";
const INDEX: &str = "infra.sluice.dev/chunk";
const COUNT: &str = "infra.sluice.dev/chunks";
const DIGEST: &str = "infra.sluice.dev/digest";
/// Annotation: the location of the state, as in the bundle.
const LOCATION: &str = "infra.sluice.dev/errored-state-place";
/// Size limit of a stored state, in bytes.
pub const LIMIT: u64 = 256 * 1024 * 1024;

/// Returns the label selector of the errored states of a stack.
#[must_use]
pub fn selector(stack: &str) -> String {
    format!("{LABEL}={}", short_label(stack))
}

/// The location of a state.
#[derive(Clone, Copy, Debug)]
pub struct StateLocation<'a> {
    /// The workspace.
    pub workspace: &'a str,
    /// The location, as in the bundle.
    pub location: &'a str,
}

/// Encodes a state into Secrets.
///
/// # Errors
/// The state cannot be compressed.
pub fn encode(state: &[u8], stack: &Stack, target: StateLocation<'_>) -> std::io::Result<Vec<Secret>> {
    let packed = chunk::compress(state)?;
    let digest = digest(&packed);
    let chunks = chunk::pack(&[("state", &packed)]);
    let count = chunks.len().to_string();
    let prefix = store::object_name("tferrored", target.workspace, &stack.name);
    let secret = |(index, data): (usize, BTreeMap<String, ByteString>)| {
        let labels = BTreeMap::from([
            (LABEL.to_owned(), short_label(&stack.name)),
            (WORKSPACE.to_owned(), workspace_label(target.workspace)),
        ]);
        let annotations = BTreeMap::from([
            (LOCATION.to_owned(), target.location.to_owned()),
            (INDEX.to_owned(), index.to_string()),
            (COUNT.to_owned(), count.clone()),
            (DIGEST.to_owned(), digest.clone()),
        ]);
        let name = format!("{prefix}-{}-{index}", &digest[..10]);
        store::immutable_secret(stack, name, labels, annotations, data)
    };
    Ok(chunks.into_iter().enumerate().map(secret).collect())
}

fn annotation<'s>(secret: &'s Secret, key: &str) -> &'s str {
    store::annotation_of(&secret.metadata, key)
}

/// Whether an errored state belongs to none of these locations. States of earlier versions have none.
#[must_use]
pub fn is_of_another_location(secret: &Secret, locations: [&str; 2]) -> bool {
    let own = annotation(secret, LOCATION);
    !own.is_empty() && !locations.contains(&own)
}

fn digest(packed: &[u8]) -> String {
    hex::encode(Sha256::digest(packed))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Secrets of a state with the location `here`.
    pub(super) fn stored(state: &[u8]) -> Vec<Secret> {
        let stack = Stack {
            namespace: "team".into(),
            name: "net".into(),
            uid: "u".into(),
        };
        let target = StateLocation {
            workspace: "default",
            location: "here",
        };
        encode(state, &stack, target).unwrap()
    }

    #[test]
    fn an_errored_state_records_its_location() {
        let secrets = stored(b"{}");
        assert!(
            !is_of_another_location(&secrets[0], ["here", ""])
                && is_of_another_location(&secrets[0], ["there", ""])
        );
        assert!(
            !is_of_another_location(&secrets[0], ["there", "here"]),
            "as an earlier version identified it"
        );
        assert!(
            !is_of_another_location(&Secret::default(), ["there", ""]),
            "of a version without locations"
        );
    }
}

//! A state that the CLI could not write, as it is stored: in Secrets that the Terraform owns.

mod choice;
mod record;

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use sha2::{Digest as _, Sha256};
use sluice_api::terraform::workspace_label;

use crate::bundle::Stack;
use crate::chunk;
use crate::plan::store::{self, short_label};

pub use choice::{Choice, ChoiceError, choose};
pub use record::{digest_of, recorders, stray};

/// The CLI's own file name.
pub const FILE: &str = "errored.tfstate";
/// Label: which stack's.
pub const LABEL: &str = "infra.sluice.dev/errored-state";
/// Label: the workspace.
pub const WORKSPACE: &str = "infra.sluice.dev/errored-state-workspace";
const INDEX: &str = "infra.sluice.dev/chunk";
const COUNT: &str = "infra.sluice.dev/chunks";
const DIGEST: &str = "infra.sluice.dev/digest";
/// Annotation: the place it belongs to, as the bundle tells it.
const PLACE: &str = "infra.sluice.dev/errored-state-place";
/// Largest state that is kept.
pub const LIMIT: u64 = 256 * 1024 * 1024;

/// The label selector of a stack's states that could not be written.
#[must_use]
pub fn selector(stack: &str) -> String {
    format!("{LABEL}={}", short_label(stack))
}

/// Where a state belongs.
#[derive(Clone, Copy, Debug)]
pub struct Belongs<'a> {
    /// The workspace.
    pub workspace: &'a str,
    /// The place, as the bundle tells it.
    pub place: &'a str,
}

/// Packs a state into Secrets.
///
/// # Errors
/// The state cannot be compressed.
pub fn encode(state: &[u8], stack: &Stack, belongs: Belongs<'_>) -> std::io::Result<Vec<Secret>> {
    let packed = chunk::compress(state)?;
    let digest = digest(&packed);
    let pieces = chunk::pack(&[("state", &packed)]);
    let count = pieces.len().to_string();
    let front = store::object_name("tferrored", belongs.workspace, &stack.name);
    let secret = |(index, data): (usize, BTreeMap<String, ByteString>)| {
        let labels = BTreeMap::from([
            (LABEL.to_owned(), short_label(&stack.name)),
            (WORKSPACE.to_owned(), workspace_label(belongs.workspace)),
        ]);
        let annotations = BTreeMap::from([
            (PLACE.to_owned(), belongs.place.to_owned()),
            (INDEX.to_owned(), index.to_string()),
            (COUNT.to_owned(), count.clone()),
            (DIGEST.to_owned(), digest.clone()),
        ]);
        let name = format!("{front}-{}-{index}", &digest[..10]);
        store::piece(stack, name, labels, annotations, data)
    };
    Ok(pieces.into_iter().enumerate().map(secret).collect())
}

fn held(secret: &Secret, key: &str) -> String {
    let annotations = secret.metadata.annotations.as_ref();
    annotations
        .and_then(|all| all.get(key))
        .cloned()
        .unwrap_or_default()
}

/// Whether a kept state belongs elsewhere than where this run writes its state, by either mark of that place.
#[must_use]
pub fn is_of_another_place(secret: &Secret, places: [&str; 2]) -> bool {
    let own = held(secret, PLACE);
    !own.is_empty() && !places.contains(&own.as_str())
}

fn digest(packed: &[u8]) -> String {
    hex::encode(Sha256::digest(packed))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is kept of a state that belongs `here`.
    pub(super) fn kept(state: &[u8]) -> Vec<Secret> {
        let stack = Stack {
            namespace: "team".into(),
            name: "net".into(),
            uid: "u".into(),
        };
        let belongs = Belongs {
            workspace: "default",
            place: "here",
        };
        encode(state, &stack, belongs).unwrap()
    }

    #[test]
    fn a_kept_state_knows_its_place() {
        let secrets = kept(b"{}");
        assert!(
            !is_of_another_place(&secrets[0], ["here", ""])
                && is_of_another_place(&secrets[0], ["there", ""])
        );
        assert!(
            !is_of_another_place(&secrets[0], ["there", "here"]),
            "by the mark of before"
        );
        assert!(
            !is_of_another_place(&Secret::default(), ["there", ""]),
            "of a version that kept no place"
        );
    }
}

//! The Secrets of a stored log: one for each part, in order.
//!
//! The parts are stored in their order, and each names the number of all. So what is stored when the runner dies is the beginning of the
//! log, and a reader knows what is missing.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource as _, ResourceExt as _};
use sluice_api::annotation::TERRAFORM_LABEL;
use sluice_api::run::TerraformRun;
use sluice_api::terraform::label_value;

use crate::chunk;
use crate::plan::store::annotation_of;

/// Data key of a part in its Secret.
pub const KEY: &str = "log.gz";
/// Annotation: the index of the part, from 0. Absent if the log has one part.
const INDEX: &str = "infra.sluice.dev/chunk";
/// Annotation: the number of parts. Absent if the log has one part, as from versions that knew no more.
const COUNT: &str = "infra.sluice.dev/chunks";
/// Maximum number of parts that are read: more than are written, for logs of later versions.
const READ_LIMIT: usize = 100;

/// Returns the name of the Secret with the log of a run, or with its first part.
#[must_use]
pub fn secret_name(run: &str) -> String {
    format!("{run}-log")
}

/// Returns the immutable Secrets with the compressed parts of the log of a run, in order. The run owns them, so they are deleted with it.
#[must_use]
pub fn secrets(run: &TerraformRun, parts: Vec<Vec<u8>>) -> Vec<Secret> {
    let count = parts.len();
    let parts = parts.into_iter().enumerate();
    parts
        .map(|(index, compressed)| secret(run, LogPart { index, count }, compressed))
        .collect()
}

fn secret(run: &TerraformRun, part: LogPart, compressed: Vec<u8>) -> Secret {
    let stack = label_value(&run.spec.terraform.name);
    // As for the bundle: a deletion of the run does not wait for its log.
    let owner = run.controller_owner_ref(&()).map(|owner| OwnerReference {
        block_owner_deletion: None,
        ..owner
    });
    let annotations = [
        (INDEX.to_owned(), part.index.to_string()),
        (COUNT.to_owned(), part.count.to_string()),
    ];
    Secret {
        metadata: ObjectMeta {
            name: Some(part.secret_name(&secret_name(&run.name_any()))),
            namespace: run.namespace(),
            labels: Some(BTreeMap::from([(TERRAFORM_LABEL.to_owned(), stack)])),
            annotations: (part.count > 1).then(|| BTreeMap::from(annotations)),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        type_: Some("Opaque".to_owned()),
        data: Some(BTreeMap::from([(KEY.to_owned(), ByteString(compressed))])),
        ..Secret::default()
    }
}

/// Which part of a log a Secret holds. Displayed as `part 2 of 3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPart {
    /// Its index, from 0.
    pub index: usize,
    /// The number of parts of the log.
    pub count: usize,
}

impl LogPart {
    /// Reads which part a Secret holds.
    #[must_use]
    pub fn of(secret: &Secret) -> Self {
        let number = |key| annotation_of(&secret.metadata, key).parse::<usize>();
        Self {
            index: number(INDEX).unwrap_or(0),
            count: number(COUNT).unwrap_or(1).clamp(1, READ_LIMIT),
        }
    }

    /// Returns the parts that follow.
    pub fn following(self) -> impl Iterator<Item = Self> {
        let count = self.count;
        (self.index + 1..count).map(move |index| Self { index, count })
    }

    /// Returns the name of the Secret of this part from that of the first one.
    #[must_use]
    pub fn secret_name(self, first: &str) -> String {
        chunk::secret_name(first, self.index)
    }

    /// Whether a Secret holds this part of the log whose first part is `first`. The names are predictable, so any writer of Secrets can
    /// create one of them.
    #[must_use]
    pub fn is_in(self, secret: &Secret, first: &Secret) -> bool {
        Self::of(secret) == self && secret.owner_references() == first.owner_references()
    }
}

impl fmt::Display for LogPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "part {} of {}", self.index + 1, self.count)
    }
}

/// Whether a run owns a Secret.
#[must_use]
pub fn is_owned(secret: &Secret, run: &TerraformRun) -> bool {
    let uid = run.metadata.uid.as_deref();
    let mut owners = secret.owner_references().iter();
    owners.any(|owner| Some(owner.uid.as_str()) == uid)
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;
    use serde_json::json;

    use super::*;

    fn run(uid: &str) -> TerraformRun {
        serde_json::from_value(json!({
            "metadata": { "name": "net-u-7", "namespace": "team", "uid": uid },
            "spec": { "action": "Plan", "attempt": 1, "deadline": "2h", "trigger": "Revision",
                      "source": { "kind": "GitRepository", "name": "x", "namespace": "team" },
                      "terraform": { "name": "net", "uid": "u", "generation": 1 } },
        }))
        .unwrap()
    }

    fn stored(uid: &str, count: usize) -> Vec<Secret> {
        let parts = (0..count).map(|index| format!("packed {index}").into_bytes());
        secrets(&run(uid), parts.collect())
    }

    #[test]
    fn the_secrets_of_a_log_belong_to_its_run() {
        for secret in stored("1-2", 3) {
            assert_eq!(secret.namespace().as_deref(), Some("team"));
            assert_eq!(secret.labels()[TERRAFORM_LABEL], "net");
            assert_eq!(secret.immutable, Some(true));
            let owners = secret.owner_references();
            assert_eq!(owners.len(), 1);
            assert_eq!(
                (owners[0].kind.as_str(), owners[0].uid.as_str()),
                ("TerraformRun", "1-2")
            );
            assert_eq!(owners[0].block_owner_deletion, None);
            assert!(is_owned(&secret, &run("1-2")) && !is_owned(&secret, &run("other")));
        }
    }

    #[test]
    fn a_log_of_one_part_has_one_secret_without_annotations() {
        let secrets = stored("1-2", 1);
        assert_eq!(secrets.len(), 1);
        assert_eq!(secrets[0].name_any(), "net-u-7-log");
        assert_eq!(secrets[0].metadata.annotations, None);
        let part = LogPart::of(&secrets[0]);
        assert_eq!(part, LogPart { index: 0, count: 1 });
        assert_eq!(part.following().count(), 0);
    }

    #[test]
    fn the_first_part_names_the_others() {
        let secrets = stored("1-2", 3);
        let names: Vec<_> = secrets.iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, ["net-u-7-log", "net-u-7-log-1", "net-u-7-log-2"]);
        let first = LogPart::of(&secrets[0]);
        let mut parts = vec![first];
        parts.extend(first.following());
        assert_eq!(parts.len(), 3);
        assert_eq!(parts[1].to_string(), "part 2 of 3");
        for (part, secret) in parts.iter().zip(&secrets) {
            assert_eq!(part.secret_name("net-u-7-log"), secret.name_any());
            assert!(part.is_in(secret, &secrets[0]));
            let data = secret.data.as_ref().unwrap();
            assert_eq!(data[KEY].0, format!("packed {}", part.index).into_bytes());
        }
    }

    #[test]
    fn a_secret_of_another_run_or_position_is_no_part() {
        let (secrets, others) = (stored("1-2", 3), stored("3-4", 3));
        let part = LogPart { index: 1, count: 3 };
        for foreign in [&secrets[2], &others[1], &stored("1-2", 2)[1], &Secret::default()] {
            assert!(!part.is_in(foreign, &secrets[0]), "{foreign:?}");
        }
    }

    #[test]
    fn the_number_of_parts_is_bounded() {
        let mut first = stored("1-2", 2).remove(0);
        for (text, count) in [
            ("4000000000", READ_LIMIT),
            ("0", 1),
            ("x", 1),
            ("-1", 1),
            ("16", 16),
        ] {
            let annotations = first.metadata.annotations.as_mut().unwrap();
            annotations.insert(COUNT.to_owned(), text.to_owned());
            assert_eq!(LogPart::of(&first).count, count, "{text}");
        }
    }
}

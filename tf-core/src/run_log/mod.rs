//! The log of a run: the output of its commands, line by line and redacted. The end of the log is in the status of the run. A log
//! that is longer than that is stored in a Secret, compressed.

mod archive;
mod lines;
mod tail;

use std::collections::BTreeMap;

pub use archive::{Archive, LIMIT};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource as _, ResourceExt as _};
pub use lines::LogLines;
use sluice_api::annotation::TERRAFORM_LABEL;
use sluice_api::run::TerraformRun;
use sluice_api::terraform::label_value;
pub use tail::{Tail, last_lines};

/// Data key of the log in its Secret.
pub const KEY: &str = "log.gz";

/// Returns the name of the Secret with the log of a run.
#[must_use]
pub fn secret_name(run: &str) -> String {
    format!("{run}-log")
}

/// Returns the immutable Secret with the compressed log of a run. The run owns it, so it is deleted with the run.
#[must_use]
pub fn secret(run: &TerraformRun, compressed: Vec<u8>) -> Secret {
    let stack = label_value(&run.spec.terraform.name);
    // As for the bundle: a deletion of the run does not wait for its log.
    let owner = run.controller_owner_ref(&()).map(|owner| OwnerReference {
        block_owner_deletion: None,
        ..owner
    });
    Secret {
        metadata: ObjectMeta {
            name: Some(secret_name(&run.name_any())),
            namespace: run.namespace(),
            labels: Some(BTreeMap::from([(TERRAFORM_LABEL.to_owned(), stack)])),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        type_: Some("Opaque".to_owned()),
        data: Some(BTreeMap::from([(KEY.to_owned(), ByteString(compressed))])),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_secret_of_a_log_belongs_to_its_run() {
        let run: TerraformRun = serde_json::from_value(json!({
            "metadata": { "name": "net-u-7", "namespace": "team", "uid": "1-2" },
            "spec": { "action": "Plan", "attempt": 1, "deadline": "2h", "trigger": "Revision",
                      "source": { "kind": "GitRepository", "name": "x", "namespace": "team" },
                      "terraform": { "name": "net", "uid": "u", "generation": 1 } },
        }))
        .unwrap();
        let secret = secret(&run, b"packed".to_vec());
        assert_eq!(
            (secret.name_any().as_str(), secret.namespace().as_deref()),
            ("net-u-7-log", Some("team"))
        );
        assert_eq!(secret.labels()[TERRAFORM_LABEL], "net");
        let owners = secret.owner_references();
        assert_eq!(owners.len(), 1);
        assert_eq!(
            (owners[0].kind.as_str(), owners[0].uid.as_str()),
            ("TerraformRun", "1-2")
        );
        assert_eq!(owners[0].block_owner_deletion, None);
        assert_eq!(secret.data.unwrap()[KEY].0, b"packed");
    }
}

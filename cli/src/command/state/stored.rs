//! The state of a stack in the generated backend: the kubernetes backend of the CLI stores it in the Secret
//! `tfstate-<workspace>-<suffix>`, compressed with gzip, in the data key `tfstate`.

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::Value;
use sluice_api::terraform::{Terraform, is_label_value};
use sluice_tf_core::chunk;
use sluice_tf_core::state_copy::STATE_LIMIT;
use sluice_tf_core::state_summary::StateSummary;

use crate::cluster::Cluster;
use crate::output::printable;
use crate::{CliError, stack};

/// The data key of the state.
pub(super) const DATA_KEY: &str = "tfstate";

/// A state, with its summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredState {
    /// The state as the CLI reads it.
    pub(super) bytes: Vec<u8>,
    /// Lineage, serial and number of resources.
    pub(super) summary: StateSummary,
}

impl StoredState {
    /// Parses a state.
    pub(super) fn parse(object: &str, bytes: Vec<u8>) -> Result<Self, CliError> {
        let refuse = |cause: String| CliError::Failed {
            object: object.to_owned(),
            cause,
            next_command: String::new(),
        };
        let summary = StateSummary::parse(&bytes).map_err(|error| refuse(error.to_string()))?;
        let summary = summary.ok_or_else(|| refuse("it contains no state".to_owned()))?;
        Ok(Self { bytes, summary })
    }

    /// Returns what identifies the state.
    pub(super) fn describe(&self) -> String {
        let StateSummary {
            lineage,
            serial,
            resources,
            ..
        } = &self.summary;
        let (lineage, plural) = (printable(lineage), if *resources == 1 { "" } else { "s" });
        format!("serial {serial}, lineage {lineage}, {resources} resource{plural}")
    }
}

/// Where the generated backend has the state of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Location {
    /// The workspace.
    pub(super) workspace: String,
    /// The suffix of the Secret.
    pub(super) suffix: String,
}

impl Location {
    /// Returns the location for a workspace. Pure.
    ///
    /// # Errors
    /// The stack has another backend.
    pub(super) fn of(stack: &Terraform, workspace: &str) -> Result<Self, CliError> {
        let suffix = stack.spec.state_suffix(&stack.name_any());
        let Some(suffix) = suffix.filter(|_| is_label_value(workspace)) else {
            return Err(CliError::Refused {
                object: format!("terraform {}", stack::full_name(stack)),
                cause: "its state is not in the generated backend, the only one that this command reads"
                    .to_owned(),
                next_command: format!("sluice debug {}", stack.name_any()),
            });
        };
        Ok(Self {
            workspace: workspace.to_owned(),
            suffix,
        })
    }

    /// Returns the name of the Secret.
    pub(super) fn secret(&self) -> String {
        format!("tfstate-{}-{}", self.workspace, self.suffix)
    }

    /// Returns the name of the Lease with the lock.
    pub(super) fn lease(&self) -> String {
        format!("lock-{}", self.secret())
    }

    /// Returns the labels that the CLI gives all parts of a state, and its lock.
    pub(super) fn labels(&self) -> [(&'static str, String); 4] {
        [
            ("app.kubernetes.io/managed-by", "terraform".to_owned()),
            ("tfstate", "true".to_owned()),
            ("tfstateSecretSuffix", self.suffix.clone()),
            ("tfstateWorkspace", self.workspace.clone()),
        ]
    }

    /// Returns the selector of all parts of the state.
    fn selector(&self) -> String {
        let labels = self.labels();
        let [_, selecting @ ..] = &labels;
        let pairs = selecting.iter().map(|(label, value)| format!("{label}={value}"));
        pairs.collect::<Vec<_>>().join(",")
    }
}

/// Reads the Secrets with the state at a location.
pub(super) async fn read_secrets(
    cluster: &Cluster,
    namespace: &str,
    location: &Location,
) -> Result<Vec<Secret>, CliError> {
    let secrets = cluster.objects_in::<Secret>(namespace);
    let params = ListParams::default().labels(&location.selector());
    cluster.list_with(&secrets, params).await
}

/// Reads the current state of a stack; `None`: there is none.
pub(super) async fn read(cluster: &Cluster, stack: &Terraform) -> Result<Option<StoredState>, CliError> {
    let namespace = stack.namespace().unwrap_or_default();
    let location = Location::of(stack, stack.spec.workspace_name())?;
    let parts = read_secrets(cluster, &namespace, &location).await?;
    decode(stack, &parts)
}

/// Decodes a state from its Secrets. Pure.
///
/// # Errors
/// It has several parts, or is damaged.
pub(super) fn decode(stack: &Terraform, parts: &[Secret]) -> Result<Option<StoredState>, CliError> {
    let secret = match parts {
        [] => return Ok(None),
        [secret] => secret,
        parts => {
            return Err(CliError::Refused {
                object: format!("terraform {}", stack::full_name(stack)),
                cause: format!("its state has {} parts, which only the CLI joins", parts.len()),
                next_command: format!("sluice debug {}", stack.name_any()),
            });
        }
    };
    let object = format!(
        "secret {}/{}",
        stack.namespace().unwrap_or_default(),
        secret.name_any()
    );
    let data = secret.data.as_ref().and_then(|data| data.get(DATA_KEY));
    // The CLI creates the Secret before it writes the first state.
    let Some(packed) = data.filter(|data| !data.0.is_empty()) else {
        return Ok(None);
    };
    let bytes = chunk::decompress(&packed.0, STATE_LIMIT).map_err(|_| CliError::Failed {
        object: object.clone(),
        cause: "its state does not decompress".to_owned(),
        next_command: format!("sluice state list {}", stack.name_any()),
    })?;
    StoredState::parse(&object, bytes).map(Some)
}

/// Returns the addresses of the resources in a state, without their values. Pure.
///
/// # Errors
/// The bytes are not a state.
pub(super) fn addresses(state: &[u8]) -> Result<Vec<String>, CliError> {
    let state: Value =
        serde_json::from_slice(state).map_err(|_| CliError::Format("the state is not JSON".to_owned()))?;
    let resources = state["resources"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let mut found: Vec<String> = resources.iter().flat_map(addresses_of).collect();
    found.sort_unstable();
    Ok(found)
}

/// Returns the addresses of the instances of one resource.
fn addresses_of(resource: &Value) -> Vec<String> {
    let text = |field: &str| resource[field].as_str().unwrap_or_default();
    let module = match text("module") {
        "" => String::new(),
        module => format!("{module}."),
    };
    let mode = if text("mode") == "data" { "data." } else { "" };
    let base = format!("{module}{mode}{}.{}", text("type"), text("name"));
    let instances = resource["instances"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let keys = instances.iter().map(|instance| match &instance["index_key"] {
        Value::Null => base.clone(),
        // A number, or a text in quotes.
        key => format!("{base}[{key}]"),
    });
    keys.collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;
    use crate::fixture;

    fn stack(spec: &Value) -> Terraform {
        fixture::stack(&json!({ "spec": spec }))
    }

    fn secret(data: &[u8]) -> Secret {
        let mut secret = Secret::default();
        secret.metadata.name = Some("tfstate-default-app".to_owned());
        let data = [(DATA_KEY.to_owned(), ByteString(data.to_vec()))];
        secret.data = Some(data.into());
        secret
    }

    fn example() -> Value {
        json!({"version": 4, "serial": 7, "lineage": "l-1", "outputs": {}, "resources": [
            {"mode": "managed", "type": "t_b", "name": "one", "instances": [{"attributes": {"secret": "hunter2"}}]},
            {"mode": "managed", "type": "t_a", "name": "many", "module": "module.net[\"x\"]",
             "instances": [{"index_key": 1}, {"index_key": "k"}]},
            {"mode": "data", "type": "t_c", "name": "read", "instances": [{}]}]})
    }

    #[test]
    fn the_state_is_found_by_workspace_and_suffix() {
        let location = Location::of(&stack(&json!({})), "default").unwrap();
        assert_eq!(
            (location.secret(), location.lease()),
            (
                "tfstate-default-app".to_owned(),
                "lock-tfstate-default-app".to_owned()
            )
        );
        assert_eq!(
            location.selector(),
            "tfstate=true,tfstateSecretSuffix=app,tfstateWorkspace=default"
        );
        let other = stack(&json!({"backendConfig": {"customConfiguration": "backend \"s3\" {}"}}));
        assert!(Location::of(&other, "default").is_err());
    }

    #[test]
    fn a_state_is_decoded_with_a_limit() {
        let stack = stack(&json!({}));
        let packed = chunk::compress(example().to_string().as_bytes()).unwrap();
        let state = decode(&stack, &[secret(&packed)]).unwrap().unwrap();
        assert_eq!(state.describe(), "serial 7, lineage l-1, 3 resources");
        assert_eq!(decode(&stack, &[]).unwrap(), None);
        assert_eq!(decode(&stack, &[secret(b"")]).unwrap(), None);
        let damaged = decode(&stack, &[secret(b"plain")]).unwrap_err().to_string();
        assert_eq!(
            damaged,
            "secret team/tfstate-default-app failed: its state does not decompress"
        );
        let parts = decode(&stack, &[secret(&packed), secret(&packed)])
            .unwrap_err()
            .to_string();
        assert!(parts.contains("has 2 parts"), "{parts}");
    }

    #[test]
    fn addresses_have_no_values() {
        let found = addresses(example().to_string().as_bytes()).unwrap();
        assert_eq!(
            found,
            [
                "data.t_c.read",
                "module.net[\"x\"].t_a.many[\"k\"]",
                "module.net[\"x\"].t_a.many[1]",
                "t_b.one",
            ]
        );
    }
}

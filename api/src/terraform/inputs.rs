//! Inputs of a run: variables, backend, cloud, files.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::EnvVarSource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{TerraformSpec, is_label_value, label_value};
use crate::serialization::{any_json, is_false};

/// The generated backend. Present without fields is not the same as absent: the defaults differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackendConfig {
    /// Path of a kubeconfig for the kubernetes backend.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub config_path: String,
    /// Content of the terraform block; takes precedence over the other fields.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub custom_configuration: String,
    /// No backend file is generated.
    #[serde(default, skip_serializing_if = "is_false")]
    pub disable: bool,
    /// Whether the backend uses the identity of the pod it runs in.
    #[serde(default, skip_serializing_if = "is_false")]
    pub in_cluster_config: bool,
    /// Labels on the state Secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Suffix of the state Secret's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub secret_suffix: String,
}

impl TerraformSpec {
    /// Returns the suffix of the Secret with the state of a stack of this name; `None`: the state may be elsewhere. It is beside the stack
    /// without `backendConfig`, and with one that only sets the suffix.
    #[must_use]
    pub fn state_suffix(&self, stack: &str) -> Option<String> {
        if self.cloud.is_some() || !self.backend_configs_from.is_empty() {
            return None;
        }
        let Some(config) = &self.backend_config else {
            return Some(label_value(stack));
        };
        let with_suffix = BackendConfig {
            secret_suffix: config.secret_suffix.clone(),
            in_cluster_config: config.in_cluster_config,
            ..BackendConfig::default()
        };
        let is_usable = !config.secret_suffix.is_empty() && is_label_value(&config.secret_suffix);
        (*config == with_suffix && is_usable).then(|| config.secret_suffix.clone())
    }
}

/// HCP Terraform or Terraform Enterprise; disables the generated backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cloud {
    /// Host name of the service.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    /// Name of the organization.
    pub organization: String,
    /// Token for the service.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub token: String,
    /// The workspaces to use.
    pub workspaces: CloudWorkspaces,
}

/// Workspaces of the cloud service, by name or by tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloudWorkspaces {
    /// One workspace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// All workspaces with these tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// Kinds of objects with keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum KeySource {
    /// A Secret.
    Secret,
    /// A ConfigMap.
    ConfigMap,
}

/// A Secret or ConfigMap whose pairs become -backend-config arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigSource {
    /// Keys to use. Absent: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// Kind of the object.
    pub kind: KeySource,
    /// Name of the object, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Whether the object may be missing.
    #[serde(default, skip_serializing_if = "is_false")]
    pub optional: bool,
}

/// A Secret or ConfigMap whose pairs become variables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VariablesSource {
    /// Kind of the object.
    pub kind: KeySource,
    /// Name of the object, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Whether the object may be missing.
    #[serde(default, skip_serializing_if = "is_false")]
    pub optional: bool,
    /// Keys to use, each as key or key:variable. Absent: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vars_keys: Vec<String>,
}

/// One input variable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Variable {
    /// Name of the variable.
    pub name: String,
    /// Its value: any JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_json")]
    pub value: Option<serde_json::Value>,
    /// A key of a Secret or ConfigMap with the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<EnvVarSource>,
}

/// A Secret whose values can be used in spec.values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InputSecret {
    /// Its name in templates.
    #[serde(rename = "as")]
    pub alias: String,
    /// Name of the Secret, in the same namespace.
    pub name: String,
}

/// Location of a mapped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum FileLocation {
    /// Below the home directory of the run.
    Home,
    /// Below the module's directory.
    Workspace,
}

/// A key of a Secret that is written to a file before init.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileMapping {
    /// Directory that the path is relative to.
    pub location: FileLocation,
    /// Path of the file.
    #[schemars(extend("pattern" = "^(.?[/_a-zA-Z0-9]{1,})*$"))]
    pub path: String,
    /// The Secret and its key.
    pub secret_ref: FileSecret,
}

/// A key of a Secret in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileSecret {
    /// Key in the Secret.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// Name of the Secret.
    pub name: String,
}

//! Generates `backend_override.tf` from the fields of the spec. Pure.
//!
//! Rules: tofu-controller's pages on custom backends and on the cloud; `in_cluster_config` only in a pod.

use std::fmt::Write;

use sluice_api::reference::ObjectName;
use sluice_api::terraform::{BackendConfig, Cloud, TerraformSpec, label_value};

/// Where the CLI runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CliLocation {
    /// In a pod: the backend may use the pod's identity.
    Pod,
    /// Outside a pod: the backend uses `KUBE_CONFIG_PATH`.
    Outside,
}

/// The backend of stacks that configure none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultBackend {
    /// The state is a Secret beside the stack.
    #[default]
    Kubernetes,
    /// The state is a file (`DISABLE_TF_K8S_BACKEND=1`).
    Local,
}

/// The generated backend of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backend {
    /// Text of `backend_override.tf`; `None`: the module's own backend.
    pub(crate) file: Option<String>,
    /// `cloud` or `backendConfig.disable`: the CLI gets no backend configuration.
    pub(crate) off: bool,
}

/// Returns the default suffix of the Secret with a stack's state: its name. The backend also uses the suffix as a label, so a name
/// that is too long for a label is shortened like those of stored plans.
#[must_use]
pub fn default_suffix(stack: &str) -> String {
    label_value(stack)
}

/// Generates the backend of a stack. `cloud` has precedence over `backendConfig.disable`, and that over the rest.
pub(crate) fn backend(
    spec: &TerraformSpec,
    stack: &ObjectName,
    location: CliLocation,
    default: DefaultBackend,
) -> Backend {
    let generated = |file| Backend {
        file: Some(file),
        off: false,
    };
    match (&spec.backend_config, &spec.cloud, default) {
        (_, Some(cloud), _) => Backend {
            file: Some(cloud_block(cloud)),
            off: true,
        },
        (Some(config), None, _) if config.disable => Backend {
            file: None,
            off: true,
        },
        (Some(config), None, _) if !config.custom_configuration.is_empty() => {
            generated(format!("terraform {{\n{}\n}}\n", config.custom_configuration))
        }
        (Some(config), None, _) => generated(kubernetes(config, &stack.namespace, location)),
        (None, None, DefaultBackend::Local) => {
            generated("terraform {\n  backend \"local\" {\n  }\n}\n".to_owned())
        }
        (None, None, DefaultBackend::Kubernetes) => {
            // Only an absent `backendConfig` gets these defaults, not an empty one.
            let config = BackendConfig {
                secret_suffix: default_suffix(&stack.name),
                in_cluster_config: true,
                ..BackendConfig::default()
            };
            generated(kubernetes(&config, &stack.namespace, location))
        }
    }
}

fn kubernetes(config: &BackendConfig, namespace: &str, location: CliLocation) -> String {
    let mut text = String::from("terraform {\n  backend \"kubernetes\" {\n");
    let in_cluster = config.in_cluster_config && location == CliLocation::Pod;
    line(&mut text, 4, "secret_suffix", 17, &quoted(&config.secret_suffix));
    line(&mut text, 4, "in_cluster_config", 17, &in_cluster.to_string());
    if !config.config_path.is_empty() {
        // An empty path would override KUBE_CONFIG_PATH.
        line(&mut text, 4, "config_path", 17, &quoted(&config.config_path));
    }
    line(&mut text, 4, "namespace", 17, &quoted(namespace));
    if config.labels.is_empty() {
        line(&mut text, 4, "labels", 17, "{}");
    } else {
        line(&mut text, 4, "labels", 17, "{");
        for (key, value) in &config.labels {
            line(&mut text, 6, &quoted(key), 0, &quoted(value));
        }
        text.push_str("    }\n");
    }
    text.push_str("  }\n}\n");
    text
}

fn cloud_block(cloud: &Cloud) -> String {
    let mut text = String::from("terraform {\n  cloud {\n");
    line(&mut text, 4, "organization", 12, &quoted(&cloud.organization));
    text.push_str("\n    workspaces {\n");
    let workspaces = &cloud.workspaces;
    if !workspaces.name.is_empty() {
        line(&mut text, 6, "name", 4, &quoted(&workspaces.name));
    }
    if !workspaces.tags.is_empty() {
        let tags: Vec<_> = workspaces.tags.iter().map(|tag| quoted(tag)).collect();
        line(&mut text, 6, "tags", 4, &format!("[{}]", tags.join(", ")));
    }
    text.push_str("    }\n");
    for (name, value) in [("hostname", &cloud.hostname), ("token", &cloud.token)] {
        if !value.is_empty() {
            line(&mut text, 4, name, 8, &quoted(value));
        }
    }
    text.push_str("  }\n}\n");
    text
}

/// Appends `<indent><padded name> = <value>`.
fn line(text: &mut String, indent: usize, name: &str, width: usize, value: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{:indent$}{name:width$} = {value}", "");
}

/// Returns the text as a string literal of HCL, with quotes, backslashes, line ends and template markers escaped.
fn quoted(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 2);
    for letter in text.chars() {
        match letter {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            other => escaped.push(other),
        }
    }
    format!("\"{}\"", escaped.replace("${", "$${").replace("%{", "%%{"))
}

#[cfg(test)]
mod tests;

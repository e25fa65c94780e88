//! The generated backend: `backend_override.tf`, exactly as the fields of the spec say. Pure.
//!
//! Rules: tofu-controller's pages on custom backends and on the cloud; `in_cluster_config` only where there is a cluster.

use sluice_api::terraform::{BackendConfig, Cloud, TerraformSpec, label_value};
use std::fmt::Write;

/// Where the CLI runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a pod: the backend may use the pod's identity.
    Pod,
    /// Anywhere else: the backend uses `KUBE_CONFIG_PATH`.
    Outside,
}

/// The backend of a stack that says nothing of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultBackend {
    /// The state is a Secret beside the stack.
    #[default]
    Kubernetes,
    /// The state is a file, as `DISABLE_TF_K8S_BACKEND=1` wants it.
    Local,
}

/// What is generated for a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Text of `backend_override.tf`; absent for the module's own backend.
    pub file: Option<String>,
    /// `cloud` or `backendConfig.disable`: no backend is configured from here.
    pub off: bool,
}

/// A stack, as its backend knows it.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// The stack's name, the suffix of its state unless it says otherwise.
    pub name: &'a str,
    /// Its namespace, where its state lies.
    pub namespace: &'a str,
}

/// The suffix of the Secret that holds the state of a stack which names none: its name. The backend makes a label of it, so a name
/// that is too long for one is shortened as those of stored plans are: with the whole name no state was ever written.
#[must_use]
pub fn default_suffix(stack: &str) -> String {
    label_value(stack)
}

/// The backend of a stack. `cloud` beats `backendConfig.disable`, which beats the rest.
#[must_use]
pub fn backend(spec: &TerraformSpec, stack: Named<'_>, place: Place, default: DefaultBackend) -> Backend {
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
        (Some(config), None, _) => generated(kubernetes(config, stack.namespace, place)),
        (None, None, DefaultBackend::Local) => {
            generated("terraform {\n  backend \"local\" {\n  }\n}\n".to_owned())
        }
        (None, None, DefaultBackend::Kubernetes) => {
            // Absent is not the same as empty: the suffix and the pod's identity are filled in here only.
            let config = BackendConfig {
                secret_suffix: default_suffix(stack.name),
                in_cluster_config: true,
                ..BackendConfig::default()
            };
            generated(kubernetes(&config, stack.namespace, place))
        }
    }
}

fn kubernetes(config: &BackendConfig, namespace: &str, place: Place) -> String {
    let mut text = String::from("terraform {\n  backend \"kubernetes\" {\n");
    let in_cluster = config.in_cluster_config && place == Place::Pod;
    line(&mut text, 4, "secret_suffix", 17, &quoted(&config.secret_suffix));
    line(&mut text, 4, "in_cluster_config", 17, &in_cluster.to_string());
    if !config.config_path.is_empty() {
        // An empty one would hide KUBE_CONFIG_PATH from the backend.
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

/// `<indent><name padded> = <value>`.
fn line(text: &mut String, indent: usize, name: &str, width: usize, value: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{:indent$}{name:width$} = {value}", "");
}

/// A string literal of HCL: quotes, backslashes, line ends and the beginnings of templates are escaped.
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

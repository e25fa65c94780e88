//! The Secrets with states that the kubernetes backend selects by labels of the spec: the generated backend, and one of
//! `backendConfig.customConfiguration`. Pure.

use std::collections::{BTreeMap, BTreeSet};

use hcl_edit::expr::ObjectKey;
use hcl_edit::structure::Body;
use sluice_api::terraform::{BackendConfig, TerraformSpec};
use sluice_tf_core::bundle::StateSecrets;

/// Arguments of the kubernetes backend by which it uses another state, or selects it by other labels.
const STATE_ARGUMENTS: [&str; 3] = ["labels", "namespace", "secret_suffix"];

/// Longest custom configuration that is parsed, in bytes.
const LENGTH_LIMIT: usize = 64 * 1024;
/// How deep it may nest, since the parser is recursive. That of a backend has three levels, but the lines of a PEM block count as signs.
const DEPTH_LIMIT: usize = 16;

/// The kubernetes backend of a spec.
struct KubernetesBackend {
    suffix: String,
    labels: BTreeMap<String, String>,
}

/// Returns the Secrets with the states that a run uses, if labels of the spec select them and they are in the API and the namespace of
/// the stack. `arguments` are those of `backendConfigsFrom`.
pub(crate) fn state_secrets(
    spec: &TerraformSpec,
    namespace: &str,
    arguments: &BTreeMap<String, String>,
) -> Option<StateSecrets> {
    let moves_state =
        |argument: &String| STATE_ARGUMENTS.contains(&argument.as_str()) || may_name_api(argument);
    if arguments.keys().any(moves_state) {
        return None;
    }
    labelled_states(spec, namespace)
}

/// Returns the Secrets with states that the backend of a spec selects by labels, without regard to `backendConfigsFrom`. `None`: it
/// selects none by labels, or may use another API or namespace.
#[must_use]
pub fn labelled_states(spec: &TerraformSpec, namespace: &str) -> Option<StateSecrets> {
    let config = spec.backend_config.as_ref();
    let config = config.filter(|config| !config.disable && spec.cloud.is_none())?;
    let backend = if config.custom_configuration.is_empty() {
        generated(config)
    } else {
        parse_custom(&config.custom_configuration, namespace)
    };
    let backend = backend.filter(|backend| !backend.labels.is_empty())?;
    let workspaces = BTreeSet::from(["default", spec.workspace_name()]);
    let names = workspaces.into_iter();
    Some(StateSecrets {
        names: names
            .map(|workspace| format!("tfstate-{workspace}-{}", backend.suffix))
            .collect(),
        labels: backend.labels,
    })
}

/// Returns whether an argument of the backend may name another API.
fn may_name_api(argument: &str) -> bool {
    argument == "host" || argument.starts_with("config_")
}

fn generated(config: &BackendConfig) -> Option<KubernetesBackend> {
    config.config_path.is_empty().then(|| KubernetesBackend {
        suffix: config.secret_suffix.clone(),
        labels: config.labels.clone(),
    })
}

/// Returns the kubernetes backend of a custom configuration. `None`: there is no such backend, it may use another API or namespace, or
/// a value is not a literal. The CLI takes the namespace from its environment if the configuration has none.
fn parse_custom(text: &str, namespace: &str) -> Option<KubernetesBackend> {
    if text.len() > LENGTH_LIMIT || depth(text) > DEPTH_LIMIT {
        return None;
    }
    let body: Body = text.parse().ok()?;
    let mut blocks = body.get_blocks("backend");
    let block = blocks
        .next()
        .filter(|block| block.has_exact_labels(&["kubernetes"]))?;
    let mut arguments = block.body.attributes();
    if blocks.next().is_some() || arguments.any(|argument| may_name_api(argument.key.as_str())) {
        return None;
    }
    let value = |name: &str| block.body.get_attribute(name).map(|argument| &argument.value);
    if value("namespace")?.as_str()? != namespace {
        return None;
    }
    let labels = value("labels")?.as_object()?.iter();
    let labels =
        labels.map(|(key, value)| Some((literal(key)?.to_owned(), value.expr().as_str()?.to_owned())));
    Some(KubernetesBackend {
        suffix: value("secret_suffix")?.as_str()?.to_owned(),
        labels: labels.collect::<Option<_>>()?,
    })
}

/// Returns how deep a text may nest at most: counts brackets, the longest row of signs, and question marks, even in strings.
fn depth(text: &str) -> usize {
    let (mut brackets, mut deepest, mut signs, mut questions) = (0_usize, 0, 0_usize, 0_usize);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => brackets += 1,
            b')' | b']' | b'}' => brackets = brackets.saturating_sub(1),
            b'?' => questions += 1,
            _ => {}
        }
        signs = match byte {
            b'!' | b'-' => signs + 1,
            _ if byte.is_ascii_whitespace() => signs,
            _ => 0,
        };
        deepest = deepest.max(brackets).max(signs).max(questions);
    }
    deepest
}

/// Returns the key of an object, if it is a name or a literal.
fn literal(key: &ObjectKey) -> Option<&str> {
    match key {
        ObjectKey::Ident(name) => Some(name.as_str()),
        ObjectKey::Expression(key) => key.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn of(workspace: &str, config: &Value, arguments: &[(&str, &str)]) -> Option<StateSecrets> {
        let spec = json!({ "interval": "1m", "sourceRef": { "kind": "GitRepository", "name": "s" },
            "workspace": workspace, "backendConfig": config });
        state_secrets(&serde_json::from_value(spec).unwrap(), "team", &map(arguments))
    }

    fn names(found: Option<StateSecrets>) -> Vec<String> {
        found.map_or_else(Vec::new, |found| found.names.into_iter().collect())
    }

    #[test]
    fn labels_select_the_secrets_of_the_generated_backend() {
        let labelled = json!({ "secretSuffix": "net", "labels": { "a": "b" } });
        let blue = of("blue", &labelled, &[]);
        assert_eq!(blue.as_ref().unwrap().labels, map(&[("a", "b")]));
        // `init` runs in the workspace `default`.
        assert_eq!(names(blue), ["tfstate-blue-net", "tfstate-default-net"]);
        for workspace in ["", "default"] {
            assert_eq!(names(of(workspace, &labelled, &[])), ["tfstate-default-net"]);
        }
        assert_eq!(of("blue", &json!({ "secretSuffix": "net" }), &[]), None);
        for (field, value) in [("configPath", json!("/other")), ("disable", json!(true))] {
            let mut config = labelled.clone();
            config[field] = value;
            assert_eq!(of("blue", &config, &[]), None, "{field}");
        }
    }

    #[test]
    fn arguments_may_move_the_state() {
        let labelled = json!({ "secretSuffix": "net", "labels": { "a": "b" } });
        let custom = custom_of("secret_suffix = \"net\"\n namespace = \"team\"\n labels = { a = \"b\" }");
        for config in [labelled, custom] {
            for argument in ["token", "insecure", "in_cluster_config"] {
                let found = names(of("default", &config, &[(argument, "x")]));
                assert_eq!(found, ["tfstate-default-net"], "{argument} moves no state");
            }
            for argument in [
                "secret_suffix",
                "namespace",
                "labels",
                "host",
                "config_path",
                "config_context",
            ] {
                let arguments = [("token", "x"), (argument, "x")];
                assert_eq!(of("default", &config, &arguments), None, "{argument}");
            }
        }
    }

    fn custom_of(arguments: &str) -> Value {
        json!({ "customConfiguration": format!("backend \"kubernetes\" {{\n {arguments}\n}}") })
    }

    #[test]
    fn labels_select_the_secrets_of_a_custom_kubernetes_backend() {
        let place = "secret_suffix = \"net\"\n namespace = \"team\"\n in_cluster_config = true";
        let labels = "labels = {\n  a = \"b\"\n  \"example.com/c\" = \"d\"\n }";
        let found = of("blue", &custom_of(&format!("{place}\n {labels}")), &[]);
        let expected = map(&[("a", "b"), ("example.com/c", "d")]);
        assert_eq!(found.as_ref().unwrap().labels, expected);
        assert_eq!(names(found), ["tfstate-blue-net", "tfstate-default-net"]);
        for unknown in [
            // No labels.
            place.to_owned(),
            format!("{place}\n labels = {{}}"),
            // Another API or namespace, or perhaps.
            format!("{place}\n {labels}\n config_path = \"/other\""),
            format!("{place}\n {labels}\n host = \"https://other\""),
            format!("secret_suffix = \"net\"\n {labels}"),
            format!("secret_suffix = \"net\"\n namespace = \"other\"\n {labels}"),
            // Not literals: OpenTofu evaluates them.
            format!("secret_suffix = var.name\n namespace = \"team\"\n {labels}"),
            format!("{place}\n labels = {{ a = var.b }}"),
            format!("{place}\n labels = {{ (var.a) = \"b\" }}"),
            format!("{place}\n labels = merge({{}}, {{ a = \"b\" }})"),
            // It does not parse.
            format!("{place}\n {labels}\n}}\n}}"),
        ] {
            assert_eq!(of("blue", &custom_of(&unknown), &[]), None, "{unknown}");
        }
    }

    #[test]
    fn a_deeply_nested_configuration_is_not_parsed() {
        let of = |value: &str| {
            let text = format!(
                "secret_suffix = \"net\"\n namespace = \"team\"\n labels = {{ a = \"b\" }}\n token = {value}"
            );
            of("", &custom_of(&text), &[]).is_some()
        };
        assert!(of("\"-----BEGIN CERTIFICATE-----\""));
        for (open, close) in [("(", ")"), ("[", "]"), ("! ", ""), ("true ? ", " : 1")] {
            let nested = format!("{}1{}", open.repeat(1000), close.repeat(1000));
            assert!(!of(&nested), "{open}");
        }
        assert!(!of(&format!("\"{}\"", "x".repeat(LENGTH_LIMIT))));
    }

    #[test]
    fn labels_of_another_custom_backend_select_nothing() {
        let kubernetes = "backend \"kubernetes\" {\n secret_suffix = \"net\"\n namespace = \"team\"\n labels = { a = \"b\" }\n}\n";
        let of = |text: &str| of("", &json!({ "customConfiguration": text }), &[]);
        assert!(of(kubernetes).is_some());
        for text in [
            "backend \"s3\" {}".to_owned(),
            kubernetes.replace("backend \"kubernetes\"", "backend \"kubernetes\" \"x\""),
            kubernetes.repeat(2),
            format!("cloud {{\n {kubernetes}}}\n"),
        ] {
            assert_eq!(of(&text), None, "{text}");
        }
    }
}

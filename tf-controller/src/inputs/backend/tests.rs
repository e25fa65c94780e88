use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn stack() -> ObjectName {
    ObjectName {
        namespace: "team".into(),
        name: "app".into(),
    }
}

fn generated(more: Value, location: CliLocation, default: DefaultBackend) -> Backend {
    let mut spec = json!({ "interval": "1m", "sourceRef": { "kind": "GitRepository", "name": "s" } });
    let Value::Object(more) = more else {
        panic!("an object")
    };
    spec.as_object_mut().unwrap().extend(more);
    backend(
        &serde_json::from_value(spec).unwrap(),
        &stack(),
        location,
        default,
    )
}

fn describe(more: Value, location: CliLocation) -> String {
    let output = generated(more, location, DefaultBackend::Kubernetes);
    output.file.unwrap_or_else(|| "(none)".to_owned()) + if output.off { "(off)\n" } else { "" }
}

#[test]
fn without_a_backend_config_the_state_has_the_name_of_the_stack() {
    insta::assert_snapshot!(describe(json!({}), CliLocation::Pod), @r#"
    terraform {
      backend "kubernetes" {
        secret_suffix     = "app"
        in_cluster_config = true
        namespace         = "team"
        labels            = {}
      }
    }
    "#);
    assert!(describe(json!({}), CliLocation::Outside).contains("in_cluster_config = false"));
}

#[test]
fn an_empty_backend_config_is_not_the_default_one() {
    insta::assert_snapshot!(describe(json!({ "backendConfig": {} }), CliLocation::Pod), @r#"
    terraform {
      backend "kubernetes" {
        secret_suffix     = ""
        in_cluster_config = false
        namespace         = "team"
        labels            = {}
      }
    }
    "#);
}

#[test]
fn the_fields_of_a_backend_config_are_written_as_they_are() {
    let config = json!({ "backendConfig": { "secretSuffix": "net", "inClusterConfig": true, "configPath": "/k/config",
        "labels": { "b": "two", "a/x": "o\"ne" } } });
    insta::assert_snapshot!(describe(config.clone(), CliLocation::Pod), @r#"
    terraform {
      backend "kubernetes" {
        secret_suffix     = "net"
        in_cluster_config = true
        config_path       = "/k/config"
        namespace         = "team"
        labels            = {
          "a/x" = "o\"ne"
          "b" = "two"
        }
      }
    }
    "#);
    let outside = describe(config, CliLocation::Outside);
    assert!(outside.contains("in_cluster_config = false"), "outside a pod");
}

#[test]
fn a_custom_configuration_is_taken_verbatim_and_wins() {
    let config = json!({ "backendConfig": { "secretSuffix": "net",
        "customConfiguration": "  backend \"s3\" {\n    key = \"${x}\"\n  }" } });
    insta::assert_snapshot!(describe(config, CliLocation::Pod), @r#"
    terraform {
      backend "s3" {
        key = "${x}"
      }
    }
    "#);
}

#[test]
fn the_cloud_block_contains_only_set_fields() {
    let cloud = json!({ "cloud": { "organization": "org", "workspaces": { "name": "net" },
        "hostname": "tfe.example", "token": "t" } });
    insta::assert_snapshot!(describe(cloud, CliLocation::Pod), @r#"
    terraform {
      cloud {
        organization = "org"

        workspaces {
          name = "net"
        }
        hostname = "tfe.example"
        token    = "t"
      }
    }
    (off)
    "#);
    let tags = json!({ "cloud": { "organization": "org", "workspaces": { "tags": ["a", "b"] } },
        "backendConfig": { "secretSuffix": "ignored", "disable": true } });
    insta::assert_snapshot!(describe(tags, CliLocation::Pod), @r#"
    terraform {
      cloud {
        organization = "org"

        workspaces {
          tags = ["a", "b"]
        }
      }
    }
    (off)
    "#);
}

#[test]
fn a_disabled_backend_leaves_the_modules_own() {
    let config = json!({ "backendConfig": { "disable": true, "customConfiguration": "x" } });
    assert_eq!(describe(config, CliLocation::Pod), "(none)(off)\n");
}

#[test]
fn the_default_kubernetes_backend_can_be_disabled() {
    let output = generated(json!({}), CliLocation::Pod, DefaultBackend::Local);
    insta::assert_snapshot!(output.file.unwrap(), @r#"
    terraform {
      backend "local" {
      }
    }
    "#);
    assert!(!output.off);
    let own = json!({ "backendConfig": { "secretSuffix": "x" } });
    let output = generated(own, CliLocation::Pod, DefaultBackend::Local);
    assert!(output.file.unwrap().contains("kubernetes"));
}

proptest! {
    /// A parser of HCL reads the quoted text back.
    #[test]
    fn text_cannot_escape_its_quotes(text in "[ -~\n\r\t\u{e9}]{0,40}") {
        let body: hcl_edit::structure::Body = format!("a = {}\n", quoted(&text)).parse().unwrap();
        let value = &body.get_attribute("a").unwrap().value;
        let plain = value.as_str().map(str::to_owned);
        // A literal with an escaped template is read as a template of one literal.
        let template = value.as_string_template().map(|template| {
            template.iter().map(|element| element.as_literal().map_or("?", |l| l.value().as_str())).collect::<String>()
        });
        prop_assert_eq!(plain.or(template).unwrap(), text);
    }
}

/// The examples of `docs/guides/backends.md` and `docs/guides/execution-environment.md` use fields of the API, and their backends
/// are valid HCL.
#[test]
fn the_examples_of_the_docs_are_specs() {
    let backends = include_str!("../../../../docs/guides/backends.md");
    let environment = include_str!("../../../../docs/guides/execution-environment.md");
    let mut examples = 0;
    let parts = [backends, environment]
        .into_iter()
        .flat_map(|page| page.split("```yaml\n").skip(1));
    for part in parts {
        let text = part.split("```").next().unwrap();
        let example: Value = serde_yaml_ng::from_str(text).unwrap();
        let mut whole = json!({ "interval": "1m", "sourceRef": { "kind": "GitRepository", "name": "s" } });
        let given = example["spec"].as_object().unwrap().clone();
        whole.as_object_mut().unwrap().extend(given.clone());
        let spec: TerraformSpec = serde_json::from_value(whole).unwrap();
        let read = serde_json::to_value(&spec).unwrap();
        assert_contained(&Value::Object(given), &read, text);
        if let Some(file) = backend(&spec, &stack(), CliLocation::Pod, DefaultBackend::Kubernetes).file {
            let parsed: Result<hcl_edit::structure::Body, _> = file.parse();
            assert!(parsed.is_ok(), "{file}");
        }
        examples += 1;
    }
    assert!(examples >= 11, "{examples}");
}

/// Asserts that `read` contains everything of `given` except empty texts.
fn assert_contained(given: &Value, read: &Value, text: &str) {
    match given {
        Value::Object(members) => {
            for (name, member) in members.iter().filter(|(_, member)| **member != json!("")) {
                assert_contained(
                    member,
                    read.get(name).unwrap_or_else(|| panic!("{name}:\n{text}")),
                    text,
                );
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                assert_contained(item, &read[index], text);
            }
        }
        other => assert_eq!(other, read, "{text}"),
    }
}

//! Tests of the generated definitions with tables of the two upstream APIs: names, columns, defaults, rules, size.

mod defaults;
mod rules;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use sluice_api::crds;
use sluice_api::terraform::v1alpha1;

/// Returns the definition of a kind as JSON, or `null`.
fn definition(kind: &str) -> Value {
    let found = crds().into_iter().find(|crd| crd.spec.names.kind == kind);
    serde_json::to_value(found).unwrap_or_default()
}

/// Returns one version of a definition, or `null`.
fn version(kind: &str, name: &str) -> Value {
    let versions = definition(kind)["spec"]["versions"].clone();
    let mut found = versions.as_array().into_iter().flatten();
    found
        .find(|version| version["name"] == name)
        .cloned()
        .unwrap_or_default()
}

/// Returns the schema at a path such as `spec.healthChecks[].timeout`.
fn schema<'a>(version: &'a Value, path: &str) -> Option<&'a Value> {
    let root = version.pointer("/schema/openAPIV3Schema")?;
    path.split('.').try_fold(root, |at, name| {
        let field = at.get("properties")?.get(name.trim_end_matches("[]"))?;
        if name.ends_with("[]") {
            field.get("items")
        } else {
            Some(field)
        }
    })
}

/// Visits each schema with its path.
fn walk(schema: &Value, path: &str, visit: &mut dyn FnMut(&str, &Value)) {
    visit(path, schema);
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let separator = if path.is_empty() { "" } else { "." };
        walk(field, &format!("{path}{separator}{name}"), visit);
    }
    if schema["items"].is_object() {
        walk(&schema["items"], &format!("{path}[]"), visit);
    }
    if schema["additionalProperties"].is_object() {
        walk(&schema["additionalProperties"], &format!("{path}{{}}"), visit);
    }
}

fn every(version: &Value) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    walk(&version["schema"]["openAPIV3Schema"], "", &mut |path, schema| {
        all.push((path.to_owned(), schema.clone()));
    });
    all
}

#[test]
fn v1alpha1_lacks_only_the_fields_added_in_v1alpha2() {
    let paths = |name| {
        every(&version("Terraform", name))
            .into_iter()
            .map(|(path, _)| path)
            .collect::<BTreeSet<_>>()
    };
    let (newer, older) = (paths("v1alpha2"), paths("v1alpha1"));
    assert!(older.is_subset(&newer));
    let below = |path: &String| {
        v1alpha1::ABSENT_FIELDS
            .iter()
            .any(|absent| path.starts_with(absent))
    };
    assert!(newer.difference(&older).all(below));
    for absent in v1alpha1::ABSENT_FIELDS {
        assert!(newer.contains(*absent) && !older.contains(*absent), "{absent}");
    }
}

#[test]
fn names_and_versions_are_upstreams() {
    let names = |kind: &str| definition(kind)["spec"]["names"].clone();
    assert_eq!(
        names("GitRepository"),
        json!({ "kind": "GitRepository", "listKind": "GitRepositoryList", "plural": "gitrepositories",
                "singular": "gitrepository", "shortNames": ["gitrepo"], "categories": ["all", "fluxcd", "fluxcd-sources"] })
    );
    assert_eq!(
        names("Terraform"),
        json!({ "kind": "Terraform", "listKind": "TerraformList", "plural": "terraforms", "singular": "terraform",
                "shortNames": ["tf"] })
    );
    assert_eq!(names("TerraformRun")["shortNames"], json!(["tfrun"]));
    let about = |name| {
        let version = version("Terraform", name);
        ["served", "storage", "deprecated", "deprecationWarning"].map(|field| version[field].clone())
    };
    assert_eq!(
        about("v1alpha2"),
        [json!(true), json!(true), Value::Null, Value::Null]
    );
    let warning = "v1alpha1 Terraform is deprecated, upgrade to v1alpha2";
    assert_eq!(
        about("v1alpha1"),
        [json!(true), json!(false), json!(true), json!(warning)]
    );
    assert_eq!(
        version("GitRepository", "v1")["subresources"],
        json!({ "status": {} })
    );
}

#[test]
fn columns_are_upstreams() {
    // Those of `-o wide` are in brackets: they follow upstream's, which keep their positions.
    let stack = "Ready Status Age [Reason] [Plan] [Lock] [Suspended] [Applied]";
    for (kind, name, expected) in [
        ("GitRepository", "v1", "URL Age Ready Status"),
        ("Terraform", "v1alpha2", stack),
        ("Terraform", "v1alpha1", stack),
        (
            "TerraformRun",
            "v1alpha1",
            "Terraform Action Trigger Phase Changes Age Message [Reason] [Revision] [Plan] [Approved By] [Started] [Finished] [Subject]",
        ),
    ] {
        let columns = version(kind, name)["additionalPrinterColumns"].clone();
        let names: Vec<_> = columns
            .as_array()
            .unwrap()
            .iter()
            .map(
                |column| match (column["name"].as_str().unwrap(), &column["priority"]) {
                    (name, Value::Null) => name.to_owned(),
                    (name, priority) => {
                        assert_eq!(priority, 1, "{name}");
                        format!("[{name}]")
                    }
                },
            )
            .collect();
        assert_eq!(names.join(" "), expected, "{kind}");
    }
}

#[test]
fn columns_name_fields_of_the_schema() {
    for (kind, name) in [
        ("GitRepository", "v1"),
        ("Terraform", "v1alpha2"),
        ("Terraform", "v1alpha1"),
        ("TerraformRun", "v1alpha1"),
        ("PlanApproval", "v1alpha1"),
    ] {
        let version = version(kind, name);
        let columns = version["additionalPrinterColumns"].clone();
        for column in columns.as_array().unwrap() {
            let path = column["jsonPath"].as_str().unwrap().trim_start_matches('.');
            // The path up to a filter.
            let field = path.split('[').next().unwrap();
            let is_known = field.starts_with("metadata.") || schema(&version, field).is_some();
            assert!(is_known, "{kind} {name}: {path}");
        }
    }
}

#[test]
fn schemas_are_structural_and_never_nullable() {
    for crd in crds() {
        for version in serde_json::to_value(&crd).unwrap()["spec"]["versions"]
            .as_array()
            .unwrap()
        {
            for (path, schema) in every(version) {
                for word in ["nullable", "oneOf", "anyOf", "allOf", "not", "$ref"] {
                    assert!(schema.get(word).is_none(), "{path} has {word}");
                }
                let free = [
                    "x-kubernetes-int-or-string",
                    "x-kubernetes-preserve-unknown-fields",
                ];
                assert!(
                    schema.get("type").is_some() || free.iter().any(|word| schema[*word] == true),
                    "{path}"
                );
            }
        }
    }
}

#[test]
fn a_client_side_apply_can_carry_each_definition() {
    // `kubectl apply` stores the whole object in an annotation; annotations are limited to 256 KiB in total.
    for crd in crds() {
        let bytes = serde_json::to_string(&crd).unwrap().len();
        assert!(bytes < 250 * 1024, "{} has {bytes} bytes", crd.spec.names.kind);
    }
}

#[test]
fn the_committed_files_are_the_generated_ones() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config");
    let (required, optional) = (
        config.join("crd/bases"),
        config.join("components/repo-controller/crd"),
    );
    let check = |required: &Path, optional: &Path| {
        let check = std::process::Command::new(env!("CARGO_BIN_EXE_crdgen"))
            .arg("--check")
            .args([Path::new("--dir"), required, Path::new("--repo-dir"), optional])
            .output();
        check.unwrap()
    };
    let output = check(&required, &optional);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let other = tempfile::tempdir().unwrap();
    for (required, optional) in [(other.path(), &*optional), (&*required, other.path())] {
        assert_eq!(
            check(required, optional).status.code(),
            Some(1),
            "a missing file is a difference"
        );
    }
}

#[test]
fn no_word_of_the_files_is_read_as_a_boolean_by_kubectl() {
    // kubectl reads YAML 1.1, where an unquoted `no` is false.
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/crd/bases");
    for file in std::fs::read_dir(dir).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for line in text.lines() {
            let word = line.rsplit([' ', '-']).next().unwrap_or_default().to_lowercase();
            let bare = line.trim_start() == format!("- {word}")
                || line.trim_start().ends_with(&format!("default: {word}"));
            assert!(
                !(bare && ["yes", "no", "on", "off", "y", "n"].contains(&word.as_str())),
                "{line}"
            );
            let key = line.trim_start_matches([' ', '-']).split(':').next();
            assert!(
                !key.is_some_and(|key| ["yes", "no", "on", "off", "y", "n"].contains(&key)),
                "{line}"
            );
        }
    }
}

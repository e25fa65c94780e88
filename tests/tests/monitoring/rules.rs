//! The alerts: promtool checks and tests them, and each has a runbook.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::{build, object, promtool, read, root};

const UNIT_TESTS: &str = "tests/tests/monitoring/alerts.yaml";
const GUIDE: &str = "docs/guides/monitoring.md";

fn alerts() -> Vec<Value> {
    let rules = object("PrometheusRule");
    let groups = rules["spec"]["groups"].as_array().unwrap();
    groups
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap().clone())
        .collect()
}

fn name(alert: &Value) -> &str {
    alert["alert"].as_str().unwrap()
}

/// Returns the expressions of all alerts with their names.
pub(crate) fn expressions() -> Vec<(String, String)> {
    let expression = |alert: &Value| (name(alert).to_owned(), alert["expr"].as_str().unwrap().to_owned());
    alerts().iter().map(expression).collect()
}

/// Runs promtool's unit tests on these rules.
fn test_rules(spec: &Value) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    // Every JSON document is a YAML document.
    fs::write(folder.path().join("rules.yaml"), spec.to_string()).unwrap();
    fs::write(folder.path().join("alerts.yaml"), read(UNIT_TESTS)).unwrap();
    promtool(folder.path(), &["test", "rules", "alerts.yaml"])
}

#[test]
fn alerts_are_valid_and_fire_as_tested() {
    let rules = object("PrometheusRule");
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("rules.yaml"), rules["spec"].to_string()).unwrap();
    let args = ["check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"];
    let (valid, output) = promtool(folder.path(), &args);
    assert!(valid, "{output}");
    let (passed, output) = test_rules(&rules["spec"]);
    assert!(passed, "{output}");
}

/// The unit tests notice an alert that is always quiet or always fires. All alerts are changed at once, because each run takes
/// seconds: promtool reports each failed case of each alert.
#[test]
fn the_tests_notice_each_changed_alert() {
    let rules = object("PrometheusRule");
    for expression in ["vector(0) > 1", "vector(1)"] {
        let mut changed = rules["spec"].clone();
        let groups = changed["groups"].as_array_mut().unwrap();
        for rule in groups
            .iter_mut()
            .flat_map(|group| group["rules"].as_array_mut().unwrap())
        {
            rule["expr"] = json!(expression);
            rule["for"] = json!("0s");
        }
        let (passed, output) = test_rules(&changed);
        assert!(!passed, "{expression}: {output}");
        for alert in alerts() {
            let failure = format!("alertname: {},", name(&alert));
            assert!(output.contains(&failure), "{failure} {expression}: {output}");
        }
    }
}

#[test]
fn each_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not() {
    let tests: Value = serde_yaml_ng::from_str(&read(UNIT_TESTS)).unwrap();
    let mut tested: BTreeMap<String, BTreeSet<bool>> = BTreeMap::new();
    for test in tests["tests"].as_array().unwrap() {
        for case in test["alert_rule_test"].as_array().unwrap() {
            let fires = !case["exp_alerts"].as_array().unwrap().is_empty();
            let alert = case["alertname"].as_str().unwrap().to_owned();
            tested.entry(alert).or_default().insert(fires);
        }
    }
    let both = BTreeSet::from([false, true]);
    let expected: BTreeMap<_, _> = alerts()
        .iter()
        .map(|alert| (name(alert).to_owned(), both.clone()))
        .collect();
    assert_eq!(tested, expected);
}

/// Returns the runbooks of the guide by alert.
fn runbooks(guide: &str) -> BTreeMap<String, String> {
    let sections = guide.split("\n### ").skip(1);
    sections
        .map(|section| section.split_once('\n').unwrap())
        .map(|(alert, text)| (alert.to_owned(), text.to_owned()))
        .collect()
}

#[test]
fn each_alert_has_a_severity_and_a_runbook_with_commands() {
    let runbooks = runbooks(&read(GUIDE));
    let mut found = BTreeSet::new();
    for alert in alerts() {
        let name = name(&alert);
        found.insert(name.to_owned());
        let severity = alert["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning", "info"].contains(&severity), "{name}");
        for annotation in ["summary", "description"] {
            let text = alert["annotations"][annotation].as_str().unwrap();
            assert!(!text.is_empty(), "{name}");
        }
        let url = format!(
            "https://sluice.invalid/guides/monitoring.html#{}",
            name.to_lowercase()
        );
        assert_eq!(alert["annotations"]["runbook_url"], url.as_str());
        let runbook = runbooks
            .get(name)
            .unwrap_or_else(|| panic!("{name} has no runbook"));
        assert!(runbook.contains("```text\nkubectl"), "{name}");
    }
    let described: BTreeSet<_> = runbooks.into_keys().collect();
    assert_eq!(described, found, "a runbook without an alert");
}

/// The kustomization in the guide sets the host of the runbooks.
#[test]
fn the_host_of_the_runbooks_can_be_set_as_in_the_guide() {
    let guide = read(GUIDE);
    let example = guide.split("```yaml\n").nth(1).unwrap();
    let example = example.split("```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    symlink(root().join("config"), folder.path().join("config")).unwrap();
    let own = folder.path().join("own");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("kustomization.yaml"), example).unwrap();
    let objects = build(&own);
    let rules = objects.iter().find(|object| object["kind"] == "PrometheusRule");
    for group in rules.unwrap()["spec"]["groups"].as_array().unwrap() {
        for rule in group["rules"].as_array().unwrap() {
            let url = rule["annotations"]["runbook_url"].as_str().unwrap();
            let page = "https://docs.example.com/guides/monitoring.html#";
            assert_eq!(url, format!("{page}{}", name(rule).to_lowercase()));
        }
    }
    let is_local = |object: &&Value| object["metadata"]["name"] == "runbooks";
    assert!(
        !objects.iter().any(|object| is_local(&object)),
        "it is not applied"
    );
}

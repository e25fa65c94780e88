//! The dashboard: its layout, its variables and its expressions.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use sluice_harness::gobuild::{self, Tool};

use crate::{object, promtool};

/// Columns of Grafana's grid.
const COLUMNS: u64 = 24;

/// Returns the dashboard in the ConfigMap that Grafana's sidecar reads.
fn dashboard() -> Value {
    let map = object("ConfigMap");
    assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
    let data = map["data"].as_object().unwrap();
    assert_eq!(data.len(), 1);
    serde_json::from_str(data.values().next().unwrap().as_str().unwrap()).unwrap()
}

fn panels(dashboard: &Value) -> &Vec<Value> {
    dashboard["panels"].as_array().unwrap()
}

fn targets(panel: &Value) -> impl Iterator<Item = &Value> {
    panel["targets"].as_array().into_iter().flatten()
}

/// Returns the expressions of all panels with their titles.
pub(crate) fn expressions() -> Vec<(String, String)> {
    let dashboard = dashboard();
    let of_panel = |panel: &Value| -> Vec<_> {
        let title = panel["title"].as_str().unwrap();
        let text = |target: &Value| target["expr"].as_str().unwrap().to_owned();
        targets(panel)
            .map(|target| (title.to_owned(), text(target)))
            .collect()
    };
    panels(&dashboard).iter().flat_map(of_panel).collect()
}

#[test]
fn panels_have_their_own_ids_and_titles_and_a_kind_of_grafana() {
    let dashboard = dashboard();
    assert_eq!(
        (&dashboard["title"], &dashboard["uid"]),
        (&json!("Sluice"), &json!("sluice"))
    );
    assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 36);
    let (mut ids, mut titles) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}");
        assert!(titles.insert(title), "{title}");
        let kind = panel["type"].as_str().unwrap();
        if kind == "row" {
            assert!(targets(panel).next().is_none(), "{title}");
            continue;
        }
        assert!(["stat", "timeseries", "table"].contains(&kind), "{title}: {kind}");
        assert!(!panel["description"].as_str().unwrap().is_empty(), "{title}");
        let references: BTreeSet<_> = targets(panel)
            .map(|target| target["refId"].as_str().unwrap())
            .collect();
        assert!(
            !references.is_empty() && references.len() == targets(panel).count(),
            "{title}"
        );
    }
}

/// Returns what Grafana's schema refuses in a dashboard.
fn schema_errors(dashboard: &Value) -> String {
    let check = gobuild::build(Tool::DashboardCheck, &mut |line| eprintln!("{line}")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dashboard.json");
    fs::write(&file, dashboard.to_string()).unwrap();
    let output = Command::new(check).arg(file).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.success(), errors.is_empty(), "{errors}");
    errors
}

#[test]
fn the_schema_of_grafana_admits_the_dashboard_and_refuses_changed_ones() {
    let dashboard = dashboard();
    assert_eq!(schema_errors(&dashboard), "");
    let cases = [
        ("/panels/1", "unknown", json!("s")),
        ("/panels/1/targets/0", "expr", json!(1)),
        ("/panels/10/options/legend", "unknown", json!([])),
        ("/templating/list/1", "unknown", json!(2)),
    ];
    for (place, field, value) in cases {
        let mut changed = dashboard.clone();
        changed.pointer_mut(place).unwrap()[field] = value;
        let errors = schema_errors(&changed);
        assert!(errors.contains(field), "{place}/{field}: {errors}");
    }
}

#[test]
fn panels_do_not_overlap_and_leave_no_line_empty() {
    let dashboard = dashboard();
    let mut cells = BTreeSet::new();
    for panel in panels(&dashboard) {
        let position = |field: &str| panel["gridPos"][field].as_u64().unwrap();
        let (x, y, w, h) = (position("x"), position("y"), position("w"), position("h"));
        assert!(w > 0 && h > 0 && x + w <= COLUMNS, "{}", panel["title"]);
        for column in x..x + w {
            for line in y..y + h {
                assert!(cells.insert((line, column)), "{} overlaps", panel["title"]);
            }
        }
    }
    let lines: BTreeSet<_> = cells.iter().map(|(line, _)| *line).collect();
    let expected: BTreeSet<_> = (0..u64::try_from(lines.len()).unwrap()).collect();
    assert_eq!(lines, expected);
}

#[test]
fn panels_use_only_the_variables_of_the_dashboard() {
    let dashboard = dashboard();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let names: Vec<_> = variables
        .iter()
        .map(|variable| variable["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["datasource", "stack_namespace"]);
    assert_eq!(
        (&variables[0]["type"], &variables[0]["query"]),
        (&json!("datasource"), &json!("prometheus"))
    );
    let source = json!({ "type": "prometheus", "uid": "${datasource}" });
    assert_eq!(variables[1]["datasource"], source);
    for panel in panels(&dashboard) {
        let is_row = panel["type"] == "row";
        assert!(is_row || panel["datasource"] == source, "{}", panel["title"]);
        for target in targets(panel) {
            assert_eq!(target["datasource"], source, "{}", panel["title"]);
            for used in target["expr"].as_str().unwrap().split('$').skip(1) {
                let end = used.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
                let used = &used[..end.unwrap_or(used.len())];
                assert!(
                    ["stack_namespace", "__rate_interval"].contains(&used),
                    "{}: ${used}",
                    panel["title"]
                );
            }
        }
    }
}

#[test]
fn expressions_are_valid() {
    // promtool reads expressions in rules.
    let rules: Vec<_> = expressions()
        .iter()
        .enumerate()
        .map(|(number, (_, text))| {
            let text = text
                .replace("$__rate_interval", "5m")
                .replace("$stack_namespace", ".*");
            json!({ "record": format!("panel:{number}"), "expr": text })
        })
        .collect();
    assert!(rules.len() > 30, "{}", rules.len());
    let check = |rules: &[Value]| {
        let folder = tempfile::tempdir().unwrap();
        let file = json!({ "groups": [{ "name": "panels", "rules": rules }] });
        fs::write(folder.path().join("panels.yaml"), file.to_string()).unwrap();
        promtool(folder.path(), &["check", "rules", "panels.yaml"])
    };
    let (valid, output) = check(&rules);
    assert!(valid, "{output}");
    let broken = json!({ "record": "panel:broken", "expr": "sum(" });
    assert!(!check(&[broken]).0, "promtool reports an invalid expression");
}

/// Returns the expression of this panel that contains `part`, for the variables of a test.
fn expression(title: &str, part: &str) -> String {
    let found = expressions()
        .into_iter()
        .find(|(panel, text)| panel == title && text.contains(part));
    let (_, text) = found.unwrap_or_else(|| panic!("{title}: {part}"));
    text.replace("$__rate_interval", "2m")
}

#[test]
fn a_rare_run_is_in_the_quantiles_and_equal_names_are_not_mixed() {
    let bucket = |name: &str, labels: &str| {
        let series = |le: &str| format!("sluice_terraform_{name}_bucket{{le=\"{le}\",{labels}}}");
        ["1.0", "+Inf"].map(|le| json!({ "series": series(le), "values": "0x30 1x60" }))
    };
    let source = |namespace: &str, seconds: u32| {
        let series = |suffix: &str, step: u32| {
            let labels = format!("kind=\"GitRepository\",exported_namespace=\"{namespace}\",name=\"a\"");
            let name = format!("gotk_reconcile_duration_seconds_{suffix}{{{labels}}}");
            json!({ "series": name, "values": format!("0+{step}x90") })
        };
        [series("sum", seconds), series("count", 1)]
    };
    let series = [
        bucket("run_duration_seconds", "action=\"Plan\",phase=\"Lost\""),
        bucket("run_peak_memory_bytes", "action=\"Plan\""),
        bucket("plan_changes", "operation=\"add\""),
        source("one", 3),
        source("two", 5),
    ];
    let sample = |labels: &str, value: f64| json!({ "labels": labels, "value": value });
    // Forty minutes after the run.
    let test = |title, part, samples: &[Value]| json!({ "expr": expression(title, part), "eval_time": "70m", "exp_samples": samples });
    let plan = "{action=\"Plan\"}";
    let sources = [
        sample("{exported_namespace=\"two\",name=\"a\"}", 5.0),
        sample("{exported_namespace=\"one\",name=\"a\"}", 3.0),
    ];
    let tests = [
        test("Duration of runs", "(0.5", &[sample(plan, 0.5)]),
        test("Duration of runs", "(0.95", &[sample(plan, 0.95)]),
        test("Peak memory of the CLI", "(0.95", &[sample(plan, 0.95)]),
        test("Plan sizes", "(0.95", &[sample("{operation=\"add\"}", 0.95)]),
        test("Slowest sources", "topk", &sources),
    ];
    let folder = tempfile::tempdir().unwrap();
    let file = json!({ "evaluation_interval": "1m", "tests": [{ "interval": "1m",
        "input_series": series.concat(), "promql_expr_test": tests }] });
    fs::write(folder.path().join("panels.yaml"), file.to_string()).unwrap();
    let (passed, output) = promtool(folder.path(), &["test", "rules", "panels.yaml"]);
    assert!(passed, "{output}");
}

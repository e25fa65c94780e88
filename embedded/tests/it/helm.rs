//! Helm: the life of a release. Skipped with a message where there is no Helm.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use sluice_harness::{cli, skip};
use tokio::process::Command;

use crate::fixture::{CONFIGMAPS, WIDGETS, call, ok, server};

const CHART: &str = "apiVersion: v2\nname: app\nversion: 0.1.0\n";
const OBJECTS: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: app}
data: {text: {{ .Values.text | quote }}}
---
apiVersion: example.dev/v1
kind: Widget
metadata: {name: app}
spec: {size: {{ .Values.size }}}
";

/// Finds Helm on PATH. Under CI, where nothing may be skipped, it is built otherwise; elsewhere the test is skipped.
async fn program() -> Option<PathBuf> {
    if let Some(path) = cli::on_path("helm") {
        return Some(path);
    }
    if skip::is_ci() {
        return Some(tokio::task::spawn_blocking(cli::helm).await.unwrap().unwrap());
    }
    skip::skip("no helm is on PATH").unwrap();
    None
}

fn write_chart(chart: &Path) {
    std::fs::create_dir_all(chart.join("templates")).unwrap();
    std::fs::write(chart.join("Chart.yaml"), CHART).unwrap();
    std::fs::write(chart.join("values.yaml"), "{text: one, size: 1}\n").unwrap();
    std::fs::write(chart.join("templates/objects.yaml"), OBJECTS).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_installs_upgrades_rolls_back_and_uninstalls_a_release() {
    let Some(program) = program().await else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    write_chart(&dir.path().join("app"));
    let embedded = server();
    let serving = embedded
        .serve(([127, 0, 0, 1], 0).into(), &dir.path().join("api"))
        .await
        .unwrap();
    let helm = async |arguments: &str| {
        let mut command = Command::new(&program);
        command
            .args(arguments.split(' '))
            .current_dir(dir.path())
            .env("KUBECONFIG", &serving.kubeconfig_path)
            .env("HOME", dir.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = tokio::time::timeout(Duration::from_mins(1), command.output());
        let output = output.await.expect("helm ends in time").unwrap();
        assert!(output.status.success(), "helm {arguments}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let client = embedded.client();
    let text = async || {
        let map = ok(&client, "GET", &format!("{CONFIGMAPS}/app"), None).await;
        map["data"]["text"].as_str().unwrap().to_owned()
    };
    helm("install app ./app --wait --timeout 30s").await;
    assert_eq!(text().await, "one");
    helm("upgrade app ./app --set text=two,size=2").await;
    assert_eq!(text().await, "two");
    let widget = ok(&client, "GET", &format!("{WIDGETS}/app"), None).await;
    assert_eq!(widget["spec"]["size"], 2);
    assert!(helm("list").await.contains("deployed"));
    helm("rollback app 1").await;
    assert_eq!(text().await, "one");
    helm("uninstall app --wait --timeout 30s").await;
    for path in [format!("{CONFIGMAPS}/app"), format!("{WIDGETS}/app")] {
        assert_eq!(call(&client, "GET", &path, None).await.code, 404, "{path}");
    }
    serving.stop().await;
    embedded.stop();
}

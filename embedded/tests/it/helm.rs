//! Helm 4: the life of a release, which it applies on the server. Skipped with a message where there is no Helm 4.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};
use sluice_embedded::{ApiServer, TlsServer};
use sluice_harness::{cli, skip};
use tempfile::TempDir;
use tokio::process::Command;

use crate::fixture::{CONFIGMAPS, SECRETS, WIDGETS, call, ok, serve, server};

const CHART: &str = "apiVersion: v2\nname: app\nversion: 0.1.0\n";
const OBJECTS: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: app}
data: {text: {{ .Values.text | quote }}}
---
apiVersion: v1
kind: Secret
metadata: {name: app}
stringData: {text: {{ .Values.text | quote }}}
---
apiVersion: example.dev/v1
kind: Widget
metadata: {name: app}
spec: {size: {{ .Values.size }}}
";

/// Finds Helm 4 on PATH. Under CI, where nothing may be skipped, it is built otherwise; elsewhere the test is skipped.
async fn program() -> Option<PathBuf> {
    if let Some(path) = cli::on_path("helm")
        && is_helm_4(&path).await
    {
        return Some(path);
    }
    if skip::is_ci() {
        return Some(tokio::task::spawn_blocking(cli::helm).await.unwrap().unwrap());
    }
    skip::skip("no helm 4 is on PATH").unwrap();
    None
}

async fn is_helm_4(program: &Path) -> bool {
    let version = Command::new(program).args(["version", "--short"]).output().await;
    version.is_ok_and(|version| version.stdout.starts_with(b"v4."))
}

fn write_chart(chart: &Path) {
    std::fs::create_dir_all(chart.join("templates")).unwrap();
    std::fs::write(chart.join("Chart.yaml"), CHART).unwrap();
    std::fs::write(chart.join("values.yaml"), "{text: one, size: 1}\n").unwrap();
    std::fs::write(chart.join("templates/objects.yaml"), OBJECTS).unwrap();
}

/// A server and a chart.
struct Fixture {
    dir: TempDir,
    program: PathBuf,
    server: ApiServer,
    serving: TlsServer,
    client: Client,
}

impl Fixture {
    async fn start(program: PathBuf) -> Self {
        let dir = tempfile::tempdir().unwrap();
        write_chart(&dir.path().join("app"));
        let server = server();
        let serving = serve(&server, dir.path()).await;
        Self {
            client: server.client(),
            dir,
            program,
            server,
            serving,
        }
    }

    async fn run(&self, arguments: &str) -> Output {
        let mut command = Command::new(&self.program);
        command
            .args(arguments.split(' '))
            .current_dir(self.dir.path())
            .env("KUBECONFIG", &self.serving.kubeconfig_path)
            .env("HOME", self.dir.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = tokio::time::timeout(Duration::from_mins(1), command.output());
        output.await.expect("helm ends in time").unwrap()
    }

    /// Runs Helm, which must succeed.
    async fn helm(&self, arguments: &str) -> String {
        let output = self.run(arguments).await;
        assert!(output.status.success(), "helm {arguments}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    async fn map(&self) -> Value {
        ok(&self.client, "GET", &format!("{CONFIGMAPS}/app"), None).await
    }

    async fn text(&self) -> String {
        self.map().await["data"]["text"].as_str().unwrap().to_owned()
    }

    async fn stop(self) {
        self.serving.stop().await;
        self.server.stop();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_installs_upgrades_rolls_back_and_uninstalls_a_release() {
    let Some(program) = program().await else {
        return;
    };
    let fixture = Fixture::start(program).await;
    let client = &fixture.client;
    fixture.helm("install app ./app --wait --timeout 30s").await;
    assert_eq!(fixture.text().await, "one");
    fixture.helm("upgrade app ./app --set text=two,size=2").await;
    assert_eq!(fixture.text().await, "two");
    let widget = ok(client, "GET", &format!("{WIDGETS}/app"), None).await;
    assert_eq!(widget["spec"]["size"], 2);
    assert!(fixture.helm("list").await.contains("deployed"));
    fixture.helm("rollback app 1 --wait --timeout 30s").await;
    assert_eq!(fixture.text().await, "one");
    let secret = ok(client, "GET", &format!("{SECRETS}/app"), None).await;
    assert_eq!(secret["data"]["text"], "b25l");
    fixture.helm("uninstall app --wait --timeout 30s").await;
    for path in [CONFIGMAPS, SECRETS, WIDGETS].map(|path| format!("{path}/app")) {
        assert_eq!(call(client, "GET", &path, None).await.code, 404, "{path}");
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_applies_on_the_server_and_reports_conflicts() {
    let Some(program) = program().await else {
        return;
    };
    let fixture = Fixture::start(program).await;
    fixture.helm("install app ./app").await;
    let map = fixture.map().await;
    let managers = map["metadata"]["managedFields"].as_array().unwrap();
    let is_applied = |manager: &Value| manager["manager"] == "helm" && manager["operation"] == "Apply";
    assert!(managers.iter().all(is_applied), "{managers:?}");

    let path = format!("{CONFIGMAPS}/app?fieldManager=me");
    let edit = json!({"data": {"text": "mine"}});
    ok(&fixture.client, "PATCH", &path, Some(&edit)).await;
    let refused = fixture.run("upgrade app ./app --set text=two").await;
    let refused = String::from_utf8(refused.stderr).unwrap();
    let conflict = "conflict with \"me\" using v1: .data.text";
    assert!(refused.contains(conflict), "{refused}");
    assert_eq!(fixture.text().await, "mine");
    fixture
        .helm("upgrade app ./app --set text=two --force-conflicts")
        .await;
    assert_eq!(fixture.text().await, "two");
    fixture.stop().await;
}

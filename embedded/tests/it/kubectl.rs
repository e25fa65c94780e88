//! kubectl as users type it. Skipped, with a line that says so, where there is none.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde_json::json;
use sluice_embedded::{Embedded, Serving};
use sluice_harness::{cli, skip};
use tempfile::TempDir;
use tokio::process::Command;

use crate::fixture::{WIDGETS, ok, server};

/// That on PATH; under CI, where nothing may be skipped, one that is built. Otherwise the test is skipped, and says so.
async fn program() -> Option<PathBuf> {
    if let Some(path) = cli::on_path("kubectl") {
        return Some(path);
    }
    if skip::is_ci() {
        return Some(tokio::task::spawn_blocking(cli::kubectl).await.unwrap().unwrap());
    }
    skip::skip("no kubectl is on PATH").unwrap();
    None
}

/// A served API, a directory with manifests, and a home of its own for kubectl's caches.
struct Desk {
    program: PathBuf,
    dir: TempDir,
    embedded: Embedded,
    serving: Serving,
}

impl Desk {
    /// `None` without a kubectl, unless CI insists on one.
    async fn open() -> Option<Self> {
        let program = program().await?;
        let dir = tempfile::tempdir().unwrap();
        let embedded = server();
        let serving = embedded
            .serve(([127, 0, 0, 1], 0).into(), &dir.path().join("api"))
            .await
            .unwrap();
        Some(Self {
            program,
            dir,
            embedded,
            serving,
        })
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments.split(' '))
            .current_dir(self.dir.path())
            .env("KUBECONFIG", &self.serving.kubeconfig_path)
            .env("HOME", self.dir.path())
            .env("KUBECACHEDIR", self.dir.path().join("cache"))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs kubectl to its end: whether it succeeded, and all it said.
    async fn try_run(&self, arguments: &str) -> (bool, String) {
        let output = tokio::time::timeout(Duration::from_secs(60), self.command(arguments).output());
        let output = output.await.expect("kubectl ends in time").unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    }

    /// Runs kubectl, which must succeed.
    async fn run(&self, arguments: &str) -> String {
        let (success, said) = self.try_run(arguments).await;
        assert!(success, "kubectl {arguments}: {said}");
        said
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).unwrap();
    }
}

/// Runs of spaces as one, so that tables can be compared.
fn squeezed(text: &str) -> String {
    text.lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join("\n")
}

const MANIFEST: &str = "apiVersion: example.dev/v1\nkind: Widget\nmetadata: {name: a}\nspec: {size: 1}\n";

#[tokio::test(flavor = "multi_thread")]
async fn apply_get_describe_and_explain() {
    let Some(desk) = Desk::open().await else { return };
    desk.write("a.yaml", MANIFEST);
    assert_eq!(
        desk.run("apply -f a.yaml").await,
        "widget.example.dev/a created\n"
    );
    assert_eq!(
        desk.run("apply -f a.yaml").await,
        "widget.example.dev/a unchanged\n"
    );
    desk.write("a.yaml", &MANIFEST.replace("size: 1", "size: 2"));
    assert_eq!(
        desk.run("apply -f a.yaml").await,
        "widget.example.dev/a configured\n"
    );
    let table = squeezed(&desk.run("get widgets").await);
    assert!(table.starts_with("NAME SIZE READY AGE\na 2 "), "{table}");
    let wide = squeezed(&desk.run("get wd -A -o wide").await);
    assert!(
        wide.contains("NAMESPACE NAME SIZE READY COLOR AGE\ndefault a 2 "),
        "{wide}"
    );
    assert!(wide.contains(" red "), "{wide}");
    assert_eq!(desk.run("get widget a -o jsonpath={.spec.color}").await, "red");
    assert_eq!(
        desk.run("get wd -o custom-columns=N:.metadata.name,S:.spec.size --no-headers")
            .await
            .split_whitespace()
            .collect::<Vec<_>>(),
        ["a", "2"]
    );
    assert!(desk.run("get widget a -o yaml").await.contains("size: 2"));
    assert!(
        desk.run("get all").await.contains("\na "),
        "the category finds it"
    );
    assert!(desk.run("describe widget a").await.contains("Color:  red"));
    let explained = desk.run("explain widget.spec.size").await;
    assert!(
        explained.contains("How big it is.") && explained.contains("<integer>"),
        "{explained}"
    );
    assert!(
        desk.run("explain secret.stringData")
            .await
            .contains("<map[string]string>")
    );
    let resources = squeezed(&desk.run("api-resources").await);
    assert!(
        resources.contains("widgets wd example.dev/v1 true Widget"),
        "{resources}"
    );
    let (success, said) = desk.try_run("get widget b").await;
    assert!(
        !success && said.contains("Error from server (NotFound): widgets.example.dev \"b\" not found"),
        "{said}"
    );
    desk.write("b.yaml", &MANIFEST.replace("size: 1", "sise: 1"));
    let (success, said) = desk.try_run("apply -f b.yaml").await;
    assert!(!success && said.contains("unknown field \"spec.sise\""), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn edit_annotate_label_and_patch() {
    let Some(desk) = Desk::open().await else { return };
    desk.write("a.yaml", MANIFEST);
    desk.run("apply -f a.yaml").await;
    let edited = desk
        .command("edit widget a")
        .env("EDITOR", "sed -i s/size:.1/size:\\ 5/")
        .output()
        .await
        .unwrap();
    assert!(
        edited.status.success(),
        "{}",
        String::from_utf8_lossy(&edited.stderr)
    );
    desk.run("annotate widget a example.dev/by=me").await;
    desk.run("label widget a tier=front").await;
    desk.run("patch widget a --type merge -p {\"spec\":{\"color\":\"green\"}}")
        .await;
    desk.run("patch widget a --type json -p [{\"op\":\"replace\",\"path\":\"/spec/size\",\"value\":7}]")
        .await;
    let shown = desk
        .run("get widget -l tier=front -o jsonpath={.items[0].spec}")
        .await;
    assert_eq!(shown, r#"{"color":"green","size":7}"#);
    desk.run("patch widget a --subresource status --type merge -p {\"status\":{\"phase\":\"Done\"}}")
        .await;
    assert_eq!(desk.run("get widget a -o jsonpath={.status.phase}").await, "Done");
    let (success, said) = desk.try_run("apply --server-side -f a.yaml").await;
    assert!(
        !success && said.contains("server-side apply is not supported"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_and_secrets() {
    let Some(desk) = Desk::open().await else { return };
    desk.run("create namespace work").await;
    desk.run("create secret generic s -n work --from-literal=a=b")
        .await;
    desk.run("annotate secret s -n work example.dev/by=me").await;
    desk.run("label secret s -n work tier=front").await;
    desk.run("patch secret s -n work -p {\"stringData\":{\"c\":\"d\"}}")
        .await;
    assert_eq!(
        desk.run("get secret s -n work -o jsonpath={.data}").await,
        r#"{"a":"Yg==","c":"ZA=="}"#
    );
    assert!(squeezed(&desk.run("get secrets -n work").await).contains("s Opaque 2 "));
    assert!(
        desk.run("describe secret s -n work")
            .await
            .contains("a:  1 bytes")
    );
    desk.run("create configmap m -n work --from-literal=x=y").await;
    assert!(squeezed(&desk.run("get ns work").await).contains("work Active "));
    desk.run("delete namespace work --wait --timeout=30s").await;
    let (success, _) = desk.try_run("get secret s -n work").await;
    assert!(!success);
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_for_conditions_and_deletions() {
    let Some(desk) = Desk::open().await else { return };
    desk.write("a.yaml", MANIFEST);
    desk.run("apply -f a.yaml").await;
    let client = desk.embedded.client();
    let waiting = desk
        .command("wait widget/a --for=condition=Ready --timeout=30s")
        .spawn()
        .unwrap();
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    ok(&client, "PATCH", &format!("{WIDGETS}/a/status"), Some(&ready)).await;
    assert!(waiting.wait_with_output().await.unwrap().status.success());
    desk.run("patch widget a --type merge -p {\"metadata\":{\"finalizers\":[\"example.dev/hold\"]}}")
        .await;
    desk.run("delete widget a --wait=false").await;
    let waiting = desk
        .command("wait widget/a --for=delete --timeout=30s")
        .spawn()
        .unwrap();
    ok(
        &client,
        "PATCH",
        &format!("{WIDGETS}/a"),
        Some(&json!({"metadata": {"finalizers": null}})),
    )
    .await;
    assert!(waiting.wait_with_output().await.unwrap().status.success());
    desk.run("apply -f a.yaml").await;
    desk.run("delete -f a.yaml --wait").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_and_events() {
    let Some(desk) = Desk::open().await else { return };
    desk.write("a.yaml", MANIFEST);
    desk.run("apply -f a.yaml").await;
    let out = desk.dir.path().join("watch.out");
    let mut watching = desk
        .command("get widgets -w")
        .stdout(std::fs::File::create(&out).unwrap())
        .spawn()
        .unwrap();
    lines(&out, 2).await;
    desk.run("label widget a x=y").await;
    let text = squeezed(&lines(&out, 3).await);
    assert!(text.starts_with("NAME SIZE READY AGE\na 1 "), "{text}");
    watching.kill().await.unwrap();
    let uid = desk.run("get widget a -o jsonpath={.metadata.uid}").await;
    let event = json!({
        "metadata": {"generateName": "a."}, "type": "Normal", "reason": "Made", "message": "It is made.",
        "involvedObject": {"apiVersion": "example.dev/v1", "kind": "Widget", "name": "a", "namespace": "default", "uid": uid},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "count": 1,
        "source": {"component": "test"},
    });
    ok(
        &desk.embedded.client(),
        "POST",
        "/api/v1/namespaces/default/events",
        Some(&event),
    )
    .await;
    let events = squeezed(&desk.run("get events").await);
    assert!(events.contains("Normal Made widget/a It is made."), "{events}");
    assert!(desk.run("describe widget a").await.contains("It is made."));
    assert!(desk.run("events --for widget/a").await.contains("It is made."));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_with_kinds_that_are_not_served_is_applied_otherwise() {
    let Some(desk) = Desk::open().await else { return };
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r}\nrules: []\n";
    let mut definition = crate::fixture::widget_definition();
    definition.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    let definition = serde_json::to_string(&definition).unwrap();
    desk.write(
        "bundle.yaml",
        &format!("{role}---\n{definition}\n---\n{MANIFEST}"),
    );
    let (success, said) = desk.try_run("apply -f bundle.yaml").await;
    assert!(
        !success && said.contains("no matches for kind \"Role\""),
        "{said}"
    );
    assert!(said.contains("widget.example.dev/a created"), "{said}");
    assert!(!said.contains("openapi"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_about_oneself() {
    let Some(desk) = Desk::open().await else { return };
    assert_eq!(
        desk.run("auth can-i create widgets").await.lines().last(),
        Some("yes")
    );
    assert!(desk.run("auth can-i --list").await.contains("*.*"));
    assert!(desk.run("auth whoami").await.contains("system:masters"));
}

#[tokio::test(flavor = "multi_thread")]
async fn foreground_deletion_and_events_of_the_new_group() {
    let Some(desk) = Desk::open().await else { return };
    desk.write("a.yaml", MANIFEST);
    desk.run("apply -f a.yaml").await;
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
        "type": "Normal", "reason": "Made", "note": "It is made.", "action": "Make", "eventTime": "2026-01-01T00:00:00.000000Z",
        "regarding": {"apiVersion": "example.dev/v1", "kind": "Widget", "name": "a", "namespace": "default"},
        "reportingController": "test", "reportingInstance": "one",
    });
    desk.write("e.json", &event.to_string());
    desk.run("create -f e.json").await;
    assert_eq!(
        desk.run("get event e -o jsonpath={.message}").await,
        "It is made."
    );
    assert_eq!(
        desk.run("get events.events.k8s.io e -o jsonpath={.note}").await,
        "It is made."
    );
    let selected = desk
        .run("get events.events.k8s.io --field-selector regarding.name=a")
        .await;
    assert!(selected.contains("It is made."), "{selected}");
    desk.run("delete widget a --cascade=foreground --timeout=30s")
        .await;
    let (success, _) = desk.try_run("get widget a").await;
    assert!(!success);
}

/// The file once it has so many lines.
async fn lines(path: &Path, count: usize) -> String {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let text = std::fs::read_to_string(path).unwrap();
        if text.lines().count() >= count {
            return text;
        }
        assert!(tokio::time::Instant::now() < deadline, "no {count} lines: {text}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

//! kubectl commands of users. Skipped with a message where there is no kubectl.

mod fixture;

use std::path::Path;
use std::time::Duration;

use serde_json::json;

pub(crate) use self::fixture::KubectlFixture;
use crate::fixture::{WIDGETS, ok};

/// Collapses runs of spaces, so that tables can be compared.
fn collapse_spaces(text: &str) -> String {
    text.lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join("\n")
}

const MANIFEST: &str = "apiVersion: example.dev/v1\nkind: Widget\nmetadata: {name: a}\nspec: {size: 1}\n";

#[tokio::test(flavor = "multi_thread")]
#[expect(
    clippy::too_many_lines,
    reason = "one scenario whose steps build on each other"
)]
async fn kubectl_applies_gets_describes_and_explains_objects() {
    let Some(kubectl) = KubectlFixture::open().await else {
        return;
    };
    kubectl.write("a.yaml", MANIFEST);
    assert_eq!(
        kubectl.run("apply -f a.yaml").await,
        "widget.example.dev/a created\n"
    );
    assert_eq!(
        kubectl.run("apply -f a.yaml").await,
        "widget.example.dev/a unchanged\n"
    );
    kubectl.write("a.yaml", &MANIFEST.replace("size: 1", "size: 2"));
    assert_eq!(
        kubectl.run("apply -f a.yaml").await,
        "widget.example.dev/a configured\n"
    );
    let table = collapse_spaces(&kubectl.run("get widgets").await);
    assert!(table.starts_with("NAME SIZE READY AGE\na 2 "), "{table}");
    let wide = collapse_spaces(&kubectl.run("get wd -A -o wide").await);
    assert!(
        wide.contains("NAMESPACE NAME SIZE READY COLOR AGE\ndefault a 2 "),
        "{wide}"
    );
    assert!(wide.contains(" red "), "{wide}");
    assert_eq!(kubectl.run("get widget a -o jsonpath={.spec.color}").await, "red");
    assert_eq!(
        kubectl
            .run("get wd -o custom-columns=N:.metadata.name,S:.spec.size --no-headers")
            .await
            .split_whitespace()
            .collect::<Vec<_>>(),
        ["a", "2"]
    );
    assert!(kubectl.run("get widget a -o yaml").await.contains("size: 2"));
    assert!(
        kubectl.run("get all").await.contains("\na "),
        "found by its category"
    );
    assert!(kubectl.run("describe widget a").await.contains("Color:  red"));
    let explained = kubectl.run("explain widget.spec.size").await;
    assert!(
        explained.contains("How big it is.") && explained.contains("<integer>"),
        "{explained}"
    );
    assert!(
        kubectl
            .run("explain secret.stringData")
            .await
            .contains("<map[string]string>")
    );
    let resources = collapse_spaces(&kubectl.run("api-resources").await);
    assert!(
        resources.contains("widgets wd example.dev/v1 true Widget"),
        "{resources}"
    );
    let (success, output) = kubectl.try_run("get widget b").await;
    assert!(
        !success && output.contains("Error from server (NotFound): widgets.example.dev \"b\" not found"),
        "{output}"
    );
    kubectl.write("b.yaml", &MANIFEST.replace("size: 1", "sise: 1"));
    let (success, output) = kubectl.try_run("apply -f b.yaml").await;
    assert!(
        !success && output.contains("unknown field \"spec.sise\""),
        "{output}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_prints_the_served_paths_one_a_line() {
    let Some(kubectl) = KubectlFixture::open().await else {
        return;
    };
    let index = kubectl.run("get --raw /").await;
    assert!(index.contains("\n    \"/apis/example.dev/v1\",\n"), "{index}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_edits_annotates_labels_and_patches_objects() {
    let Some(kubectl) = KubectlFixture::open().await else {
        return;
    };
    kubectl.write("a.yaml", MANIFEST);
    kubectl.run("apply -f a.yaml").await;
    let edited = kubectl
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
    kubectl.run("annotate widget a example.dev/by=me").await;
    kubectl.run("label widget a tier=front").await;
    kubectl
        .run("patch widget a --type merge -p {\"spec\":{\"color\":\"green\"}}")
        .await;
    kubectl
        .run("patch widget a --type json -p [{\"op\":\"replace\",\"path\":\"/spec/size\",\"value\":7}]")
        .await;
    let spec = kubectl
        .run("get widget -l tier=front -o jsonpath={.items[0].spec}")
        .await;
    assert_eq!(spec, r#"{"color":"green","size":7}"#);
    kubectl
        .run("patch widget a --subresource status --type merge -p {\"status\":{\"phase\":\"Done\"}}")
        .await;
    assert_eq!(
        kubectl.run("get widget a -o jsonpath={.status.phase}").await,
        "Done"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_deletes_a_namespace_with_its_secrets() {
    let Some(kubectl) = KubectlFixture::open().await else {
        return;
    };
    kubectl.run("create namespace work").await;
    kubectl
        .run("create secret generic s -n work --from-literal=a=b")
        .await;
    kubectl.run("annotate secret s -n work example.dev/by=me").await;
    kubectl.run("label secret s -n work tier=front").await;
    kubectl
        .run("patch secret s -n work -p {\"stringData\":{\"c\":\"d\"}}")
        .await;
    assert_eq!(
        kubectl.run("get secret s -n work -o jsonpath={.data}").await,
        r#"{"a":"Yg==","c":"ZA=="}"#
    );
    assert!(collapse_spaces(&kubectl.run("get secrets -n work").await).contains("s Opaque 2 "));
    assert!(
        kubectl
            .run("describe secret s -n work")
            .await
            .contains("a:  1 bytes")
    );
    kubectl.run("create configmap m -n work --from-literal=x=y").await;
    assert!(collapse_spaces(&kubectl.run("get ns work").await).contains("work Active "));
    kubectl.run("delete namespace work --wait --timeout=30s").await;
    let (success, _) = kubectl.try_run("get secret s -n work").await;
    assert!(!success);
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_waits_for_conditions_and_deletions() {
    let Some(kubectl) = KubectlFixture::open().await else {
        return;
    };
    kubectl.write("a.yaml", MANIFEST);
    kubectl.run("apply -f a.yaml").await;
    let client = kubectl.embedded.client();
    let waiting = kubectl
        .command("wait widget/a --for=condition=Ready --timeout=30s")
        .spawn()
        .unwrap();
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    ok(&client, "PATCH", &format!("{WIDGETS}/a/status"), Some(&ready)).await;
    assert!(waiting.wait_with_output().await.unwrap().status.success());
    kubectl
        .run("patch widget a --type merge -p {\"metadata\":{\"finalizers\":[\"example.dev/hold\"]}}")
        .await;
    kubectl.run("delete widget a --wait=false").await;
    let waiting = kubectl
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
    kubectl.run("apply -f a.yaml").await;
    kubectl.run("delete -f a.yaml --wait").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_watches_objects_and_shows_events() {
    let Some(kubectl) = KubectlFixture::open().await else {
        return;
    };
    kubectl.write("a.yaml", MANIFEST);
    kubectl.run("apply -f a.yaml").await;
    let out = kubectl.dir.path().join("watch.out");
    let mut watching = kubectl
        .command("get widgets -w")
        .stdout(std::fs::File::create(&out).unwrap())
        .spawn()
        .unwrap();
    lines(&out, 2).await;
    kubectl.run("label widget a x=y").await;
    let text = collapse_spaces(&lines(&out, 3).await);
    assert!(text.starts_with("NAME SIZE READY AGE\na 1 "), "{text}");
    watching.kill().await.unwrap();
    let uid = kubectl.run("get widget a -o jsonpath={.metadata.uid}").await;
    let event = json!({
        "metadata": {"generateName": "a."}, "type": "Normal", "reason": "Created", "message": "It is created.",
        "involvedObject": {"apiVersion": "example.dev/v1", "kind": "Widget", "name": "a", "namespace": "default", "uid": uid},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "count": 1,
        "source": {"component": "test"},
    });
    ok(
        &kubectl.embedded.client(),
        "POST",
        "/api/v1/namespaces/default/events",
        Some(&event),
    )
    .await;
    let events = collapse_spaces(&kubectl.run("get events").await);
    assert!(
        events.contains("Normal Created widget/a It is created."),
        "{events}"
    );
    assert!(kubectl.run("describe widget a").await.contains("It is created."));
    assert!(
        kubectl
            .run("events --for widget/a")
            .await
            .contains("It is created.")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unserved_kinds_in_a_manifest_do_not_block_other_objects() {
    let Some(kubectl) = KubectlFixture::open().await else {
        return;
    };
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {}\n";
    let mut definition = crate::fixture::widget_definition();
    definition.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    let definition = serde_json::to_string(&definition).unwrap();
    kubectl.write(
        "bundle.yaml",
        &format!("{deployment}---\n{definition}\n---\n{MANIFEST}"),
    );
    let (success, output) = kubectl.try_run("apply -f bundle.yaml").await;
    assert!(
        !success && output.contains("no matches for kind \"Deployment\""),
        "{output}"
    );
    assert!(output.contains("widget.example.dev/a created"), "{output}");
    assert!(!output.contains("openapi"), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reviews_the_access_of_its_own_user() {
    let Some(kubectl) = KubectlFixture::open().await else {
        return;
    };
    assert_eq!(
        kubectl.run("auth can-i create widgets").await.lines().last(),
        Some("yes")
    );
    assert!(kubectl.run("auth can-i --list").await.contains("*.*"));
    assert!(kubectl.run("auth whoami").await.contains("system:masters"));
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_deletes_in_the_foreground_and_reads_events_of_the_new_group() {
    let Some(kubectl) = KubectlFixture::open().await else {
        return;
    };
    kubectl.write("a.yaml", MANIFEST);
    kubectl.run("apply -f a.yaml").await;
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
        "type": "Normal", "reason": "Created", "note": "It is created.", "action": "Create", "eventTime": "2026-01-01T00:00:00.000000Z",
        "regarding": {"apiVersion": "example.dev/v1", "kind": "Widget", "name": "a", "namespace": "default"},
        "reportingController": "test", "reportingInstance": "one",
    });
    kubectl.write("e.json", &event.to_string());
    kubectl.run("create -f e.json").await;
    assert_eq!(
        kubectl.run("get event e -o jsonpath={.message}").await,
        "It is created."
    );
    assert_eq!(
        kubectl
            .run("get events.events.k8s.io e -o jsonpath={.note}")
            .await,
        "It is created."
    );
    let selected = kubectl
        .run("get events.events.k8s.io --field-selector regarding.name=a")
        .await;
    assert!(selected.contains("It is created."), "{selected}");
    kubectl
        .run("delete widget a --cascade=foreground --timeout=30s")
        .await;
    let (success, _) = kubectl.try_run("get widget a").await;
    assert!(!success);
}

/// Waits until the file has this many lines.
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

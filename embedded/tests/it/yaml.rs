//! Bodies in YAML.

use crate::fixture::{CONFIGMAPS, send, server};

#[tokio::test]
async fn yaml_that_takes_too_much_time_or_memory_is_refused() {
    let client = server().client();
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    let deep = format!("{object}data: {}", "{a: ".repeat(64_000));
    let text = "x".repeat(1 << 20);
    let bomb = format!("{object}a: &a {text}\nb: [{}]\n", "*a, ".repeat(1_000));
    for (body, reason) in [(deep, "more than 120 levels"), (bomb, "aliases of the document")] {
        let path = format!("{CONFIGMAPS}/a?fieldManager=m");
        for (method, path, type_) in [
            ("POST", CONFIGMAPS, "application/yaml"),
            ("PATCH", path.as_str(), "application/apply-patch+yaml"),
        ] {
            let headers = [("content-type", type_)];
            let refused = send(&client, method, path, &headers, body.clone().into()).await;
            assert_eq!(refused.code, 400, "{method}: {reason}");
            let message = refused.body["message"].as_str().unwrap();
            assert!(message.contains(reason), "{message}");
        }
    }
}

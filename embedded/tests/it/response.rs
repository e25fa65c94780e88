//! Errors, lists, tables and discovery.

use serde_json::{Value, json};

use crate::fixture::{CONFIGMAPS, SECRETS, WIDGETS, call, ok, send, server, widget};

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one table")]
async fn every_error_is_a_status_with_code_and_reason() {
    let client = server().client();
    ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await;
    let other_namespace = WIDGETS.replace("/default/", "/nowhere/");
    for (method, path, body, code, reason) in [
        ("GET", format!("{WIDGETS}/b"), None, 404, "NotFound"),
        ("GET", format!("{WIDGETS}/a/scale"), None, 404, "NotFound"),
        ("POST", other_namespace, Some(widget("a", 1)), 404, "NotFound"),
        ("POST", WIDGETS.into(), Some(widget("a", 1)), 409, "AlreadyExists"),
        ("POST", WIDGETS.into(), Some(widget("A_b", 1)), 422, "Invalid"),
        ("POST", WIDGETS.into(), Some(widget("", 1)), 422, "Invalid"),
        ("PUT", WIDGETS.into(), Some(widget("a", 1)), 400, "BadRequest"),
        (
            "PUT",
            CONFIGMAPS.into(),
            Some(json!({"metadata": {"name": "a"}})),
            405,
            "MethodNotAllowed",
        ),
        (
            "POST",
            "/api/v1/secrets".into(),
            Some(json!({})),
            405,
            "MethodNotAllowed",
        ),
        ("POST", "/version".into(), None, 405, "MethodNotAllowed"),
        (
            "PUT",
            format!("{WIDGETS}/b"),
            Some(widget("a", 1)),
            400,
            "BadRequest",
        ),
        (
            "PUT",
            format!("{WIDGETS}/b"),
            Some(widget("b", 1)),
            404,
            "NotFound",
        ),
        ("POST", WIDGETS.into(), Some(json!([])), 400, "BadRequest"),
        (
            "POST",
            WIDGETS.into(),
            Some(json!({"apiVersion": "v1", "kind": "Secret"})),
            400,
            "BadRequest",
        ),
        (
            "POST",
            SECRETS.into(),
            Some(json!({"metadata": {"name": "a"}, "data": {"a": "%"}})),
            400,
            "BadRequest",
        ),
        (
            "POST",
            SECRETS.into(),
            Some(json!({"metadata": {"name": "a", "namespace": "b"}})),
            400,
            "BadRequest",
        ),
        (
            "GET",
            format!("{WIDGETS}?labelSelector=a+b"),
            None,
            400,
            "BadRequest",
        ),
        (
            "GET",
            format!("{WIDGETS}?fieldSelector=spec.size%3D1"),
            None,
            400,
            "BadRequest",
        ),
        ("GET", format!("{WIDGETS}?continue=abc"), None, 400, "BadRequest"),
        (
            "GET",
            format!("{WIDGETS}?resourceVersionMatch=Exact"),
            None,
            422,
            "Invalid",
        ),
        (
            "GET",
            format!("{WIDGETS}?resourceVersion=999999"),
            None,
            504,
            "Timeout",
        ),
        (
            "DELETE",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.dev".into(),
            None,
            403,
            "Forbidden",
        ),
    ] {
        let response = call(&client, method, &path, body.as_ref()).await;
        let got = (
            response.code,
            response.body["reason"].as_str(),
            response.body["kind"].as_str(),
        );
        assert_eq!(
            got,
            (code, Some(reason), Some("Status")),
            "{method} {path}: {}",
            response.body
        );
        assert_eq!(response.body["code"], code, "{method} {path}");
    }
}

#[tokio::test]
async fn an_unknown_path_gets_plain_text() {
    let client = server().client();
    for path in [
        "/apis/example.dev/v1/namespaces/default/gadgets",
        "/apis/none.dev/v1/things",
        "/nope",
    ] {
        let response = call(&client, "GET", path, None).await;
        assert_eq!((response.code, &response.body), (404, &Value::Null), "{path}");
    }
    assert_eq!(
        call(&client, "GET", "/api/v1/gadgets", None).await.body["kind"],
        "Status"
    );
}

#[tokio::test]
async fn unsupported_media_types_are_rejected() {
    let client = server().client();
    ok(&client, "POST", WIDGETS, Some(&widget("a", 1))).await;
    let path = format!("{WIDGETS}/a");
    for (method, type_, text) in [
        ("PATCH", "application/json", "application/apply-patch+yaml"),
        (
            "PATCH",
            "application/strategic-merge-patch+json",
            "application/merge-patch+json",
        ),
        ("PUT", "application/cbor", "application/json"),
    ] {
        let response = send(&client, method, &path, &[("content-type", type_)], b"{}".to_vec()).await;
        assert_eq!(
            (response.code, response.body["reason"].as_str()),
            (415, Some("UnsupportedMediaType")),
            "{type_}"
        );
        assert!(
            response.body["message"].as_str().unwrap().contains(text),
            "{}",
            response.body
        );
    }
    let response = send(
        &client,
        "GET",
        &path,
        &[("accept", "application/vnd.kubernetes.protobuf")],
        Vec::new(),
    )
    .await;
    assert_eq!(response.code, 406);
    let response = send(
        &client,
        "POST",
        WIDGETS,
        &[("content-type", "application/json")],
        vec![b' '; 4 << 20],
    )
    .await;
    assert_eq!(response.code, 413);
}

#[tokio::test]
async fn duplicate_fields_of_a_strategic_merge_patch_are_reported() {
    let client = server().client();
    ok(
        &client,
        "POST",
        CONFIGMAPS,
        Some(&json!({"metadata": {"name": "a"}})),
    )
    .await;
    let type_ = [("content-type", "application/strategic-merge-patch+json")];
    let twice = br#"{"data": {"a": "1", "a": "2"}}"#.to_vec();
    let path = format!("{CONFIGMAPS}/a");
    let lenient = send(&client, "PATCH", &path, &type_, twice.clone()).await;
    assert_eq!(lenient.code, 200);
    assert_eq!(lenient.warnings, ["299 - \"duplicate field \\\"data.a\\\"\""]);
    let strict = format!("{path}?fieldValidation=Strict");
    assert_eq!(send(&client, "PATCH", &strict, &type_, twice).await.code, 422);
}

#[tokio::test]
async fn strict_validation_covers_yaml_and_json_patches() {
    let client = server().client();
    let yaml = b"kind: ConfigMap\nmetadata: {name: a}\ndata: {x: '1', x: '2'}\n".to_vec();
    let type_ = [("content-type", "application/yaml")];
    let strict = format!("{CONFIGMAPS}?fieldValidation=Strict");
    assert_eq!(
        send(&client, "POST", &strict, &type_, yaml.clone()).await.code,
        400
    );
    let lenient = send(&client, "POST", CONFIGMAPS, &type_, yaml).await;
    assert_eq!((lenient.code, lenient.warnings.len()), (201, 1), "{lenient:?}");
    let operations = br#"[{"op": "add", "path": "/data/y", "value": "1", "note": "z"}]"#.to_vec();
    let type_ = [("content-type", "application/json-patch+json")];
    let path = format!("{CONFIGMAPS}/a");
    let strict = format!("{path}?fieldValidation=Strict");
    assert_eq!(
        send(&client, "PATCH", &strict, &type_, operations.clone())
            .await
            .code,
        422
    );
    let lenient = send(&client, "PATCH", &path, &type_, operations).await;
    assert_eq!(lenient.code, 200);
    assert_eq!(
        lenient.warnings,
        ["299 - \"json patch unknown field \\\"[0].note\\\"\""]
    );
}

#[tokio::test]
async fn a_cluster_scoped_object_loses_its_namespace() {
    let client = server().client();
    let created =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "namespace": "b"}});
    let created = ok(&client, "POST", "/api/v1/namespaces", Some(&created)).await;
    assert!(created["metadata"]["namespace"].is_null(), "{created}");
    let applied =
        br#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "c", "namespace": "b"}}"#;
    let path = "/api/v1/namespaces/c?fieldManager=test";
    let type_ = [("content-type", "application/apply-patch+yaml")];
    let applied = send(&client, "PATCH", path, &type_, applied.to_vec()).await;
    assert_eq!(applied.code, 201);
    assert!(applied.body["metadata"]["namespace"].is_null(), "{applied:?}");
}

#[tokio::test]
async fn an_update_needs_the_name() {
    let client = server().client();
    let nameless = json!({"metadata": {}});
    let response = call(&client, "PUT", &format!("{CONFIGMAPS}/a"), Some(&nameless)).await;
    assert_eq!(
        (response.code, response.body["message"].as_str()),
        (
            400,
            Some("the name of the object (a based on URL) was undeterminable: name must be provided")
        )
    );
}

#[tokio::test]
async fn bodies_can_be_yaml() {
    let client = server().client();
    let yaml = b"apiVersion: example.dev/v1\nkind: Widget\nmetadata: {name: y}\nspec: {size: 2}\n".to_vec();
    let response = send(
        &client,
        "POST",
        WIDGETS,
        &[("content-type", "application/yaml")],
        yaml,
    )
    .await;
    assert_eq!((response.code, &response.body["spec"]["size"]), (201, &json!(2)));
}

#[tokio::test]
async fn lists_apply_selectors() {
    let client = server().client();
    for (name, color) in [("a", "red"), ("b", "green"), ("c", "red")] {
        let map = json!({"metadata": {"name": name, "labels": {"color": color}}});
        ok(&client, "POST", CONFIGMAPS, Some(&map)).await;
    }
    let names = |list: Value| -> Vec<String> {
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|i| i["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let list = ok(&client, "GET", CONFIGMAPS, None).await;
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("ConfigMapList"), &json!("v1"))
    );
    assert!(list["metadata"]["resourceVersion"].is_string() && list["metadata"]["continue"].is_null());
    assert_eq!(names(list), ["a", "b", "c"]);
    let red = ok(
        &client,
        "GET",
        &format!("{CONFIGMAPS}?labelSelector=color%20in%20(red)"),
        None,
    )
    .await;
    assert_eq!(names(red), ["a", "c"]);
    let one = ok(
        &client,
        "GET",
        "/api/v1/configmaps?fieldSelector=metadata.name%3Db",
        None,
    )
    .await;
    assert_eq!(names(one), ["b"]);
    ok(
        &client,
        "DELETE",
        &format!("{CONFIGMAPS}?labelSelector=color%3Dred"),
        None,
    )
    .await;
    assert_eq!(names(ok(&client, "GET", CONFIGMAPS, None).await), ["b"]);
}

#[tokio::test]
async fn tables_have_the_columns_of_the_definition() {
    let client = server().client();
    ok(&client, "POST", WIDGETS, Some(&widget("a", 7))).await;
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    ok(&client, "PATCH", &format!("{WIDGETS}/a/status"), Some(&status)).await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let table = send(&client, "GET", WIDGETS, &[("accept", accept)], Vec::new())
        .await
        .body;
    assert_eq!(table["kind"], "Table");
    let columns: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    assert_eq!(columns, ["Name", "Size", "Ready", "Color", "Age"]);
    let row = &table["rows"][0];
    assert_eq!(
        row["cells"].as_array().unwrap()[..4],
        [json!("a"), json!(7), json!("True"), json!("red")]
    );
    assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
}

#[tokio::test]
async fn discovery_lists_the_served_resources() {
    let client = server().client();
    let groups = client.list_api_groups().await.unwrap();
    let group = groups
        .groups
        .iter()
        .find(|group| group.name == "example.dev")
        .unwrap();
    assert_eq!(group.preferred_version.as_ref().unwrap().version, "v1");
    assert_eq!(group.versions.len(), 2);
    let resources = client
        .list_api_group_resources("example.dev/v1")
        .await
        .unwrap()
        .resources;
    let names: Vec<&str> = resources.iter().map(|resource| resource.name.as_str()).collect();
    assert_eq!(names, ["widgets", "widgets/status"]);
    assert_eq!(resources[0].short_names.as_deref(), Some(&["wd".to_owned()][..]));
    let core = client.list_core_api_resources("v1").await.unwrap().resources;
    assert!(
        core.iter()
            .any(|resource| resource.name == "secrets" && resource.namespaced)
    );
    assert_eq!(client.apiserver_version().await.unwrap().major, "1");
}

//! What users may do: with tokens, certificates and in the name of others.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, WatchEvent, WatchParams};
use rcgen::{CertificateParams, DnType, Issuer, KeyPair};
use serde_json::json;

use super::{ACCOUNTS, BINDINGS, ROLES, Served, binding, forbidden, named, rule};
use crate::fixture::{CONFIGMAPS, SECRETS, TestResponse, WIDGETS, call, ok, send, widget};

/// Field selectors of one name.
const OWN: &str = "fieldSelector=metadata.name%3Down";
const OTHER: &str = "fieldSelector=metadata.name%3Dother";

#[tokio::test]
async fn an_account_may_do_what_its_role_permits() {
    let served = Served::start().await;
    let rules = json!([
        rule("", "configmaps", &["get", "list", "watch", "create"]),
        rule("example.dev", "widgets/status", &["patch"]),
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["own"], "verbs": ["get", "list", "create"]},
    ]);
    let client = served.account("deployer", &rules).await;
    ok(&client, "POST", CONFIGMAPS, Some(&named("a"))).await;
    ok(&client, "GET", &format!("{CONFIGMAPS}/a"), None).await;
    assert_eq!(
        forbidden(&client, "DELETE", &format!("{CONFIGMAPS}/a"), None).await,
        "configmaps \"a\" is forbidden: User \"system:serviceaccount:default:deployer\" cannot delete resource \"configmaps\" in API group \"\" in the namespace \"default\""
    );
    ok(&served.admin, "POST", WIDGETS, Some(&widget("w", 1))).await;
    let status = json!({"status": {"phase": "Ready"}});
    ok(&client, "PATCH", &format!("{WIDGETS}/w/status"), Some(&status)).await;
    for name in ["own", "other"] {
        ok(&served.admin, "POST", SECRETS, Some(&named(name))).await;
    }
    ok(&client, "GET", &format!("{SECRETS}/own"), None).await;
    let own = format!("{SECRETS}?{OWN}");
    let own = ok(&client, "GET", &own, None).await;
    assert_eq!(own["items"].as_array().unwrap().len(), 1);
    let applied = format!("{SECRETS}/own?fieldManager=t");
    for (method, path, body) in [
        ("PATCH", format!("{WIDGETS}/w"), Some(json!({"spec": {}}))),
        ("GET", format!("{SECRETS}/other"), None),
        ("GET", SECRETS.to_owned(), None),
        ("GET", format!("{SECRETS}?{OTHER}"), None),
        ("POST", format!("{SECRETS}?{OWN}"), Some(named("own"))),
        ("PATCH", applied, Some(json!({}))),
        ("GET", CONFIGMAPS.replace("default", "kube-system"), None),
        ("GET", "/api/v1/configmaps".to_owned(), None),
        ("DELETE", CONFIGMAPS.to_owned(), None),
        ("POST", format!("{ACCOUNTS}/deployer/token"), Some(json!({}))),
    ] {
        forbidden(&client, method, &path, body.as_ref()).await;
    }
    served.stop().await;
}

#[tokio::test]
async fn every_user_may_read_the_documents_of_the_api() {
    let served = Served::start().await;
    let client = served.account("deployer", &json!([])).await;
    for path in [
        "/version",
        "/apis",
        "/apis/example.dev/v1",
        "/openapi/v3",
        "/readyz",
    ] {
        assert_eq!(
            send(&client, "GET", path, &[], Vec::new()).await.code,
            200,
            "{path}"
        );
    }
    for path in ["/", "/index.html", "/metrics"] {
        assert_eq!(
            forbidden(&client, "GET", path, None).await,
            format!("forbidden: User \"system:serviceaccount:default:deployer\" cannot get path {path:?}")
        );
    }
    served.stop().await;
}

#[tokio::test]
async fn an_account_watches_what_its_role_permits() {
    let served = Served::start().await;
    let client = served
        .account("watcher", &json!([rule("", "configmaps", &["watch"])]))
        .await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let events = maps
        .watch(&WatchParams::default().timeout(20), "0")
        .await
        .unwrap();
    let mut events = Box::pin(events);
    ok(&served.admin, "POST", CONFIGMAPS, Some(&named("a"))).await;
    loop {
        // The watch ends at its own timeout.
        match events.next().await.expect("an event in time").unwrap() {
            WatchEvent::Added(map) if map.metadata.name.as_deref() == Some("a") => break,
            WatchEvent::Added(_) | WatchEvent::Bookmark(_) => {}
            other => panic!("{other:?}"),
        }
    }
    forbidden(&client, "GET", &format!("{SECRETS}?watch=true"), None).await;
    drop(events);
    served.stop().await;
}

#[tokio::test]
async fn a_role_for_one_name_permits_lists_of_this_name_only() {
    let served = Served::start().await;
    let mut of_a = rule("", "configmaps", &["list", "watch", "deletecollection"]);
    of_a["resourceNames"] = json!(["a"]);
    let client = served.account("reader", &json!([of_a])).await;
    let of = |selector: &str| format!("{CONFIGMAPS}?fieldSelector={selector}");
    ok(&client, "GET", &of("metadata.name%3Da"), None).await;
    // An escaped comma is part of a value, so that this selector matches each name.
    let each = of("metadata.namespace!%3Dx%5C%2Cmetadata.name%3Da");
    for (method, path) in [
        ("GET", of("metadata.name%3Db")),
        ("GET", of("metadata.name!%3Da")),
        ("GET", each.clone()),
        ("GET", format!("{each}&watch=true")),
        ("DELETE", each),
    ] {
        forbidden(&client, method, &path, None).await;
    }
    served.stop().await;
}

async fn get_as(client: &Client, user: &str, path: &str) -> TestResponse {
    send(client, "GET", path, &[("impersonate-user", user)], Vec::new()).await
}

#[tokio::test]
async fn a_user_acts_as_another_only_with_the_verb_impersonate() {
    let served = Served::start().await;
    let client = served
        .account("a", &json!([rule("", "serviceaccounts", &["impersonate"])]))
        .await;
    served
        .account("b", &json!([rule("", "configmaps", &["list"])]))
        .await;
    let other = "system:serviceaccount:default:b";
    assert_eq!(get_as(&client, other, CONFIGMAPS).await.code, 200);
    assert_eq!(get_as(&client, other, SECRETS).await.code, 403);
    let elsewhere = "system:serviceaccount:kube-system:b";
    for user in [elsewhere, "admin", "jane"] {
        let response = get_as(&client, user, "/version").await;
        let message = response.body["message"].as_str().unwrap();
        assert!(
            message.contains("cannot impersonate resource"),
            "{user}: {message}"
        );
    }
    assert_eq!(get_as(&served.admin, other, CONFIGMAPS).await.code, 200);
    assert_eq!(
        get_as(&served.admin, other, SECRETS).await.code,
        403,
        "the rights of the other user only"
    );
    let headers = [
        ("impersonate-user", other),
        ("impersonate-group", "system:masters"),
    ];
    let response = send(&client, "GET", SECRETS, &headers, Vec::new()).await;
    assert_eq!(
        response.code, 403,
        "the group needs its own permission: {response:?}"
    );
    served.stop().await;
}

#[tokio::test]
async fn a_client_certificate_names_user_and_group() {
    let served = Served::start().await;
    let subject = json!({"kind": "Group", "name": "dev"});
    ok(
        &served.admin,
        "POST",
        BINDINGS,
        Some(&binding("dev", "ClusterRole", "view", &subject)),
    )
    .await;
    let file = |name: &str| std::fs::read_to_string(served.dir.path().join("api").join(name)).unwrap();
    let ca_key = KeyPair::from_pem(&file("ca.key")).unwrap();
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.distinguished_name = rcgen::DistinguishedName::new();
    ca.distinguished_name
        .push(DnType::CommonName, "sluice embedded CA");
    let issuer = Issuer::new(ca, ca_key);
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "jane");
    params.distinguished_name.push(DnType::OrganizationName, "dev");
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let auth = serde_json::from_value(json!({
        "client-certificate-data": STANDARD.encode(certificate.pem()),
        "client-key-data": STANDARD.encode(key.serialize_pem()),
    }));
    let client = served.client(auth.unwrap()).await;
    ok(&client, "GET", CONFIGMAPS, None).await;
    let message = forbidden(&client, "GET", SECRETS, None).await;
    assert!(message.contains("User \"jane\""), "{message}");
    served.stop().await;
}

#[tokio::test]
async fn an_update_creates_a_role_with_the_right_to_create_it() {
    let served = Served::start().await;
    let rules = json!([rule("rbac.authorization.k8s.io", "roles", &["update"])]);
    let client = served.account("deployer", &rules).await;
    let path = format!("{ROLES}/new");
    let role = json!({"metadata": {"name": "new", "resourceVersion": "1"}, "rules": []});
    forbidden(&client, "PUT", &path, Some(&role)).await;
    let mut of_another = role.clone();
    of_another["metadata"]["uid"] = json!("0b9d3c8e-3f6d-4a39-9a0c-7f2a51f1b111");
    let refused = call(&served.admin, "PUT", &path, Some(&of_another)).await;
    assert_eq!(refused.code, 409, "{refused:?}");
    let message = refused.body["message"].as_str().unwrap();
    assert!(message.contains("Key: /registry/roles/default/new,"), "{message}");
    let created = call(&served.admin, "PUT", &path, Some(&role)).await;
    assert_eq!(created.code, 201, "{created:?}");
    let missing = call(
        &served.admin,
        "PUT",
        &format!("{CONFIGMAPS}/new"),
        Some(&named("new")),
    )
    .await;
    assert_eq!(missing.code, 404, "an update creates no ConfigMap: {missing:?}");
    served.stop().await;
}

//! Reviews: `kubectl auth can-i`, `kubectl auth whoami`, reviews of other users.

use serde_json::{Value, json};

use super::{Served, forbidden, rule};
use crate::fixture::{call, ok};

const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

#[tokio::test]
async fn reviews_answer_by_the_roles() {
    let served = Served::start().await;
    let client = served
        .account("a", &json!([rule("", "configmaps", &["list"])]))
        .await;
    let review = |verb: &str| json!({"spec": {"resourceAttributes": {"verb": verb, "resource": "configmaps", "namespace": "default"}}});
    let allowed = ok(&client, "POST", ACCESS_REVIEWS, Some(&review("list"))).await;
    assert_eq!(
        allowed["status"],
        json!({"allowed": true, "reason": "RBAC: allowed by RoleBinding \"a/default\" of Role \"a\" to ServiceAccount \"a/default\""})
    );
    let denied = ok(&client, "POST", ACCESS_REVIEWS, Some(&review("delete"))).await;
    assert_eq!(denied["status"], json!({"allowed": false}));
    let group = "/apis/authorization.k8s.io/v1";
    let namespace = json!({"spec": {"namespace": "default"}});
    let rules = ok(
        &client,
        "POST",
        &format!("{group}/selfsubjectrulesreviews"),
        Some(&namespace),
    )
    .await;
    let expected = json!({"verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"]});
    let listed = rules["status"]["resourceRules"].as_array().unwrap();
    assert!(listed.contains(&expected), "{rules}");
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let me = ok(&client, "POST", path, Some(&json!({}))).await;
    assert_eq!(
        me["status"]["userInfo"]["username"],
        "system:serviceaccount:default:a"
    );
    assert_eq!(
        me["status"]["userInfo"]["groups"],
        json!([
            "system:serviceaccounts",
            "system:serviceaccounts:default",
            "system:authenticated"
        ])
    );
    let subjects = format!("{group}/subjectaccessreviews");
    let mut of_account = review("list");
    of_account["spec"]["user"] = "system:serviceaccount:default:a".into();
    let response = ok(&served.admin, "POST", &subjects, Some(&of_account)).await;
    assert_eq!(response["status"]["allowed"], true);
    forbidden(&client, "POST", &subjects, Some(&of_account)).await;
    let response = call(&served.admin, "POST", &subjects, Some(&review("list"))).await;
    assert_eq!(response.code, 422, "a user is required: {response:?}");
    served.stop().await;
}

#[tokio::test]
async fn a_local_review_answers_for_users_in_its_namespace() {
    const LOCAL: &str = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
    let served = Served::start().await;
    let client = served
        .account("a", &json!([rule("", "configmaps", &["list"])]))
        .await;
    let review = |verb: &str, namespace: &str| {
        let attributes = json!({"verb": verb, "resource": "configmaps", "namespace": namespace});
        json!({"spec": {"user": "system:serviceaccount:default:a", "resourceAttributes": attributes}})
    };
    let allowed = async |body: Value| ok(&served.admin, "POST", LOCAL, Some(&body)).await;
    let listed = allowed(review("list", "default")).await;
    assert_eq!(
        (&listed["status"]["allowed"], &listed["metadata"]["namespace"]),
        (&json!(true), &json!("default"))
    );
    assert_eq!(
        allowed(review("delete", "default")).await["status"]["allowed"],
        false
    );
    forbidden(&client, "POST", LOCAL, Some(&review("list", "default"))).await;
    let elsewhere = call(&served.admin, "POST", LOCAL, Some(&review("list", "kube-system"))).await;
    assert_eq!(elsewhere.code, 422, "{elsewhere:?}");
    let anywhere = LOCAL.replace("/namespaces/default", "");
    let anywhere = call(&served.admin, "POST", &anywhere, Some(&review("list", "default"))).await;
    assert_eq!(anywhere.code, 404, "{anywhere:?}");
    served.stop().await;
}

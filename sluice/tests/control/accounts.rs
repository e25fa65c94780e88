//! The inputs of a stack are read under its ServiceAccount.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::environment::TestEnvironment;
use crate::observe::condition;
use crate::refused_requests::{Refusal, open_proxy};

const SIZED: &str = r#"
variable "size" {
  default = "none"
}
resource "terraform_data" "it" {
  input = var.size
}
"#;

/// The roles of the proxy: who may read the Secret `closed`.
#[derive(Default)]
struct Roles {
    /// Whether the account `deployer` may.
    permitted: AtomicBool,
    /// The users whose requests were refused.
    refused: Mutex<Vec<String>>,
    /// Requests for the Secret in the name of the controller.
    by_controller: Mutex<Vec<String>>,
}

impl Roles {
    /// Returns the number of refused requests of an account.
    fn count(&self, account: &str) -> usize {
        let refused = self.refused.lock().unwrap();
        refused.iter().filter(|user| user.ends_with(account)).count()
    }

    fn refusal(self: &Arc<Self>) -> Refusal {
        let roles = Arc::clone(self);
        Arc::new(move |head, _| {
            if !head.uri.path().ends_with("/secrets/closed") {
                return None;
            }
            let user = head.headers.get("impersonate-user");
            let Some(user) = user.map(|user| user.to_str().unwrap().to_owned()) else {
                roles.by_controller.lock().unwrap().push(head.method.to_string());
                return None;
            };
            let is_permitted = match user.as_str() {
                "system:serviceaccount:team:tf-runner" => true,
                "system:serviceaccount:team:deployer" => roles.permitted.load(Ordering::SeqCst),
                _ => false,
            };
            (!is_permitted).then(|| {
                roles.refused.lock().unwrap().push(user.clone());
                (
                    format!("secrets \"closed\" is forbidden: User \"{user}\""),
                    "secrets",
                )
            })
        })
    }
}

/// Lets the accounts of the namespace read Secrets: only the proxy refuses requests.
async fn bind_accounts(env: &TestEnvironment) {
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": { "name": "accounts" },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "edit" },
        "subjects": [{ "apiGroup": group, "kind": "Group", "name": "system:serviceaccounts:team" }],
    });
    let api: Api<RoleBinding> = env.api();
    api.create(&PostParams::default(), &serde_json::from_value(binding).unwrap())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_reads_what_its_account_may_read() {
    let mut env = TestEnvironment::without_controller().await;
    let roles = Arc::new(Roles::default());
    bind_accounts(&env).await;
    env.kubeconfig = open_proxy(&env, roles.refusal()).await;
    env.default_account = Some("tf-runner".to_owned());
    env.start(4).await;
    env.commit("a", &[("main.tf", SIZED)]).await;
    env.secret("closed", &[("size", "hunter2-hunter")]).await;
    let reads = |account: &str, optional: bool| {
        json!({ "serviceAccountName": account,
            "varsFrom": [{ "kind": "Secret", "name": "closed", "optional": optional }] })
    };
    env.stack("own", reads("deployer", false)).await;
    env.stack("optional", reads("deployer", true)).await;
    let mut slow = reads("stranger", false);
    slow["retryInterval"] = json!("1h");
    env.stack("slow", slow).await;
    // Without `values` no input comes from the Secret, but its values are sensitive.
    let mut unused = json!({ "serviceAccountName": "stranger", "retryInterval": "1h" });
    unused["readInputsFromSecrets"] = json!([{ "name": "closed", "as": "closed" }]);
    env.stack("unused", unused).await;
    // The default of the definition, and the flag for a stack without an account.
    env.stack("usual", reads("tf-runner", false)).await;
    env.stack("unnamed", reads("", false)).await;
    let text = "False AccessDenied ServiceAccount team/deployer may not get Secret team/closed of varsFrom";
    for name in ["own", "optional"] {
        let waiting = env.wait_ready(name, text).await;
        let message = condition(&waiting, "Ready");
        assert!(
            message.contains("bind it to a role with the verb get on secrets closed"),
            "{message}"
        );
        assert!(!message.contains("hunter2"), "{message}");
        assert!(condition(&waiting, "Reconciling").contains("ProgressingWithRetry"));
        assert_eq!(condition(&waiting, "Stalled"), "");
    }
    env.wait_event("own", "Warning AccessDenied").await;
    for name in ["usual", "unnamed"] {
        env.wait_ready(name, "True TerraformAppliedSucceed").await;
        assert!(env.state(name).await.contains("hunter2-hunter"));
    }
    env.wait_ready("slow", "False AccessDenied").await;
    let text = "False AccessDenied ServiceAccount team/stranger may not get Secret team/closed of the spec";
    env.wait_ready("unused", text).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let requests = roles.count(":stranger");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(
        roles.count(":stranger"),
        requests,
        "a refusal waits for the retry interval"
    );
    for name in ["own", "optional", "slow", "unused"] {
        assert_eq!(env.history(name).await, "", "{name}");
    }

    roles.permitted.store(true, Ordering::SeqCst);
    env.wait_ready("own", "True TerraformAppliedSucceed").await;
    assert!(env.state("own").await.contains("hunter2-hunter"));
    let by_controller = roles.by_controller.lock().unwrap().clone();
    assert!(by_controller.is_empty(), "{by_controller:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroy_without_the_right_to_a_secret_uses_the_last_applied_record() {
    let mut env = TestEnvironment::without_controller().await;
    let roles = Arc::new(Roles::default());
    roles.permitted.store(true, Ordering::SeqCst);
    bind_accounts(&env).await;
    env.kubeconfig = open_proxy(&env, roles.refusal()).await;
    env.default_account = Some("tf-runner".to_owned());
    env.start(4).await;
    env.commit("a", &[("main.tf", SIZED)]).await;
    env.secret("closed", &[("size", "hunter2-hunter")]).await;
    // No value of it is an input.
    let unused = json!([{ "name": "closed", "as": "closed" }]);
    env.stack(
        "unused",
        json!({ "serviceAccountName": "deployer", "readInputsFromSecrets": unused, "deletionPolicy": "Destroy" }),
    )
    .await;
    env.wait_ready("unused", "True TerraformAppliedSucceed").await;
    roles.permitted.store(false, Ordering::SeqCst);
    env.delete("unused").await;
    env.wait_gone("unused").await;
    assert!(roles.count(":deployer") > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_whose_account_must_not_be_impersonated_says_so() {
    let mut env = TestEnvironment::without_controller().await;
    let refusal: Refusal = Arc::new(|head, _| {
        let text =
            "serviceaccounts \"tf-runner\" is forbidden: cannot impersonate resource \"serviceaccounts\"";
        let is_impersonated = head.headers.contains_key("impersonate-user");
        is_impersonated.then(|| (text.to_owned(), "serviceaccounts"))
    });
    env.kubeconfig = open_proxy(&env, refusal).await;
    env.default_account = Some("tf-runner".to_owned());
    env.start(4).await;
    env.commit("a", &[("main.tf", SIZED)]).await;
    env.secret("sizes", &[("size", "large")]).await;
    env.stack(
        "net",
        json!({ "fileMappings": [{ "location": "home", "path": "f",
        "secretRef": { "name": "sizes", "key": "size" } }] }),
    )
    .await;
    let text = "False AccessDenied tf-controller may not impersonate ServiceAccount team/tf-runner to read fileMappings";
    env.wait_ready("net", text).await;
    env.stack("other", json!({ "serviceAccountName": "a:b" })).await;
    env.wait_ready(
        "other",
        "False AccessDenied spec.serviceAccountName: \"a:b\" is not a valid name",
    )
    .await;
}

//! Approvals of plans by users of a tenant.

use std::time::Duration;

use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use super::{TENANT, Tenant, Writer};

/// The id of a plan: no stack needs it here.
pub(super) const PLAN: &str = "plan-main-b8e362c206-0123456789abcdef0123456789abcdef01234567";

impl Tenant {
    /// Returns a client that acts as this user of this group.
    pub(super) async fn user(&self, name: &str, group: &str) -> Writer {
        let mut config = self.plane.admin().config().await.unwrap();
        config.auth_info.impersonate = Some(name.to_owned());
        config.auth_info.impersonate_groups = Some(vec![group.to_owned()]);
        Writer {
            client: Client::try_from(config).unwrap(),
            uid: String::new(),
        }
    }

    /// Binds a role in the namespace to a user.
    pub(super) async fn bind(&self, role: &str, user: &str) {
        let (binding, role, user) = (
            format!("{role}-{user}"),
            format!("--clusterrole={role}"),
            format!("--user={user}"),
        );
        self.kubectl(&["-n", TENANT, "create", "rolebinding", &binding, &role, &user])
            .await;
    }
}

fn approvals(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("infra.sluice.dev", "v1alpha1", "PlanApproval");
    let resource = ApiResource::from_gvk_with_plural(&kind, "planapprovals");
    Api::namespaced_with(client.clone(), TENANT, &resource)
}

/// Returns the text of a refusal; empty without one.
fn refusal(answer: Result<DynamicObject, kube::Error>) -> String {
    match answer {
        Ok(_) => String::new(),
        Err(kube::Error::Api(refused)) => refused.message.clone(),
        Err(error) => panic!("{error}"),
    }
}

impl Writer {
    /// Returns why the API server refuses this approval; empty if it accepts it.
    async fn approve(&self, name: &str, approver: &str, groups: &Value, dry_run: bool) -> String {
        let approval = json!({ "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "PlanApproval", "metadata": { "name": name },
            "spec": { "approver": approver, "groups": groups, "planID": PLAN, "terraformRef": { "name": "net" } } });
        let params = PostParams {
            dry_run,
            ..PostParams::default()
        };
        let approval: DynamicObject = serde_json::from_value(approval).unwrap();
        refusal(approvals(&self.client).create(&params, &approval).await)
    }
}

/// Waits until the API server enforces the policy, which it loads in the background.
async fn wait_for_policy(user: &Writer) {
    for _ in 0..600 {
        let refusal = user.approve("dry-run", "nobody", &json!([]), true).await;
        if refusal.contains("approver must be the requesting user") {
            return;
        }
        // The binding of the role is loaded in the background too.
        assert!(
            refusal.is_empty() || refusal.contains("cannot create resource"),
            "{refusal}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the policy is not enforced");
}

/// A user approves only under the user's own name and with the user's own groups. Runs, and users who write stacks, do not approve.
pub(super) async fn check(tenant: &Tenant) {
    // The last one is waited for below: bindings are loaded in their order.
    tenant.bind("sluice-edit", "dave").await;
    for user in ["bob", "alice"] {
        tenant.bind("sluice-approve", user).await;
    }
    let (alice, bob, dave) = (
        tenant.user("alice", "ops").await,
        tenant.user("bob", "dev").await,
        tenant.user("dave", "ops").await,
    );
    wait_for_policy(&alice).await;
    let refused = alice.approve("as-bob", "bob", &json!([]), false).await;
    assert!(
        refused.contains("approver must be the requesting user, alice"),
        "{refused}"
    );
    let refused = bob.approve("as-ops", "bob", &json!(["dev", "ops"]), false).await;
    assert!(
        refused.contains("groups must be groups of the requesting user, bob"),
        "{refused}"
    );
    assert_eq!(
        alice.approve("of-alice", "alice", &json!(["ops"]), false).await,
        ""
    );
    assert_eq!(bob.approve("of-bob", "bob", &json!([]), false).await, "");

    // A user cannot change the approval of another user either.
    let as_bob = Patch::Merge(json!({ "spec": { "approver": "bob" } }));
    let administrator = approvals(&tenant.plane.admin().client().await.unwrap());
    let changed = administrator
        .patch("of-alice", &PatchParams::default(), &as_bob)
        .await;
    assert!(refusal(changed).contains("spec is immutable"));

    let runs = tenant.writer(TENANT, "tf-runner", &[]).await;
    let account = format!("system:serviceaccount:{TENANT}:tf-runner");
    for (writer, name) in [(&dave, "dave"), (&runs, account.as_str())] {
        let refused = writer.approve("without-role", name, &json!([]), false).await;
        assert!(
            refused.contains("cannot create resource \"planapprovals\""),
            "{refused}"
        );
    }
}

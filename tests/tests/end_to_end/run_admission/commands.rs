//! The commands of the program with the permissions of users: a permitted command works; a forbidden one changes nothing, and its error
//! names the verb, the object and the role to ask for.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use sluice_api::annotation::CANCEL;
use sluice_api::terraform::run_name;
use sluice_tests::binary;
use tokio::process::Command;

use super::approvals::PLAN;
use super::{TENANT, Tenant};

/// The roles in the order of their bindings, and a user of each.
const USERS: [(&str, &str); 4] = [
    ("sluice-view", "vera"),
    ("sluice-edit", "edda"),
    ("sluice-approve", "aron"),
    ("sluice-cancel", "cleo"),
];

const EDIT_STACKS: &str = "you may not patch terraforms in namespace team-a: ask for the role sluice-edit";
const APPROVE: &str = "you may not create planapprovals in namespace team-a: ask for the role sluice-approve";
const CANCEL_RUNS: &str =
    "you may not patch terraformruns in namespace team-a: ask for the role sluice-cancel";

/// A user who types commands.
struct CommandUser {
    name: &'static str,
    kubeconfig: PathBuf,
}

impl Tenant {
    /// Returns a user of the tenant; the empty name is the administrator.
    fn command_user(&self, name: &'static str) -> CommandUser {
        let mut config: Value = serde_json::from_str(self.plane.admin().kubeconfig()).unwrap();
        config["contexts"][0]["context"]["namespace"] = json!(TENANT);
        if !name.is_empty() {
            config["users"][0]["user"]["as"] = json!(name);
            config["users"][0]["user"]["as-groups"] = json!(["staff"]);
        }
        let kubeconfig = self.folder.path().join(format!("user-{name}"));
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        CommandUser { name, kubeconfig }
    }
}

impl CommandUser {
    /// Returns exit code, data and notes of a command.
    async fn types(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let output = Command::new(binary("sluice").unwrap())
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .env_remove("NO_COLOR")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }

    async fn may(&self, arguments: &[&str]) {
        let (code, _, notes) = self.types(arguments).await;
        assert_eq!(code, Some(0), "{} {arguments:?}: {notes}", self.name);
    }

    /// Asserts that the API server refuses the command, and that the error names the role to ask for.
    async fn may_not(&self, arguments: &[&str], advice: &str) {
        let (code, data, notes) = self.types(arguments).await;
        let who = self.name;
        assert_eq!(
            (code, data.as_str()),
            (Some(1), ""),
            "{who} {arguments:?}: {notes}"
        );
        assert!(
            notes.contains(&format!("User \"{who}\" cannot ")),
            "{arguments:?}: {notes}"
        );
        assert!(
            notes.ends_with(&format!("\n  next: {advice}\n")),
            "{who} {arguments:?}: {notes}"
        );
    }
}

/// The objects of one kind in the namespace.
fn objects(client: &Client, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(group, version, kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &format!("{}s", kind.to_lowercase()));
    Api::namespaced_with(client.clone(), TENANT, &resource)
}

fn stacks(client: &Client) -> Api<DynamicObject> {
    objects(client, "infra.contrib.fluxcd.io", "v1alpha2", "Terraform")
}

fn runs(client: &Client) -> Api<DynamicObject> {
    objects(client, "infra.sluice.dev", "v1alpha1", "TerraformRun")
}

async fn set_status(objects: &Api<DynamicObject>, name: &str, status: &Value) {
    let patch = Patch::Merge(json!({ "status": status }));
    objects
        .patch_status(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// Creates a stack with a plan that waits, the run that made it, and an active run. Returns the name of the active run.
async fn create_stack(tenant: &Tenant, client: &Client, name: &str, spec: &Value) -> String {
    let mut all = json!({ "interval": "1m", "sourceRef": { "kind": "GitRepository", "name": "code" },
        "writeOutputsToSecret": { "name": "outputs" } });
    all.as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    let stack = json!({ "apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": "Terraform",
        "metadata": { "name": name, "namespace": TENANT }, "spec": all });
    tenant.plane.apply(&stack.to_string()).await.unwrap();
    let waits = json!({ "observedGeneration": 1, "plan": { "pending": PLAN }, "conditions": [{ "type": "Ready", "status": "Unknown",
        "reason": "TerraformPlannedWithChanges", "message": "Plan generated", "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z" }] });
    set_status(&stacks(client), name, &waits).await;
    let uid = stacks(client).get(name).await.unwrap().metadata.uid.unwrap();
    let planned = json!({ "phase": "Succeeded", "planId": PLAN, "hasChanges": true, "changes": "+1 ~0 -0", "logTail": "planned\n" });
    let mut active = String::new();
    for (number, status) in [(1, planned), (2, json!({ "phase": "Planning" }))] {
        active = run_name(name, &uid, number);
        let run = json!({ "apiVersion": "infra.sluice.dev/v1alpha1", "kind": "TerraformRun",
            "metadata": { "name": active, "namespace": TENANT, "labels": { "infra.sluice.dev/terraform": name } },
            "spec": { "action": "Plan", "attempt": 1, "deadline": "1h", "trigger": "Revision",
                "source": { "kind": "GitRepository", "name": "code", "namespace": TENANT },
                "terraform": { "name": name, "uid": uid, "generation": 1 } } });
        tenant.plane.apply(&run.to_string()).await.unwrap();
        set_status(&runs(client), &active, &status).await;
    }
    active
}

/// Waits until the API server knows the role of the user that was bound last. It loads bindings in the background, in their order.
async fn wait_for_roles(tenant: &Tenant, user: &str) {
    let user = tenant.user(user, "staff").await;
    for _ in 0..600 {
        match stacks(&user.client).list(&ListParams::default()).await {
            Ok(_) => return,
            Err(kube::Error::Api(refused)) if refused.code == 403 => {}
            Err(error) => panic!("{error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the binding of the role is not loaded");
}

/// A viewer, an editor, an approver, a user who cancels, and the administrator.
pub(super) async fn check(tenant: &Tenant) {
    let client = tenant.plane.admin().client().await.unwrap();
    let source = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": { "name": "code", "namespace": TENANT }, "spec": { "interval": "1m", "url": "https://git.example/code.git" } });
    tenant.plane.apply(&source.to_string()).await.unwrap();
    let run = create_stack(tenant, &client, "app", &json!({})).await;
    create_stack(tenant, &client, "careful", &json!({ "approval": { "count": 1 } })).await;
    create_stack(tenant, &client, "plain", &json!({})).await;
    for (role, user) in USERS {
        tenant.bind(role, user).await;
    }
    wait_for_roles(tenant, USERS[USERS.len() - 1].1).await;

    check_viewer(&tenant.command_user("vera")).await;
    check_sources(tenant).await;
    check_approver(&client, &tenant.command_user("aron")).await;
    check_canceller(&client, &tenant.command_user("cleo"), &run).await;

    let editor = tenant.command_user("edda");
    for arguments in [["suspend", "app"], ["resume", "app"]] {
        editor.may(&arguments).await;
    }
    editor.may_not(&["cancel", "app", "--yes"], CANCEL_RUNS).await;
    editor.may_not(&["approve", "careful", "--yes"], APPROVE).await;
    check_fallback(&client, &editor).await;

    let administrator = tenant.command_user("");
    for arguments in [
        ["approve", "app", "--yes"],
        ["cancel", "careful", "--yes"],
        ["delete", "app", "--yes"],
    ] {
        administrator.may(&arguments).await;
    }
    assert_eq!(stacks(&client).get_opt("app").await.unwrap(), None);
}

/// Reads are permitted. Each action that is not permitted has a role of its own, or needs another role of the cluster.
async fn check_viewer(viewer: &CommandUser) {
    let allowed: [&[&str]; 11] = [
        &["get", "terraforms"],
        &["get", "sources"],
        &["get", "runs"],
        &["status"],
        &["tree"],
        &["history", "app"],
        &["describe", "app"],
        &["plan", "show", "app"],
        &["logs", "app"],
        &["outputs", "app"],
        &["export", "terraforms", "--all"],
    ];
    for arguments in allowed {
        viewer.may(arguments).await;
    }
    let delete = "you may not delete terraforms in namespace team-a: ask for the role sluice-edit";
    let events = "you may not list events in namespace team-a: ask for the role view";
    let list = "you may not list terraforms in all namespaces: ask for the role sluice-view";
    let secrets = "you may not get secrets in namespace team-a: ask for a role with get on secrets";
    let refused: [(&[&str], &str); 9] = [
        (&["suspend", "app"], EDIT_STACKS),
        (&["reconcile", "app"], EDIT_STACKS),
        (&["approve", "app", "--yes"], APPROVE),
        (&["approve", "careful", "--yes"], APPROVE),
        (&["cancel", "app", "--yes"], CANCEL_RUNS),
        (&["delete", "app", "--yes"], delete),
        (&["events", "app"], events),
        (&["outputs", "app", "--show-sensitive"], secrets),
        (&["get", "terraforms", "-A"], list),
    ];
    for (arguments, advice) in refused {
        viewer.may_not(arguments, advice).await;
    }
}

/// A viewer reads sources; an editor creates and changes them too.
async fn check_sources(tenant: &Tenant) {
    let (viewer, editor) = (tenant.command_user("vera"), tenant.command_user("edda"));
    let create: [&str; 7] = [
        "create",
        "source",
        "git",
        "more",
        "--url=https://git.example/more.git",
        "--branch=main",
        "--wait=false",
    ];
    let mut change = create;
    change[3] = "code";
    let advice = |verb: &str| {
        format!("you may not {verb} gitrepositories in namespace team-a: ask for the role sluice-edit")
    };
    let sources = async || {
        let columns = "jsonpath={range .items[*]}{.metadata.name} {.spec.url} {.spec.suspend};{end}";
        tenant
            .kubectl(&["-n", TENANT, "get", "gitrepositories", "-o", columns])
            .await
    };
    let before = sources().await;
    let refused: [(&[&str], &str); 5] = [
        (&create, "create"),
        (&change, "update"),
        (&["suspend", "source", "code"], "patch"),
        (&["reconcile", "source", "code"], "patch"),
        (&["delete", "source", "code", "--yes"], "delete"),
    ];
    for (arguments, verb) in refused {
        viewer.may_not(arguments, &advice(verb)).await;
    }
    assert_eq!(
        sources().await,
        before,
        "nothing that was refused has changed a source"
    );
    for arguments in [&create, &change] {
        editor.may(arguments).await;
    }
    let after = sources().await;
    assert_eq!(
        after.matches("https://git.example/more.git").count(),
        2,
        "{after}"
    );
}

async fn check_approver(client: &Client, approver: &CommandUser) {
    approver.may_not(&["suspend", "careful"], EDIT_STACKS).await;
    approver.may_not(&["cancel", "app", "--yes"], CANCEL_RUNS).await;
    let comment = "--comment=reviewed";
    // Also of a stack that requires no approvals: its spec stays as it is, which this user may not edit.
    for name in ["careful", "app"] {
        approver.may(&["approve", name, "--yes", comment]).await;
        let own = approvals_of(client, name).await;
        assert_eq!(own.len(), 1, "{own:?}");
        assert_eq!(
            (&own[0]["approver"], &own[0]["comment"], &own[0]["planID"]),
            (&json!("aron"), &json!("reviewed"), &json!(PLAN))
        );
        let stack = stacks(client).get(name).await.unwrap();
        assert_eq!(stack.data["spec"]["approvePlan"], Value::Null);
    }
}

/// Returns the specs of the PlanApprovals of a stack.
async fn approvals_of(client: &Client, stack: &str) -> Vec<Value> {
    let approvals = objects(client, "infra.sluice.dev", "v1alpha1", "PlanApproval");
    let approvals = approvals.list(&ListParams::default()).await.unwrap().items;
    let specs = approvals
        .into_iter()
        .map(|approval| approval.data["spec"].clone());
    specs
        .filter(|spec| spec["terraformRef"]["name"] == stack)
        .collect()
}

/// A user who may edit stacks and not create PlanApprovals approves by the id, which has no comment.
async fn check_fallback(client: &Client, editor: &CommandUser) {
    editor
        .may_not(&["approve", "plain", "--yes", "--comment=reviewed"], APPROVE)
        .await;
    let (code, _, notes) = editor.types(&["approve", "plain", "--yes"]).await;
    assert_eq!(code, Some(0), "{notes}");
    assert!(notes.contains("where nothing verifies your name"), "{notes}");
    assert_eq!(approvals_of(client, "plain").await, Vec::<Value>::new());
    let stack = stacks(client).get("plain").await.unwrap();
    assert_eq!(stack.data["spec"]["approvePlan"], PLAN);
    let managers = stack.metadata.managed_fields.unwrap_or_default();
    let mut managers = managers.iter().filter_map(|entry| entry.manager.as_deref());
    assert!(managers.any(|manager| manager == "sluice-approve:edda"));
}

async fn check_canceller(client: &Client, canceller: &CommandUser, run: &str) {
    let request = async || {
        let annotations = runs(client).get(run).await.unwrap().metadata.annotations;
        annotations.and_then(|all| all.get(CANCEL).cloned())
    };
    canceller
        .may_not(&["cancel", "app", "--suspend", "--yes"], EDIT_STACKS)
        .await;
    canceller.may_not(&["approve", "careful", "--yes"], APPROVE).await;
    assert_eq!(request().await, None, "nothing that was refused has cancelled it");
    canceller.may(&["cancel", "app", "--yes"]).await;
    assert!(request().await.is_some());
}

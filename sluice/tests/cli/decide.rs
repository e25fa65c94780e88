//! Commands that decide: the plan is shown, the user is asked, and only that plan is approved.

use std::time::Instant;

use futures::TryStreamExt as _;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};
use sluice_api::run::PlanApproval;

use crate::fixture::{PLAN, TIMEOUT, TestEnvironment, ready};
use crate::terminal;

impl TestEnvironment {
    /// Returns the PlanApprovals of a stack.
    async fn approvals(&self, stack: &str) -> Vec<PlanApproval> {
        let api: Api<PlanApproval> = Api::namespaced(self.client(), "default");
        let mut approvals = api.list(&ListParams::default()).await.unwrap().items;
        approvals.retain(|approval| approval.spec.terraform_ref.name == stack);
        approvals
    }

    /// Whether the user of the kubeconfig has approved [`PLAN`] of a stack by a PlanApproval, and the spec is as it was.
    async fn is_approved(&self, stack: &str) -> bool {
        assert_eq!(self.stack(stack).await["spec"]["approvePlan"], Value::Null);
        match self.approvals(stack).await.as_slice() {
            [] => false,
            [approval] => approval.spec.plan_id == PLAN && approval.spec.approver == "admin",
            more => panic!("{more:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_shown_before_it_is_approved() {
    let environment = TestEnvironment::with_stacks().await;
    let refused = terminal::run(&environment, 160, &["approve", "app"], "[y/N] ", "n\n");
    assert_eq!(refused.code, 1, "{}", refused.text);
    assert!(refused.text.contains("Nothing was approved."), "{}", refused.text);
    assert!(!environment.is_approved("app").await);
    let approved = terminal::run(&environment, 160, &["approve", "app"], "[y/N] ", "y\n");
    assert_eq!(approved.code, 0, "{}", approved.text);
    let (destroyed, created) = (
        approved.text.find("- terraform_data.old"),
        approved.text.find("+ terraform_data.new"),
    );
    assert!(
        destroyed.is_some() && destroyed < created,
        "what is destroyed comes first: {}",
        approved.text
    );
    assert!(environment.is_approved("app").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_is_replaced_while_the_user_reads_is_not_approved() {
    let environment = TestEnvironment::with_stacks().await;
    let deadline = Instant::now() + TIMEOUT;
    let mut terminal = terminal::start(&environment.kubeconfig(), 160, &["approve", "app"]);
    let is_asked = terminal.wait_for("[y/N] ", deadline);
    assert!(is_asked, "{}", terminal.text());
    let replaced = Patch::Merge(json!({ "status": { "plan": { "pending": format!("{PLAN}0") } } }));
    environment
        .stacks()
        .patch_status("app", &PatchParams::default(), &replaced)
        .await
        .unwrap();
    terminal.press("y\n").unwrap();
    let session = terminal::end(terminal, deadline);
    assert_eq!(session.code, 1, "{}", session.text);
    assert!(
        session.text.contains(&format!("the plan that waits is {PLAN}0")),
        "{}",
        session.text
    );
    assert!(environment.approvals("app").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_an_approval_needs_a_flag() {
    let environment = TestEnvironment::with_stacks().await;
    let asked = environment.sluice(&["approve", "app"]).await;
    assert_eq!(asked.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&asked.stderr).contains("Add --yes"),
        "{asked:?}"
    );
    let approved = environment
        .sluice(&["approve", "app", "--yes", "--id", PLAN])
        .await;
    assert_eq!(
        (approved.status.code(), approved.stdout.as_slice()),
        (Some(0), b"".as_slice())
    );
    assert!(environment.is_approved("app").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_plan_or_none_is_not_approved() {
    let environment = TestEnvironment::with_stacks().await;
    environment
        .create_stack("off", &serde_json::json!({"approvePlan": "disable"}), &waiting())
        .await;
    for (arguments, cause) in [
        (
            ["approve", "app", "--yes", "--id=plan-x"].as_slice(),
            "the plan that waits is plan-main",
        ),
        (
            ["approve", "net", "--yes"].as_slice(),
            "no plan waits for an approval",
        ),
        (
            ["approve", "off", "--yes"].as_slice(),
            "its plans are never applied",
        ),
    ] {
        let output = environment.sluice(arguments).await;
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains(cause),
            "{output:?}"
        );
    }
    assert_eq!(environment.stack("off").await["spec"]["approvePlan"], "disable");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_in_a_manifest_keeps_the_rest_of_the_file() {
    let environment = TestEnvironment::with_stacks().await;
    let (path, link) = (
        environment.directory().join("app.yaml"),
        environment.directory().join("link.yaml"),
    );
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let text = "# the app\nkind: Terraform\nmetadata: {name: app}\nspec:\n  interval: 1m # often\n";
    std::fs::write(&path, text).unwrap();
    let file = format!("--file={}", link.display());
    let output = environment.sluice(&["approve", "app", "--yes", &file]).await;
    assert!(output.status.success(), "{output:?}");
    let expected = text.replace("spec:\n", &format!("spec:\n  approvePlan: \"{PLAN}\"\n"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(!environment.is_approved("app").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_plans_that_wait_are_approved_one_by_one() {
    let environment = TestEnvironment::with_stacks().await;
    environment
        .create_stack("web", &serde_json::json!({}), &waiting())
        .await;
    environment.create_run("web", 1).await;
    let output = environment.sluice(&["approve", "--all", "--yes"]).await;
    assert!(output.status.success(), "{output:?}");
    for name in ["app", "web"] {
        assert!(environment.is_approved(name).await, "{name}");
    }
    assert!(!environment.is_approved("net").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_that_is_refused_does_not_keep_the_others_from_an_approval() {
    let environment = TestEnvironment::with_stacks().await;
    let reviewed = ["approve", "app", "--yes", "--comment", "reviewed"];
    let output = environment.sluice(&reviewed).await;
    assert!(output.status.success(), "{output:?}");
    environment.create_stack("web", &json!({}), &waiting()).await;
    let output = environment.sluice(&["approve", "--all", "--yes"]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.contains("default/app: admin has approved"),
        "its approval has a comment: {text}"
    );
    assert!(environment.is_approved("web").await, "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_shown_as_text_and_as_a_page() {
    let environment = TestEnvironment::with_stacks().await;
    let text = environment.stdout(&["plan", "show", "app", "--full"]).await;
    assert!(
        text.contains(PLAN) && text.contains("Plan: 1 to add, 0 to change, 1 to destroy."),
        "{text}"
    );
    assert_eq!(environment.stdout(&["plan", "app", "--full"]).await, text);
    let path = environment.directory().join("plan.html");
    let page = format!("--web={}", path.display());
    assert_eq!(environment.stdout(&["plan", "show", "app", &page]).await, "");
    assert!(
        std::fs::read_to_string(&path)
            .unwrap()
            .contains("- terraform_data.old (delete)")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_waited_for_before_it_is_shown() {
    let environment = TestEnvironment::with_stacks().await;
    let text = environment.stdout(&["plan", "show", "app", "--wait"]).await;
    assert!(text.contains(PLAN), "{text}");
    // No controller plans.
    environment.create_stack("new", &json!({}), &json!({})).await;
    let arguments = ["plan", "show", "new", "--wait", "--timeout", "1s"];
    let late = environment.sluice(&arguments).await;
    assert_eq!(late.status.code(), Some(4), "{late:?}");
    let failed = environment.sluice(&["plan", "show", "db", "--wait"]).await;
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_can_wait_for_its_apply() {
    let environment = TestEnvironment::with_stacks().await;
    let mut other = waiting();
    other["plan"] = json!({"pending": format!("{PLAN}0")});
    for (name, status, expected) in [
        ("applied", ready("True", "TerraformAppliedSucceed", "Applied"), 0),
        ("failed", ready("False", "TFExecApplyFailed", "exit status 1"), 1),
        ("replaced", other, 3),
    ] {
        environment.create_stack(name, &json!({}), &waiting()).await;
        let arguments = ["approve", name, "--yes", "--wait"];
        let (output, ()) = tokio::join!(environment.sluice(&arguments), apply(&environment, name, status));
        assert_eq!(output.status.code(), Some(expected), "{name}: {output:?}");
    }
    for flags in [["--all", "--yes", "--wait"], ["app", "--file=app.yaml", "--wait"]] {
        let refused = environment.sluice(&[&["approve"], &flags[..]].concat()).await;
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    }
}

/// Does what the controller does after the approval of the stack: it sees it, and the apply has this result.
async fn apply(environment: &TestEnvironment, name: &str, mut status: Value) {
    let approvals: Api<PlanApproval> = Api::namespaced(environment.client(), "default");
    let approvals = watcher(approvals, watcher::Config::default()).applied_objects();
    let of_stack =
        approvals.try_filter(|approval| std::future::ready(approval.spec.terraform_ref.name == name));
    let mut of_stack = Box::pin(of_stack);
    let approval = tokio::time::timeout(TIMEOUT, of_stack.try_next())
        .await
        .expect("an approval")
        .unwrap();
    assert_eq!(approval.unwrap().spec.plan_id, PLAN);
    let generation = environment.stack(name).await["metadata"]["generation"].clone();
    let mut seen = waiting();
    status["plan"] = status.get("plan").cloned().unwrap_or(Value::Null);
    for status in [&mut seen, &mut status] {
        status["observedGeneration"] = generation.clone();
        let patch = Patch::Merge(json!({ "status": status }));
        environment
            .stacks()
            .patch_status(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_has_the_comment_of_the_user_and_is_given_once() {
    let environment = TestEnvironment::with_stacks().await;
    let required = json!({ "approval": { "count": 2 } });
    environment.create_stack("careful", &required, &waiting()).await;
    for name in ["careful", "app"] {
        let arguments = ["approve", name, "--yes", "--comment", "reviewed"];
        let output = environment.sluice(&arguments).await;
        assert!(output.status.success(), "{output:?}");
        assert!(environment.is_approved(name).await, "{name}");
        assert_eq!(environment.approvals(name).await[0].spec.comment, "reviewed");
        let twice = environment.sluice(&arguments).await;
        assert!(twice.status.success(), "{twice:?}");
        let changed = environment
            .sluice(&["approve", name, "--yes", "--comment", "again"])
            .await;
        assert_eq!(changed.status.code(), Some(1));
        assert!(
            String::from_utf8_lossy(&changed.stderr).contains("has approved"),
            "{changed:?}"
        );
        assert!(environment.is_approved(name).await, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_is_written_where_an_approval_of_the_user_does_not_count() {
    let environment = TestEnvironment::with_stacks().await;
    let spec = json!({ "approvePlan": "replan-main-b8e3" });
    environment.create_stack("again", &spec, &waiting()).await;
    let comment = environment
        .sluice(&["approve", "again", "--yes", "--comment", "x"])
        .await;
    assert_eq!(comment.status.code(), Some(1), "{comment:?}");
    let text = String::from_utf8_lossy(&comment.stderr).into_owned();
    assert!(
        text.contains("that has no comment\n  next: sluice approve again\n"),
        "{text}"
    );
    let output = environment.sluice(&["approve", "again", "--yes"]).await;
    assert!(output.status.success(), "{output:?}");
    let stack = environment.stack("again").await;
    assert_eq!(stack["spec"]["approvePlan"], PLAN);
    let managers = stack["metadata"]["managedFields"].to_string();
    assert!(managers.contains("\"sluice-approve:admin\""), "{managers}");
    assert!(environment.approvals("again").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_shown_before_it_is_rejected_and_not_approved_afterwards() {
    let environment = TestEnvironment::with_stacks().await;
    let annotation = "infra.sluice.dev/rejected-plan";
    let kept = terminal::run(&environment, 160, &["reject", "app"], "[y/N] ", "n\n");
    assert_eq!(kept.code, 1, "{}", kept.text);
    assert!(kept.text.contains("Nothing was rejected."), "{}", kept.text);
    assert!(kept.text.contains("- terraform_data.old"), "{}", kept.text);
    let other = environment
        .sluice(&["reject", "app", "--yes", "--id=plan-x"])
        .await;
    assert_eq!(other.status.code(), Some(1), "{other:?}");
    assert_eq!(
        environment.stack("app").await["metadata"]["annotations"][annotation],
        serde_json::Value::Null
    );

    let output = environment
        .sluice(&["reject", "app", "--yes", "--comment", "too big"])
        .await;
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let stack = environment.stack("app").await;
    let request = stack["metadata"]["annotations"][annotation].as_str().unwrap();
    let request: serde_json::Value = serde_json::from_str(request).unwrap();
    assert_eq!(request["planID"], PLAN);
    assert_eq!(request["comment"], "too big");
    for field in ["rejectedBy", "rejectedAt"] {
        assert!(!request[field].as_str().unwrap().is_empty(), "{request}");
    }
    assert_eq!(stack["spec"]["approvePlan"], serde_json::Value::Null);

    for command in ["approve", "reject"] {
        let refused = environment.sluice(&[command, "app", "--yes"]).await;
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(text.contains(&format!("{PLAN} was rejected by ")), "{text}");
        assert!(text.contains("next: sluice replan app"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejection_is_read_on_narrow_and_wide_terminals() {
    let mut pictures = Vec::new();
    for columns in [80, 160] {
        let environment = TestEnvironment::with_stacks().await;
        let session = terminal::run(&environment, columns, &["reject", "app"], "[y/N] ", "y\n");
        assert_eq!(session.code, 0, "{}", session.text);
        pictures.push(terminal::seen(&session.text, columns));
    }
    insta::assert_snapshot!(pictures[0], @r"
    Plan of default/app
      id        plan-main-b8e362c206-0123456789abcdef0123456789abcdef01234567
      revision  main@sha1:b8e362c206f0d1c9a7e5b3d1f9e7c5a3b1d9f7e5
      changes   +1 ~0 -1

      - terraform_data.old (delete)
      + terraform_data.new (create)

    Reject plan-main-b8e362c206-0123456789abcdef0123456789abcdef01234567? [y/N] y
    Rejected plan-main-b8e362c206-0123456789abcdef0123456789abcdef01234567. A change
     of what the stack reads, or `sluice replan app`, makes a new plan.
    ");
    insta::assert_snapshot!(pictures[1], @r"
    Plan of default/app
      id        plan-main-b8e362c206-0123456789abcdef0123456789abcdef01234567
      revision  main@sha1:b8e362c206f0d1c9a7e5b3d1f9e7c5a3b1d9f7e5
      changes   +1 ~0 -1

      - terraform_data.old (delete)
      + terraform_data.new (create)

    Reject plan-main-b8e362c206-0123456789abcdef0123456789abcdef01234567? [y/N] y
    Rejected plan-main-b8e362c206-0123456789abcdef0123456789abcdef01234567. A change of what the stack reads, or `sluice replan app`, makes a new plan.
    ");
}

fn waiting() -> serde_json::Value {
    let mut status = ready("Unknown", "TerraformPlannedWithChanges", "Plan generated");
    status["plan"] = serde_json::json!({"pending": PLAN});
    status
}

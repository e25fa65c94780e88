//! Commands that act: what they write, what they refuse, and the exit codes of waiting.

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use sluice_api::annotation::{BREAK_THE_GLASS, REQUESTED_AT};

use crate::fixture::{PLAN, TIMEOUT, TestEnvironment, ready, stderr_of};
use crate::terminal;

/// Returns the exit code and the standard error of a command.
async fn run(environment: &TestEnvironment, arguments: &[&str]) -> (i32, String) {
    stderr_of(&environment.kubeconfig(), arguments).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_does_not_exist_is_not_a_missing_definition() {
    let environment = TestEnvironment::start().await;
    let (code, text) = run(&environment, &["reconcile", "source", "absent"]).await;
    assert_eq!(code, 1, "{text}");
    assert_eq!(
        text,
        "sluice: gitrepository default/absent does not exist\n  next: sluice get gitrepositories -n default\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_no_object_can_have_is_a_wrong_argument() {
    let environment = TestEnvironment::start().await;
    for (arguments, object) in [
        (["describe", "My App"].as_slice(), "get terraform default/My App"),
        (["status", "-n", "my team"].as_slice(), "list terraforms"),
    ] {
        let (code, text) = run(&environment, arguments).await;
        assert_eq!(code, 2, "{text}");
        let expected = format!("sluice: cannot {object}: the name or the namespace is not valid\n");
        assert!(text.starts_with(&expected), "{text}");
    }
    let (code, text) = run(&environment, &["suspend", "source"]).await;
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("write source NAME"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stacks_and_sources_are_suspended_and_resumed() {
    let environment = TestEnvironment::with_stacks().await;
    let suspended = run(&environment, &["suspend", "app"]).await;
    let next = "terraform default/app is suspended.\nNothing new starts before `sluice resume app`.\n";
    assert_eq!(suspended, (0, next.to_owned()));
    assert_eq!(environment.stack("app").await["spec"]["suspend"], true);
    let others = run(&environment, &["suspend", "--all"]).await;
    let next = "terraform default/app is suspended already.\n\
                terraform default/db is suspended.\n\
                terraform default/net is suspended.\n\
                Nothing new starts before these commands:\n  sluice resume db\n  sluice resume net\n";
    assert_eq!(others, (0, next.to_owned()), "--all would resume app too");
    let (code, text) = run(&environment, &["resume", "--all"]).await;
    assert_eq!(code, 0, "{text}");
    let (code, text) = run(&environment, &["suspend", "--all"]).await;
    assert_eq!(code, 0, "{text}");
    assert!(text.ends_with("before `sluice resume --all`.\n"), "{text}");
    let (code, text) = run(&environment, &["suspend", "sources", "-l", "team=net"]).await;
    assert_eq!((code, text.as_str()), (0, "There is no such GitRepository.\n"));
    let (code, text) = run(
        &environment,
        &["suspend", "source", "git", "infra", "-n", "default"],
    )
    .await;
    let next = "Nothing new starts before `sluice resume source git infra -n default`.\n";
    assert_eq!(
        (code, text),
        (0, format!("gitrepository default/infra is suspended.\n{next}"))
    );
    let again = run(&environment, &["suspend", "source", "infra"]).await;
    assert_eq!(
        again,
        (
            0,
            "gitrepository default/infra is suspended already.\n".to_owned()
        )
    );
    let refused = run(&environment, &["reconcile", "app"]).await;
    assert!(
        refused.0 == 1 && refused.1.contains("sluice resume app"),
        "{refused:?}"
    );
    let resumed = run(&environment, &["resume", "app"]).await;
    assert_eq!(resumed, (0, "terraform default/app is resumed.\n".to_owned()));
    assert_ne!(environment.stack("app").await["spec"]["suspend"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_ends_with_the_result_of_the_request() {
    let environment = TestEnvironment::with_stacks().await;
    // No controller answers.
    let (code, text) = run(&environment, &["reconcile", "net", "--wait", "--timeout", "1s"]).await;
    assert!(
        text.ends_with("  next: sluice get terraforms net -n default\n"),
        "a new request would make a second plan: {text}"
    );
    assert_eq!(code, 4, "{text}");
    assert!(
        text.contains("the controller has not seen the request yet"),
        "{text}"
    );
    for (status, expected) in [
        (ready("True", "TerraformAppliedSucceed", "Applied"), 0),
        (ready("False", "TFExecPlanFailed", "exit status 1"), 1),
        (plan_waits(), 3),
    ] {
        let before = requested(&environment).await;
        let arguments = ["reconcile", "net", "--wait"];
        let ((code, text), ()) = tokio::join!(
            run(&environment, &arguments),
            answer(&environment, &before, status)
        );
        assert_eq!(code, expected, "{text}");
    }
}

/// Returns the last request of the stack `net`.
pub(crate) async fn requested(environment: &TestEnvironment) -> String {
    let annotation = &environment.stack("net").await["metadata"]["annotations"][REQUESTED_AT];
    annotation.as_str().unwrap_or_default().to_owned()
}

/// Does what the controller does with the next request of the stack `net`.
pub(crate) async fn answer(environment: &TestEnvironment, before: &str, mut status: Value) {
    let stacks = environment.stacks();
    let is_requested = |stack: Option<&DynamicObject>| {
        let annotations = stack.and_then(|stack| stack.metadata.annotations.as_ref());
        annotations
            .and_then(|all| all.get(REQUESTED_AT))
            .is_some_and(|now| now != before)
    };
    let waiting = await_condition(stacks.clone(), "net", is_requested);
    tokio::time::timeout(TIMEOUT, waiting)
        .await
        .expect("a request")
        .unwrap();
    status["lastHandledReconcileAt"] = json!(requested(environment).await);
    status["plan"] = status.get("plan").cloned().unwrap_or(Value::Null);
    let patch = Patch::Merge(json!({ "status": status }));
    stacks
        .patch_status("net", &PatchParams::default(), &patch)
        .await
        .unwrap();
}

fn plan_waits() -> Value {
    let mut status = ready("Unknown", "TerraformPlannedWithChanges", "Plan generated");
    status["plan"] = json!({ "pending": PLAN });
    status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_says_what_it_destroys_and_asks() {
    let environment = TestEnvironment::with_stacks().await;
    environment
        .create_stack(
            "data",
            &json!({ "destroyResourcesOnDeletion": true }),
            &ready("True", "TerraformAppliedSucceed", "Applied"),
        )
        .await;
    let refused = terminal::run(&environment, 160, &["delete", "data"], "[y/N] ", "n\n");
    assert_eq!(refused.code, 1, "{}", refused.text);
    assert!(
        refused.text.contains("DESTROYS") && refused.text.contains("Nothing was deleted."),
        "{}",
        refused.text
    );
    assert_eq!(
        environment.stack("data").await["metadata"]["deletionTimestamp"],
        Value::Null
    );
    let (code, text) = run(&environment, &["delete", "data", "--yes", "--wait"]).await;
    assert_eq!(code, 0, "{text}");
    assert!(text.ends_with("terraform default/data is deleted.\n"), "{text}");
    let (code, text) = run(&environment, &["delete", "source", "infra", "--yes", "--wait"]).await;
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("app, db, net"),
        "the stacks that use it are named: {text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exported_object_can_be_applied_again() {
    let environment = TestEnvironment::with_stacks().await;
    let text = environment.stdout(&["export", "terraforms", "--all"]).await;
    assert_eq!(text.matches("---\n").count(), 3, "{text}");
    let path = environment.directory().join("export.yaml");
    std::fs::write(&path, &text).unwrap();
    assert!(
        !text.contains("status:") && !text.contains("uid:") && text.contains("kind: Terraform"),
        "{text}"
    );
    let loaded = sluice::manifests::load(&path).unwrap();
    assert_eq!((loaded.manifests.len(), loaded.problems.len()), (3, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_shown_before_its_release() {
    let environment = TestEnvironment::with_stacks().await;
    let (code, text) = run(&environment, &["unlock", "net", "--yes"]).await;
    assert!(
        code == 1 && text.contains("no run has met a state lock"),
        "{text}"
    );
    let mut status = ready("False", "TFExecPlanFailed", "Error acquiring the state lock");
    status["lock"] = json!({ "pending": "6a1f0c0e" });
    environment.create_stack("held", &json!({}), &status).await;
    let (code, text) = run(&environment, &["unlock", "held", "--yes"]).await;
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("6a1f0c0e") && text.contains("Make sure that no user or program works on the state"),
        "{text}"
    );
    let tfstate = &environment.stack("held").await["spec"]["tfstate"];
    assert_eq!(
        (&tfstate["forceUnlock"], &tfstate["lockIdentifier"]),
        (&json!("yes"), &json!("6a1f0c0e"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn only_failed_stacks_are_tried_again() {
    let environment = TestEnvironment::with_stacks().await;
    let (code, text) = run(&environment, &["retry", "net"]).await;
    assert!(code == 1, "{text}");
    let (code, text) = run(&environment, &["retry", "--all"]).await;
    assert_eq!(code, 0, "{text}");
    assert!(environment.stack("db").await["metadata"]["annotations"][REQUESTED_AT].is_string());
    assert_eq!(
        requested(&environment).await,
        "",
        "a stack that is ready is left alone"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_awaited_is_not_requested_any_more_after_a_signal() {
    let environment = TestEnvironment::with_stacks().await;
    let requested = |stack: Option<&DynamicObject>| {
        let annotations = stack.and_then(|stack| stack.metadata.annotations.as_ref());
        annotations.is_some_and(|all| all.contains_key(BREAK_THE_GLASS))
    };
    for signal in [Signal::TERM, Signal::HUP] {
        // No controller opens the session.
        let mut debug = environment.spawn(&["debug", "app"]);
        let stacks = environment.stacks();
        let request = await_condition(stacks.clone(), "app", requested);
        tokio::time::timeout(TIMEOUT, request)
            .await
            .expect("a request")
            .unwrap();
        let id = Pid::from_raw(debug.id().unwrap().cast_signed()).unwrap();
        kill_process(id, signal).unwrap();
        let ended = tokio::time::timeout(TIMEOUT, debug.wait()).await;
        assert_eq!(ended.expect("the command ends").unwrap().code(), Some(1));
        let stack = stacks.get("app").await.unwrap();
        assert!(!requested(Some(&stack)), "{:?}", stack.metadata.annotations);
    }
}

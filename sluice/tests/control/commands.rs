//! The commands that act, typed by a user while the controller works: what they interrupt, open, restore and release.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use sluice_api::annotation::REQUESTED_AT;
use sluice_api::run::{Action, Phase, TerraformRun, Trigger};
use sluice_api::source::GitRepository;
use sluice_api::terraform::Terraform;
use sluice_harness::cli::search_path;
use sluice_harness::terminal::Terminal;
use tokio::process::Command;

use crate::environment::{NAMESPACE, SOURCE, TIMEOUT, TestEnvironment};
use crate::locks::{ID, holder, lock_state};
use crate::observe::wait_for_file;

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

/// Returns exit code, data and notes of a command in the namespace of the stacks.
async fn sluice(env: &TestEnvironment, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(SLUICE);
    command
        .args(arguments)
        .args(["-n", NAMESPACE])
        .env("KUBECONFIG", &env.kubeconfig)
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(TIMEOUT, command.output()).await;
    let output = output.expect("the command ends").unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// As [`sluice`], for a command that succeeds. Returns data and notes.
async fn succeed(env: &TestEnvironment, arguments: &[&str]) -> (String, String) {
    let (code, data, notes) = sluice(env, arguments).await;
    assert_eq!(code, Some(0), "{arguments:?}: {notes}");
    (data, notes)
}

/// A module whose apply writes a file and does not end.
fn endless(began: &Path) -> String {
    format!(
        "resource \"terraform_data\" \"slow\" {{\n  provisioner \"local-exec\" {{\n    command = \"touch {}; while true; do sleep 0.1; done\"\n  }}\n}}\n",
        began.display()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_apply_writes_its_state_and_its_suspended_stack_does_not_try_again() {
    let env = TestEnvironment::new().await;
    let began = env.path("began");
    env.commit("a", &[("main.tf", &endless(&began))]).await;
    env.stack("net", json!({})).await;
    wait_for_file(&began).await;
    let is_applying = |run: &TerraformRun| {
        run.status
            .as_ref()
            .is_some_and(|status| status.phase == Phase::Applying)
    };
    env.wait_run("net", "an apply", is_applying).await;
    let arguments = ["cancel", "net", "--suspend", "--yes", "--wait"];
    let (data, notes) = succeed(&env, &arguments).await;
    assert_eq!(data, "");
    assert!(
        notes.contains("is Applying: the CLI completes the operations in progress and writes the state")
            && notes.contains("terraform team/net is suspended.\n")
            && notes.ends_with(" has ended: Failed.\n"),
        "{notes}"
    );
    let runs = env.runs("net").await;
    let last = runs.last().unwrap().status.clone().unwrap();
    assert!(last.message.contains("the run was cancelled"), "{}", last.message);
    let state: Value = serde_json::from_str(&env.state("net").await).unwrap();
    assert_eq!(state["resources"][0]["name"], "slow", "{state}");
    assert_eq!(holder(&env, "net").await, None, "the lock is released");
    let (code, _, notes) = sluice(&env, &["cancel", "net", "--yes"]).await;
    assert_eq!(code, Some(1), "{notes}");
    assert!(notes.contains("it has no active run"), "{notes}");
}

/// Runs a part of a session on a thread that may block.
async fn in_terminal(
    mut terminal: Terminal,
    part: impl FnOnce(&mut Terminal, Instant) + Send + 'static,
) -> Terminal {
    let work = move || {
        part(&mut terminal, Instant::now() + TIMEOUT);
        terminal
    };
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// Waits until the terminal shows a text.
fn wait_for(terminal: &mut Terminal, text: &str, deadline: Instant) {
    assert!(
        terminal.wait_for(text, deadline),
        "no {text:?} in: {}",
        terminal.text()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_in_a_terminal_keeps_the_stack_until_the_user_leaves_the_shell() {
    let env = TestEnvironment::new().await;
    let module = |value: &str| format!("resource \"terraform_data\" \"it\" {{ input = \"{value}\" }}");
    env.commit("a", &[("main.tf", &module("x"))]).await;
    env.stack("net", json!({})).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    let mut command = std::process::Command::new(SLUICE);
    command
        .args(["debug", "net", "-n", NAMESPACE])
        .env("KUBECONFIG", &env.kubeconfig)
        .env("PATH", search_path().unwrap())
        .env_remove("NO_COLOR");
    let terminal = Terminal::start(command, 160).unwrap();
    let terminal = in_terminal(terminal, |terminal, deadline| {
        wait_for(terminal, "It ends when you leave the shell.", deadline);
        // The sum is not in what the terminal echoes.
        terminal
            .press("ls; $(command -v terraform || command -v tofu) state list; echo sum-$((40 + 2))\n")
            .unwrap();
        wait_for(terminal, "sum-42", deadline);
        let text = terminal.text();
        assert!(
            text.contains("main.tf") && text.contains("terraform_data.it\r\n"),
            "{text}"
        );
    })
    .await;
    // Another stack applies the next commit; this one waits for the end of the session.
    env.commit("b", &[("main.tf", &module("y"))]).await;
    env.stack("other", json!({})).await;
    env.wait_ready("other", "True TerraformAppliedSucceed").await;
    assert_eq!(env.runs("net").await.len(), 2, "{}", env.history("net").await);
    let mut terminal = in_terminal(terminal, |terminal, _| terminal.press("exit\n").unwrap()).await;
    let ended = tokio::task::spawn_blocking(move || {
        let status = terminal.end(Instant::now() + TIMEOUT).unwrap();
        (status.and_then(|status| status.code()), terminal.text())
    });
    let (code, text) = ended.await.unwrap();
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.ends_with("The session ends; the next run makes a new plan.\r\n"),
        "{text}"
    );
    let is_of_b = |run: &TerraformRun| {
        run.status.as_ref().is_some_and(|s| s.applied) && run.spec.source.revision.contains("bbb")
    };
    let next = env.wait_run("net", "the apply of the next commit", is_of_b).await;
    let runs = env.runs("net").await;
    let session = runs
        .iter()
        .find(|run| run.spec.action == Action::BreakTheGlass)
        .and_then(|run| run.status.clone())
        .unwrap();
    let (left, began) = (
        session.finished_at.unwrap().0,
        next.status.unwrap().started_at.unwrap().0,
    );
    assert!(left <= began, "nothing ran during the session: {left} {began}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_state_is_held_and_its_serial_goes_up_with_the_next_apply() {
    let env = TestEnvironment::new().await;
    let module = |value: &str| format!("resource \"terraform_data\" \"it\" {{ input = \"{value}\" }}");
    let state = async || -> Value { serde_json::from_str(&env.state("net").await).unwrap() };
    env.commit("a", &[("main.tf", &module("one"))]).await;
    env.stack("net", json!({})).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    let first = state().await;
    env.commit("b", &[("main.tf", &module("two"))]).await;
    let is_copied = |run: &TerraformRun| {
        run.status
            .as_ref()
            .is_some_and(|status| status.applied && !status.state_copy.is_empty())
    };
    env.wait_run("net", "the second apply", is_copied).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;

    let (data, _) = succeed(&env, &["state", "list", "net", "-o", "json"]).await;
    let list: Value = serde_json::from_str(&data).unwrap();
    let copy = &list["items"][1];
    assert_eq!(list["items"][0]["id"], "current", "{list}");
    assert_eq!(copy["serial"], json!(first["serial"].to_string()), "{list}");
    let copy = format!("--copy={}", copy["id"].as_str().unwrap());
    let (data, _) = succeed(&env, &["state", "show", "net", &copy]).await;
    assert_eq!(data, "terraform_data.it\n");
    let restore = ["state", "restore", "net", &copy, "--yes"];
    let (code, data, notes) = sluice(&env, &restore).await;
    assert_eq!((code, data.as_str()), (Some(1), ""), "{notes}");
    assert!(
        notes.contains("it is not suspended\n  next: sluice suspend net -n team\n"),
        "{notes}"
    );
    succeed(&env, &["suspend", "net"]).await;
    let (_, notes) = succeed(&env, &restore).await;
    assert!(notes.contains("The state is restored: "), "{notes}");
    assert_eq!(state().await, first);
    assert_eq!(holder(&env, "net").await, None, "the lock is released");

    env.edit("net", json!({ "suspend": false, "approvePlan": "" }))
        .await;
    let (code, data, notes) = sluice(&env, &["replan", "net"]).await;
    assert_eq!(code, Some(3), "{data}{notes}");
    assert!(data.contains("terraform_data.it"), "{data}");
    succeed(&env, &["approve", "net", "--yes"]).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    let serial = |state: &Value| state["serial"].as_u64().unwrap();
    assert!(serial(&state().await) > serial(&first));
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_are_shown_unless_the_module_marks_them_as_sensitive() {
    let env = TestEnvironment::new().await;
    let module = "resource \"terraform_data\" \"it\" { input = \"db.internal\" }\n\
        output \"host\" { value = terraform_data.it.output }\n\
        output \"token\" {\n  value = \"hunter2\"\n  sensitive = true\n}\n";
    env.commit("a", &[("main.tf", module)]).await;
    env.stack("net", json!({ "writeOutputsToSecret": { "name": "out" } }))
        .await;
    env.wait_ready("net", "True TerraformOutputsWritten").await;
    let (data, notes) = succeed(&env, &["outputs", "net"]).await;
    assert_eq!(
        data, "NAME    VALUE\nhost    db.internal\ntoken   (sensitive)\n",
        "{notes}"
    );
    let (data, _) = succeed(&env, &["outputs", "net", "host"]).await;
    assert_eq!(data, "db.internal\n");
    let (code, data, notes) = sluice(&env, &["outputs", "net", "token"]).await;
    assert_eq!((code, data.as_str()), (Some(1), ""), "{notes}");
    let (data, _) = succeed(&env, &["outputs", "net", "token", "--show-sensitive"]).await;
    assert_eq!(data, "hunter2\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leftover_lock_is_shown_released_and_the_fields_are_set_back() {
    let env = TestEnvironment::new().await;
    let module = |value: &str| format!("resource \"terraform_data\" \"it\" {{ input = \"{value}\" }}");
    env.commit("a", &[("main.tf", &module("x"))]).await;
    env.stack("net", json!({})).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    lock_state(&env, "net").await;
    env.commit("b", &[("main.tf", &module("y"))]).await;
    env.wait_ready("net", "False TFExecPlanFailed").await;
    let (data, notes) = succeed(&env, &["unlock", "net", "--yes", "--wait"]).await;
    assert_eq!(data, "");
    for text in [
        ID,
        "other@elsewhere",
        "OperationTypeApply",
        "is released. The fields of spec.tfstate are set back.\n",
    ] {
        assert!(notes.contains(text), "no {text:?} in {notes}");
    }
    let applied = env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(holder(&env, "net").await, None);
    let spec = serde_json::to_value(&applied.spec).unwrap();
    let tfstate = &spec["tfstate"];
    assert!(
        tfstate["forceUnlock"] != "yes" && tfstate["lockIdentifier"] != ID,
        "{tfstate}"
    );
}

/// Does what source-controller does with the next request of the source, and returns the request. It publishes this module as the commit
/// `b`, if there is one, and answers when the stack `net` plans it.
async fn answer_fetch(env: &TestEnvironment, before: &str, module: Option<&str>) -> String {
    let sources: Api<GitRepository> = env.api();
    let is_requested = |source: Option<&GitRepository>| {
        let request = source.and_then(|source| source.annotations().get(REQUESTED_AT));
        request.is_some_and(|now| now != before)
    };
    let waiting = Box::pin(await_condition(sources.clone(), SOURCE, is_requested));
    let found = tokio::time::timeout(TIMEOUT, waiting).await;
    let source = found.expect("a request").unwrap().unwrap();
    let request = source.annotations()[REQUESTED_AT].clone();
    if let Some(module) = module {
        let revision = env.commit("b", &[("main.tf", module)]).await;
        let is_of_commit = |run: &TerraformRun| run.spec.source.revision == revision;
        env.wait_run("net", "a run of the commit", is_of_commit).await;
    }
    let ready = json!({ "type": "Ready", "status": "True", "reason": "Succeeded", "message": "stored artifact",
        "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let status = json!({ "observedGeneration": source.metadata.generation, "lastHandledReconcileAt": request, "conditions": [ready] });
    let patch = Patch::Merge(json!({ "status": status }));
    sources
        .patch_status(SOURCE, &PatchParams::default(), &patch)
        .await
        .unwrap();
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_commit_that_a_user_fetches_is_planned_once() {
    let env = TestEnvironment::new().await;
    let module = |value: &str| format!("resource \"terraform_data\" \"it\" {{ input = \"{value}\" }}");
    env.commit("a", &[("main.tf", &module("x"))]).await;
    env.stack("net", json!({})).await;
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    let (arguments, next) = (["reconcile", "net", "--with-source", "--wait"], module("y"));
    let ((_, notes), request) = tokio::join!(succeed(&env, &arguments), answer_fetch(&env, "", Some(&next)));
    assert!(
        notes.contains("terraform team/net plans main@sha1:bbbbbbbbbb"),
        "{notes}"
    );
    let stacks: Api<Terraform> = env.api();
    let requested = stacks
        .get("net")
        .await
        .unwrap()
        .annotations()
        .get(REQUESTED_AT)
        .cloned();
    assert_eq!(requested, None, "{notes}");
    let runs = env.runs("net").await;
    assert_eq!(runs.len(), 2, "{}", env.history("net").await);
    assert!(
        runs[1].status.as_ref().is_some_and(|status| status.applied),
        "{notes}"
    );

    // Without a new commit the request starts the plan.
    let ((_, notes), _) = tokio::join!(succeed(&env, &arguments), answer_fetch(&env, &request, None));
    assert!(
        notes.contains("Requested a plan of terraform team/net.\n"),
        "{notes}"
    );
    let runs = env.runs("net").await;
    assert_eq!(runs.len(), 3, "{}", env.history("net").await);
    assert_eq!(runs[2].spec.trigger, Trigger::Request);
}

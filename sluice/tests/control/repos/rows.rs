//! The row of a `Repo`: its commit and the state of its run.

use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use sluice_api::repo::Repo;
use sluice_api::run::TerraformRun;

use super::{MODULE, Repos, URL, ready, row};

const FAILING: &str = "resource \"terraform_data\" \"it\" { input = tolist([\"one\"])[1] }\n";
/// Applies for some seconds.
const SLOW: &str = "resource \"terraform_data\" \"it\" {
  provisioner \"local-exec\" { command = \"sleep 4\" }
}
";

/// The rows that a watch has seen, without repetitions.
fn follow_rows(api: Api<Repo>) -> Arc<Mutex<Vec<String>>> {
    let rows = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&rows);
    tokio::spawn(async move {
        let changes = watcher(api, watcher::Config::default()).default_backoff();
        let mut changes = changes.applied_objects().boxed();
        while let Some(change) = changes.next().await {
            let Ok(repo) = change else { continue };
            let mut seen = seen.lock().unwrap();
            if repo.status.is_some() && seen.last() != Some(&row(&repo)) {
                seen.push(row(&repo));
            }
        }
    });
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn each_commit_of_a_repo_has_one_run_and_a_row() {
    let repos = Repos::start().await;
    repos.create("app", json!({})).await;
    repos.wait_for_row("app", "- New").await;
    let source = repos.wait_for_source("app", |_| true).await;
    assert_eq!(
        (source.spec.url.as_str(), source.spec.interval.as_str()),
        (URL, "30s")
    );
    repos.publish("app", "a", &[("main.tf", MODULE)]).await;
    let repo = repos.wait_for_row("app", "a Completed").await;
    assert_eq!(
        ready(&repo),
        format!("True Completed Commit {} is applied", "a".repeat(40))
    );
    let runs = repos.env.runs("app").await;
    let status = repo.status.unwrap();
    assert_eq!(status.run_name, runs[0].name_any());
    assert_eq!(status.run_job_name, "", "the run is a process");

    repos.publish("app", "b", &[("main.tf", FAILING)]).await;
    let failed = repos.wait_for_row("app", "b Failed").await;
    assert!(
        ready(&failed).starts_with("False Failed ") && ready(&failed).contains("Invalid index"),
        "{}",
        ready(&failed)
    );
    let status = failed.status.unwrap();
    let runs = repos.env.runs("app").await;
    let run = runs.iter().find(|run| run.name_any() == status.run_name).unwrap();
    let log = &run.status.as_ref().unwrap().log_tail;
    assert!(
        log.contains("Invalid index"),
        "the log of the plan is kept: {log}"
    );

    // A commit without a change of a file: no run, and the failure stays.
    repos.publish("app", "c", &[("main.tf", FAILING)]).await;
    let unchanged = repos.wait_for_row("app", "c Failed").await;
    assert_eq!(unchanged.status.unwrap().run_name, "");
    repos.publish("app", "d", &[("main.tf", MODULE)]).await;
    repos.wait_for_row("app", "d Completed").await;
    insta::assert_snapshot!(repos.env.history("app").await, @"
    1 PlanAndApply Revision 1: Succeeded TerraformAppliedSucceed +1 ~0 -0
    2 PlanAndApply Revision 1: Failed TFExecPlanFailed
    3 PlanAndApply Revision 1: Succeeded TerraformPlannedNoChanges +0 ~0 -0
    ");
    repos.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_the_url_keeps_the_state_and_shows_no_old_run() {
    let repos = Repos::start().await;
    repos.create("app", json!({})).await;
    repos.publish("app", "a", &[("main.tf", MODULE)]).await;
    repos.wait_for_row("app", "a Completed").await;
    let other = "https://git.example.com/other.git";
    repos.edit("app", json!({ "url": other, "branch": "main" })).await;
    let source = repos
        .wait_for_source("app", |source| source.spec.url == other)
        .await;
    assert_eq!(source.spec.reference.unwrap().branch.as_deref(), Some("main"));
    let repo = repos.wait_for_row("app", "- New").await;
    assert_eq!(repo.status.unwrap().run_name, "");
    let more = format!("{MODULE}resource \"terraform_data\" \"more\" {{}}\n");
    repos.publish("app", "b", &[("main.tf", &more)]).await;
    repos.wait_for_row("app", "b Completed").await;
    let history = repos.env.history("app").await;
    assert!(
        history.ends_with("2 PlanAndApply Revision 1: Succeeded TerraformAppliedSucceed +1 ~0 -0"),
        "the first resource stays in the state: {history}"
    );
    repos.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_ends_after_an_edit_does_not_change_the_row() {
    let repos = Repos::start().await;
    let rows = follow_rows(repos.env.api());
    repos.create("app", json!({})).await;
    repos.publish("app", "a", &[("main.tf", SLOW)]).await;
    repos.wait_for_row("app", "a Running").await;
    let other = "https://git.example.com/other.git";
    repos.edit("app", json!({ "url": other })).await;
    repos
        .wait_for_source("app", |source| source.spec.url == other)
        .await;
    repos.wait_for_row("app", "- New").await;
    // The run of the old URL ends, and its stack reports it.
    repos.env.wait_ready("app", "True TerraformAppliedSucceed").await;
    repos.publish("app", "b", &[("main.tf", MODULE)]).await;
    repos.wait_for_row("app", "b Completed").await;
    let rows = rows.lock().unwrap().clone();
    let edited = rows.iter().rposition(|row| row == "- New").unwrap();
    let before = &rows[..edited];
    assert!(before.contains(&"a Running".to_owned()), "{rows:?}");
    assert!(!rows.contains(&"a Completed".to_owned()), "{rows:?}");
    assert!(rows[edited..].iter().all(|row| !row.starts_with('a')), "{rows:?}");
    repos.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repo_with_manual_approval_applies_the_approved_plan() {
    let repos = Repos::start().await;
    repos.create("app", json!({ "approval": "Manual" })).await;
    repos.publish("app", "a", &[("main.tf", MODULE)]).await;
    let waiting = repos
        .wait_for("app", "a plan that waits", |repo| {
            let status = repo.status.as_ref();
            status.is_some_and(|status| !status.pending_plan.is_empty())
        })
        .await;
    let plan = waiting.status.as_ref().unwrap().pending_plan.clone();
    assert_eq!(
        ready(&waiting),
        format!("Unknown ApprovalRequired Set spec.approvePlan to {plan} to apply this plan")
    );
    let has_applied = |run: &TerraformRun| run.status.as_ref().is_some_and(|status| status.attempted_apply);
    assert!(!repos.env.runs("app").await.iter().any(has_applied));
    repos.edit("app", json!({ "approvePlan": plan })).await;
    let done = repos.wait_for_row("app", "a Completed").await;
    assert_eq!(done.status.unwrap().pending_plan, "");
    assert!(repos.env.runs("app").await.iter().any(has_applied));
    repos.publish("app", "b", &[("main.tf", "")]).await;
    let second = repos
        .wait_for("app", "the next plan", |repo| {
            let status = repo.status.as_ref();
            status.is_some_and(|status| !status.pending_plan.is_empty())
        })
        .await;
    assert_ne!(
        second.status.unwrap().pending_plan,
        plan,
        "the old approval approves nothing"
    );
    repos.edit("app", json!({ "approval": "Auto" })).await;
    repos.wait_for_row("app", "b Completed").await;
    repos.end().await;
}

//! `Repo` objects: the repo-controller beside the tf-controller. The test plays the source controller.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use sluice_api::repo::Repo;
use sluice_api::source::GitRepository;
use sluice_api::terraform::Terraform;
use sluice_runtime::shutdown::Token;
use tokio::task::JoinHandle;

use crate::artifacts::{digest, pack};
use crate::environment::{TIMEOUT, TestEnvironment, options};

const URL: &str = "https://git.example.com/app.git";
const MODULE: &str = "resource \"terraform_data\" \"it\" { input = \"one\" }\n";
const FAILING: &str = "resource \"terraform_data\" \"it\" { input = file(\"missing.txt\") }\n";

/// The environment with both controllers.
struct Repos {
    env: TestEnvironment,
    stop: Token,
    controller: JoinHandle<()>,
}

impl Repos {
    async fn start() -> Self {
        let definitions = serde_json::to_value(sluice_api::optional_crds()).unwrap();
        let mut env = TestEnvironment::with_definitions(definitions.as_array().unwrap()).await;
        env.start(4).await;
        let mut settings = options(&env.client, 4, env.path("unused")).settings;
        settings.controller = sluice_repo_controller::CONTROLLER;
        let stop = Token::new();
        let running = sluice_repo_controller::run(settings, env.client.clone(), stop.clone());
        let controller = tokio::spawn(running);
        Self {
            env,
            stop,
            controller,
        }
    }

    async fn end(mut self) {
        self.stop.cancel();
        tokio::time::timeout(TIMEOUT, self.controller)
            .await
            .unwrap()
            .unwrap();
        self.env.stop().await;
    }

    async fn create(&self, name: &str, spec: Value) {
        let mut full_spec = json!({ "url": URL });
        for (field, value) in spec.as_object().unwrap() {
            full_spec[field] = value.clone();
        }
        let repo = json!({ "apiVersion": "terraform.gitops.k8s.io/v1alpha1", "kind": "Repo",
            "metadata": { "name": name }, "spec": full_spec });
        let api: Api<Repo> = self.env.api();
        api.create(&PostParams::default(), &serde_json::from_value(repo).unwrap())
            .await
            .unwrap();
    }

    async fn edit(&self, name: &str, spec: Value) {
        let (params, patch) = (PatchParams::default(), Patch::Merge(json!({ "spec": spec })));
        let api: Api<Repo> = self.env.api();
        api.patch(name, &params, &patch).await.unwrap();
    }

    /// Waits until the GitRepository of this name meets a condition.
    async fn wait_for_source(&self, name: &str, condition: impl Fn(&GitRepository) -> bool) -> GitRepository {
        let api: Api<GitRepository> = self.env.api();
        let wait = async {
            loop {
                if let Some(source) = api.get_opt(name).await.unwrap().filter(&condition) {
                    return source;
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, wait).await.unwrap()
    }

    /// Publishes these files as the commit `<mark repeated>` of the present URL and branch, as the source controller does.
    async fn publish(&self, name: &str, mark: &str, files: &[(&str, &str)]) {
        let source = self.wait_for_source(name, |_| true).await;
        let bytes = pack(files);
        let (digest, size, file) = (digest(&bytes), bytes.len(), format!("{name}-{mark}.tar.gz"));
        self.env.artifacts.put(&file, bytes);
        let branch = source.spec.reference.and_then(|reference| reference.branch);
        let revision = format!("{}@sha1:{}", branch.unwrap(), mark.repeat(40));
        let url = format!("{}/{file}", self.env.artifacts.url);
        let status = json!({ "status": {
            "observedGeneration": source.metadata.generation,
            "conditions": [{ "type": "Ready", "status": "True", "reason": "Succeeded", "message": "stored artifact",
                "lastTransitionTime": "2026-01-01T00:00:00Z" }],
            "artifact": { "digest": digest, "lastUpdateTime": "2026-01-01T00:00:00Z", "path": file,
                "revision": revision, "size": size, "url": url },
        } });
        let (api, params): (Api<GitRepository>, _) = (self.env.api(), PatchParams::default());
        api.patch_status(name, &params, &Patch::Merge(status))
            .await
            .unwrap();
    }

    /// Waits until the row is `<first letter of the commit> <status>`.
    async fn wait_for_row(&self, name: &str, row: &str) -> Repo {
        self.wait_for(name, row, |repo| {
            let status = repo.status.as_ref();
            status.is_some_and(|status| {
                let commit = status.git_sha.chars().next().unwrap_or('-');
                format!("{commit} {}", status.run_status.as_str()) == row
            })
        })
        .await
    }

    async fn wait_for(&self, name: &str, what: &str, condition: impl Fn(&Repo) -> bool) -> Repo {
        let api: Api<Repo> = self.env.api();
        let mut last = None;
        let wait = async {
            loop {
                last = api.get_opt(name).await.unwrap();
                if let Some(repo) = last.clone().filter(&condition) {
                    return repo;
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        match tokio::time::timeout(TIMEOUT, wait).await {
            Ok(repo) => repo,
            Err(_) => panic!(
                "{name} did not reach: {what}\n{:#?}\n{}",
                last.and_then(|repo| repo.status),
                self.env.history(name).await
            ),
        }
    }

    async fn state(&self, secret: &str) -> Option<Secret> {
        let api: Api<Secret> = self.env.api();
        api.get_opt(secret).await.unwrap()
    }
}

fn ready(repo: &Repo) -> String {
    let conditions = &repo.status.as_ref().unwrap().conditions;
    let ready = conditions.iter().find(|one| one.type_ == "Ready").unwrap();
    format!("{} {} {}", ready.status, ready.reason, ready.message)
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
        ready(&failed).starts_with("False Failed ") && ready(&failed).contains("missing.txt"),
        "{}",
        ready(&failed)
    );
    let status = failed.status.unwrap();
    let runs = repos.env.runs("app").await;
    let run = runs.iter().find(|run| run.name_any() == status.run_name).unwrap();
    let log = &run.status.as_ref().unwrap().log_tail;
    assert!(log.contains("missing.txt"), "the log of the plan is kept: {log}");

    // A file that the module does not read: no run, and the failure stays.
    let files = [("main.tf", FAILING), ("README.md", "# App")];
    repos.publish("app", "c", &files).await;
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
async fn two_repos_of_one_url_have_states_of_their_own() {
    let repos = Repos::start().await;
    for (name, workspace) in [("one", ""), ("two", "production")] {
        repos.create(name, json!({ "workspace": workspace })).await;
        let module = "variable \"size\" { default = \"small\" }\nresource \"terraform_data\" \"it\" { input = var.size }\n\
                      output \"size\" { value = terraform_data.it.output }\n";
        let files = [("main.tf", module), ("production.tfvars", "size = \"large\"\n")];
        repos.publish(name, "a", &files).await;
    }
    for (name, secret, size) in [
        ("one", "tfstate-default-one", "small"),
        ("two", "tfstate-production-two", "large"),
    ] {
        repos.wait_for_row(name, "a Completed").await;
        let stack: Api<Terraform> = repos.env.api();
        assert_eq!(
            stack.get(name).await.unwrap().status.unwrap().available_outputs,
            ["size"]
        );
        let data = repos.state(secret).await.unwrap().data.unwrap();
        let mut state = flate2::read::GzDecoder::new(&data["tfstate"].0[..]);
        let state: Value = serde_json::from_reader(&mut state).unwrap();
        assert_eq!(state["outputs"]["size"]["value"], size, "{name}");
    }
    // Another workspace of the first has a state of its own too; a variable file that does not exist fails.
    repos.edit("one", json!({ "workspace": "staging" })).await;
    let failed = repos.wait_for_row("one", "a Failed").await;
    assert!(ready(&failed).contains("staging.tfvars"), "{}", ready(&failed));
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
    assert!(repos.state("tfstate-default-app").await.is_none());
    repos.edit("app", json!({ "approvePlan": plan })).await;
    let done = repos.wait_for_row("app", "a Completed").await;
    assert_eq!(done.status.unwrap().pending_plan, "");
    assert!(repos.state("tfstate-default-app").await.is_some());
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

#[tokio::test(flavor = "multi_thread")]
async fn foreign_objects_of_the_name_are_reported_and_stay() {
    let repos = Repos::start().await;
    repos.env.commit("a", &[("main.tf", MODULE)]).await;
    repos.env.stack("app", json!({ "planOnly": true })).await;
    repos.create("app", json!({})).await;
    let taken = repos
        .wait_for("app", "the conflict", |repo| {
            repo.status
                .as_ref()
                .is_some_and(|status| !status.conditions.is_empty())
        })
        .await;
    assert!(
        ready(&taken).starts_with("False ErrResourceExists Terraform \"app\" already exists"),
        "{}",
        ready(&taken)
    );
    let stacks: Api<Terraform> = repos.env.api();
    let stack = stacks.get("app").await.unwrap();
    assert!(stack.owner_references().is_empty() && stack.spec.plan_only);
    let sources: Api<GitRepository> = repos.env.api();
    assert!(sources.get_opt("app").await.unwrap().is_none());
    // The label hands it over.
    let label = json!({ "metadata": { "labels": { "app.kubernetes.io/managed-by": "repo-controller" } } });
    stacks
        .patch("app", &PatchParams::default(), &Patch::Merge(label))
        .await
        .unwrap();
    repos
        .env
        .wait_for("app", "its owner", |stack| stack.owner_references().len() == 1)
        .await;
    repos.wait_for_source("app", |_| true).await;
    repos.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_destroys_nothing_and_a_new_repo_continues() {
    let repos = Repos::start().await;
    repos.create("app", json!({})).await;
    repos.publish("app", "a", &[("main.tf", MODULE)]).await;
    repos.wait_for_row("app", "a Completed").await;
    let state = repos.state("tfstate-default-app").await.unwrap();
    let api: Api<Repo> = repos.env.api();
    api.delete("app", &DeleteParams::default()).await.unwrap();
    repos.env.wait_gone("app").await;
    let left = repos.state("tfstate-default-app").await.unwrap();
    assert_eq!(left.data, state.data, "the state and its resources stay");
    let sources: Api<GitRepository> = repos.env.api();
    let gone = async {
        while sources.get_opt("app").await.unwrap().is_some() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, gone).await.unwrap();

    repos.create("app", json!({})).await;
    repos.publish("app", "a", &[("main.tf", MODULE)]).await;
    repos.wait_for_row("app", "a Completed").await;
    assert_eq!(
        repos.env.history("app").await,
        "1 PlanAndApply Revision 1: Succeeded TerraformPlannedNoChanges +0 ~0 -0"
    );
    repos.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_and_edited_objects_of_a_repo_are_restored() {
    let repos = Repos::start().await;
    repos.create("app", json!({})).await;
    repos.publish("app", "a", &[("main.tf", MODULE)]).await;
    repos.wait_for_row("app", "a Completed").await;
    let sources: Api<GitRepository> = repos.env.api();
    let edit = json!({ "spec": { "url": "https://git.example.com/evil.git", "interval": "5m" } });
    sources
        .patch("app", &PatchParams::default(), &Patch::Merge(edit))
        .await
        .unwrap();
    let source = repos
        .wait_for_source("app", |source| source.spec.url == URL)
        .await;
    assert_eq!(source.spec.interval.as_str(), "5m", "other fields are the user's");
    let uid = source.uid();
    sources.delete("app", &DeleteParams::default()).await.unwrap();
    repos.wait_for_source("app", |source| source.uid() != uid).await;
    repos.wait_for_row("app", "- New").await;
    repos.publish("app", "a", &[("main.tf", MODULE)]).await;
    repos.wait_for_row("app", "a Completed").await;
    assert_eq!(
        repos.env.runs("app").await.len(),
        1,
        "the same commit needs no other run"
    );
    repos.end().await;
}

//! The objects that a `Repo` owns, and their states.

use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use sluice_api::repo::Repo;
use sluice_api::source::GitRepository;
use sluice_api::terraform::{Terraform, name_with_digest};

use super::{MODULE, Repos, URL, ready, row};
use crate::environment::TIMEOUT;

#[tokio::test(flavor = "multi_thread")]
async fn a_url_that_the_api_refuses_is_reported() {
    let repos = Repos::start().await;
    repos
        .create("app", json!({ "url": "ftp://git.example.com/app.git" }))
        .await;
    let refused = repos
        .wait_for("app", "the refusal", |repo| {
            repo.status
                .as_ref()
                .is_some_and(|status| !status.conditions.is_empty())
        })
        .await;
    assert!(
        ready(&refused).starts_with("False ObjectRefused GitRepository: ")
            && ready(&refused).contains("spec.url"),
        "{}",
        ready(&refused)
    );
    assert_eq!(row(&refused), "- New");
    repos.edit("app", json!({ "url": URL })).await;
    repos.publish("app", "a", &[("main.tf", MODULE)]).await;
    repos.wait_for_row("app", "a Completed").await;
    repos.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_short_form_of_ssh_is_an_address() {
    let repos = Repos::start().await;
    let url = "git@git.example.com:team/app.git";
    let spec = json!({ "url": url, "secretRef": { "name": "deploy-key" } });
    repos.create("app", spec).await;
    let source = repos.wait_for_source("app", |_| true).await;
    assert_eq!(source.spec.url, "ssh://git@git.example.com/team/app.git");
    assert_eq!(source.spec.secret_ref.unwrap().name, "deploy-key");
    repos.publish("app", "a", &[("main.tf", MODULE)]).await;
    let row = repos.wait_for_row("app", "a Completed").await;
    assert_eq!(row.status.unwrap().observed_source, format!("master {url}"));
    repos.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn manual_approval_takes_effect_beside_a_url_that_is_refused() {
    let repos = Repos::start().await;
    repos.create("app", json!({})).await;
    repos.publish("app", "a", &[("main.tf", MODULE)]).await;
    repos.wait_for_row("app", "a Completed").await;
    let edit = json!({ "url": "ftp://git.example.com/app.git", "approval": "Manual" });
    repos.edit("app", edit).await;
    let is_refused = |repo: &Repo| ready(repo).starts_with("False ObjectRefused GitRepository: ");
    repos.wait_for("app", "the refusal", is_refused).await;
    let stacks: Api<Terraform> = repos.env.api();
    assert_eq!(stacks.get("app").await.unwrap().spec.approve_plan, "");
    // The next commit of the old URL waits.
    repos.publish("app", "b", &[("main.tf", "")]).await;
    repos
        .env
        .wait_ready("app", "Unknown TerraformPlannedWithChanges")
        .await;
    repos.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hyphen_in_a_workspace_leads_to_no_other_state() {
    let repos = Repos::start().await;
    // The CLI would name the Secret of both tfstate-prod-eu-app.
    let module = "variable \"size\" {}\noutput \"size\" { value = var.size }\n\
                  resource \"terraform_data\" \"it\" { input = var.size }\n";
    let states = [
        (
            "app",
            "prod-eu",
            format!("tfstate-prod-eu-{}", name_with_digest("app")),
        ),
        ("eu-app", "prod", "tfstate-prod-eu-app".to_owned()),
    ];
    for (name, workspace, _) in &states {
        repos.create(name, json!({ "workspace": workspace })).await;
        let (file, size) = (format!("{workspace}.tfvars"), format!("size = \"{name}\"\n"));
        repos
            .publish(name, "a", &[("main.tf", module), (&file, &size)])
            .await;
    }
    for (name, _, secret) in &states {
        repos.wait_for_row(name, "a Completed").await;
        assert_eq!(repos.output(secret, "size").await, *name);
    }
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
        assert_eq!(repos.output(secret, "size").await, size, "{name}");
    }
    // Another workspace of the first has a state of its own too; a variable file that does not exist fails.
    repos.edit("one", json!({ "workspace": "staging" })).await;
    let failed = repos.wait_for_row("one", "a Failed").await;
    assert!(ready(&failed).contains("staging.tfvars"), "{}", ready(&failed));
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

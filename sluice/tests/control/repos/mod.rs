//! `Repo` objects: the repo-controller beside the tf-controller. The test plays the source controller.

mod definitions;
mod objects;
mod rows;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_api::repo::Repo;
use sluice_api::source::GitRepository;
use sluice_runtime::shutdown::Token;
use tokio::task::JoinHandle;

use crate::artifacts::{digest, pack};
use crate::environment::{TIMEOUT, TestEnvironment, options};

const URL: &str = "https://git.example.com/app.git";
const MODULE: &str = "resource \"terraform_data\" \"it\" { input = \"one\" }\n";

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

    /// Waits for this [`row`].
    async fn wait_for_row(&self, name: &str, expected: &str) -> Repo {
        self.wait_for(name, expected, |repo| {
            repo.status.is_some() && row(repo) == expected
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
        if let Ok(repo) = tokio::time::timeout(TIMEOUT, wait).await {
            return repo;
        }
        panic!(
            "{name} did not reach: {what}\n{:#?}\n{}",
            last.and_then(|repo| repo.status),
            self.env.history(name).await
        )
    }

    /// Returns an output in the state of this Secret.
    async fn output(&self, secret: &str, output: &str) -> Value {
        let data = self.state(secret).await.expect(secret).data.unwrap();
        let state = flate2::read::GzDecoder::new(&data["tfstate"].0[..]);
        let state: Value = serde_json::from_reader(state).unwrap();
        state["outputs"][output]["value"].clone()
    }

    async fn state(&self, secret: &str) -> Option<Secret> {
        let api: Api<Secret> = self.env.api();
        api.get_opt(secret).await.unwrap()
    }
}

/// Returns `<first letter of the commit, or -> <status>`.
fn row(repo: &Repo) -> String {
    let status = repo.status.clone().unwrap_or_default();
    let commit = status.git_sha.chars().next().unwrap_or('-');
    format!("{commit} {}", status.run_status.as_str())
}

fn ready(repo: &Repo) -> String {
    let conditions = &repo.status.as_ref().unwrap().conditions;
    let ready = conditions.iter().find(|one| one.type_ == "Ready").unwrap();
    format!("{} {} {}", ready.status, ready.reason, ready.message)
}

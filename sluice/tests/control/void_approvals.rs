//! Void approvals: changes of provider, backend or action, each tested with the old id.

use serde_json::{Value, json};
use sluice_api::run::{Action, TerraformRun};
use sluice_harness::trial::TrialProvider;

use crate::environment::TestEnvironment;
use crate::observe::{condition, pending};

const WAITS: &str = "Unknown TerraformPlannedWithChanges Plan generated: set";

/// A test environment with the trial provider and a module with one of its resources.
struct ProviderTest {
    env: TestEnvironment,
    trial: TrialProvider,
}

impl ProviderTest {
    async fn start() -> Self {
        let trial = TrialProvider::create().unwrap();
        let mut env = TestEnvironment::without_controller().await;
        let config = trial.cli_config().display().to_string();
        env.environment.insert("TF_CLI_CONFIG_FILE".to_owned(), config);
        env.start(1).await;
        Self { env, trial }
    }

    /// Publishes a module with the provider's token, name and content of the resource, and the version in the lock file.
    async fn commit(&self, mark: &str, [token, name, content]: [&str; 3], version: Option<&str>) -> String {
        let head = self.trial.provider_block_with_token(&format!("{token:?}"));
        let thing =
            format!("resource \"trial_thing\" \"it\" {{\n  name = {name:?}\n  content = {content:?}\n}}\n");
        let (main, lock) = (head + &thing, version.map(TrialProvider::lock_file));
        let mut files = vec![("infra/main.tf", main.as_str()), ("README.md", mark)];
        files.extend(lock.as_deref().map(|text| ("infra/.terraform.lock.hcl", text)));
        self.env.commit(mark, &files).await
    }

    async fn stack(&self, more: Value) {
        let mut spec = json!({ "approvePlan": "", "path": "infra", "upgradeOnInit": false });
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        self.env.stack("net", spec).await;
    }

    /// Returns the id of the current pending plan, which must differ from these.
    async fn next_plan(&self, previous: &[String], what: &str) -> String {
        let waiting = self
            .env
            .wait_for("net", what, |stack| {
                let observed = stack.status.as_ref().and_then(|s| s.observed_generation);
                let new = pending(stack);
                observed == stack.metadata.generation
                    && condition(stack, "Ready").starts_with(WAITS)
                    && !new.is_empty()
                    && previous.iter().all(|old| digest(old) != digest(&new))
            })
            .await;
        pending(&waiting)
    }

    /// Writes an old id into the spec: nothing is applied, and the reason is reported.
    async fn assert_void(&self, old: &str, now: &str, what: &str) {
        let before = self.apply_count().await;
        self.env.edit("net", json!({ "approvePlan": old })).await;
        let still = self
            .env
            .wait_for("net", what, |stack| {
                let observed = stack.status.as_ref().and_then(|s| s.observed_generation);
                let ready = condition(stack, "Ready");
                observed == stack.metadata.generation && ready.contains("(approvePlan")
            })
            .await;
        assert_eq!(pending(&still), now, "{what}");
        assert_eq!(self.apply_count().await, before, "{what}");
    }

    async fn apply_count(&self) -> usize {
        let apply = |run: &&TerraformRun| run.spec.action == Action::Apply;
        self.env.runs("net").await.iter().filter(apply).count()
    }
}

fn digest(id: &str) -> &str {
    id.rsplit('-').next().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn another_provider_version_provider_argument_or_backend_voids_an_approval() {
    let at = ProviderTest::start().await;
    at.trial.release("1.1.0").unwrap();
    let usual = ["token-one", "it", "one"];
    at.commit("a", usual, Some("1.0.0")).await;
    at.stack(json!({})).await;
    let mut previous = vec![at.next_plan(&[], "the first plan").await];

    at.commit("b", usual, Some("1.1.0")).await;
    previous.push(
        at.next_plan(&previous, "a provider version in the lock file")
            .await,
    );
    Box::pin(at.assert_void(&previous[0], &previous[1], "with the newer provider")).await;

    at.commit("c", ["token-two", "it", "one"], Some("1.1.0")).await;
    previous.push(at.next_plan(&previous, "a provider argument").await);
    Box::pin(at.assert_void(&previous[1], &previous[2], "with another provider argument")).await;

    for (what, backend) in [
        ("a backend's place", json!({ "secretSuffix": "elsewhere" })),
        ("a backend's labels", json!({ "labels": { "team": "network" } })),
    ] {
        at.env.edit("net", json!({ "backendConfig": backend })).await;
        previous.push(at.next_plan(&previous, what).await);
        let [.., old, now] = previous.as_slice() else {
            panic!("two plans")
        };
        Box::pin(at.assert_void(old, now, what)).await;
    }
    assert!(at.trial.resources().unwrap().is_empty());

    // A commit that does not touch the inputs keeps the plan and its valid id.
    let revision = at.commit("d", ["token-two", "it", "one"], Some("1.1.0")).await;
    at.env
        .wait_for("net", "the unrelated revision", |stack| {
            stack.status.as_ref().unwrap().last_attempted_revision == revision
        })
        .await;
    at.env
        .edit("net", json!({ "approvePlan": previous.last() }))
        .await;
    let done = at.env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(
        done.status.unwrap().plan.unwrap().last_applied,
        *previous.last().unwrap()
    );
    assert_eq!(at.trial.resources().unwrap(), ["it"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_approval_of_an_update_does_not_approve_a_replacement_or_a_destroy() {
    let at = ProviderTest::start().await;
    at.commit("a", ["t", "it", "one"], None).await;
    at.stack(json!({ "approvePlan": "auto" })).await;
    at.env.wait_ready("net", "True TerraformAppliedSucceed").await;
    at.env.edit("net", json!({ "approvePlan": "" })).await;
    at.env.wait_observed("net").await;
    at.commit("b", ["t", "it", "two"], None).await;
    let update = at.next_plan(&[], "an update").await;
    at.commit("c", ["t", "other", "two"], None).await;
    let replace = at.next_plan(std::slice::from_ref(&update), "a replacement").await;
    Box::pin(at.assert_void(&update, &replace, "a replacement")).await;
    at.env.edit("net", json!({ "destroy": true })).await;
    let destroy = at
        .next_plan(&[update.clone(), replace.clone()], "a destroy")
        .await;
    for old in [&update, &replace] {
        Box::pin(at.assert_void(old, &destroy, "a destroy")).await;
    }
    assert_eq!(
        (at.trial.resources().unwrap(), at.trial.content("it").as_deref()),
        (vec!["it".to_owned()], Some("one"))
    );
    at.env.edit("net", json!({ "approvePlan": destroy })).await;
    at.env
        .wait_ready("net", "True TerraformAppliedSucceed Destroy applied successfully")
        .await;
    assert!(at.trial.resources().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_plan_that_would_use_another_provider_waits_again() {
    let at = ProviderTest::start().await;
    at.commit("a", ["t", "it", "one"], None).await;
    // Provider upgrades are allowed: the approved plan used the older version.
    at.stack(json!({ "approvePlan": "auto", "upgradeOnInit": true }))
        .await;
    at.env.wait_ready("net", "True TerraformAppliedSucceed").await;
    at.env.edit("net", json!({ "approvePlan": "" })).await;
    at.env.wait_observed("net").await;
    at.commit("b", ["t", "it", "two"], None).await;
    let old = at.next_plan(&[], "an update").await;
    at.trial.release("1.1.0").unwrap();
    at.env.raise_serial("net").await;
    at.env.edit("net", json!({ "approvePlan": old })).await;
    let new = at
        .next_plan(std::slice::from_ref(&old), "a plan with the newer provider")
        .await;
    assert_eq!(
        at.trial.content("it").as_deref(),
        Some("one"),
        "nothing was applied"
    );
    insta::assert_snapshot!(at.env.history("net").await, @"
    1 PlanAndApply Revision 1: Succeeded TerraformAppliedSucceed +1 ~0 -0
    2 Plan Spec 1: Succeeded TerraformPlannedWithChanges +0 ~1 -0
    3 Apply Approval 1: Failed PlanStale
    4 Plan Retry 2: Succeeded TerraformPlannedWithChanges +0 ~1 -0
    ");
    at.env.edit("net", json!({ "approvePlan": new })).await;
    at.env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(at.trial.content("it").as_deref(), Some("two"));
}

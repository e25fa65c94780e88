//! Approvals that are void: what a provider, a backend or an action has to do with it, each tried with the old id.

use crate::looks::{condition, pending};
use crate::world::World;
use serde_json::{Value, json};
use sluice_api::run::{Action, TerraformRun};
use sluice_harness::trial::Trial;

const WAITS: &str = "Unknown TerraformPlannedWithChanges Plan generated: set";

/// A world with the trial provider, and a module that makes one thing of it.
struct Trials {
    world: World,
    trial: Trial,
}

impl Trials {
    async fn start() -> Self {
        let trial = Trial::create().unwrap();
        let mut world = World::without_controller().await;
        let config = trial.cli_config().display().to_string();
        world.environment.insert("TF_CLI_CONFIG_FILE".to_owned(), config);
        world.start(1).await;
        Self { world, trial }
    }

    /// Publishes a module: the provider's token, the thing's name and content, the version that the lock file names.
    async fn commit(&self, mark: &str, [token, name, content]: [&str; 3], version: Option<&str>) -> String {
        let head = self.trial.module_head_with(&format!("{token:?}"));
        let thing =
            format!("resource \"trial_thing\" \"it\" {{\n  name = {name:?}\n  content = {content:?}\n}}\n");
        let (main, lock) = (head + &thing, version.map(Trial::lock_file));
        let mut files = vec![("infra/main.tf", main.as_str()), ("README.md", mark)];
        files.extend(lock.as_deref().map(|text| ("infra/.terraform.lock.hcl", text)));
        self.world.commit(mark, &files).await
    }

    async fn stack(&self, more: Value) {
        let mut spec = json!({ "approvePlan": "", "path": "infra", "upgradeOnInit": false });
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        self.world.stack("net", spec).await;
    }

    /// The id of the plan that waits now, after one of these waited.
    async fn next(&self, seen: &[String], what: &str) -> String {
        let waiting = self
            .world
            .until("net", what, |stack| {
                let observed = stack.status.as_ref().and_then(|s| s.observed_generation);
                let new = pending(stack);
                observed == stack.metadata.generation
                    && condition(stack, "Ready").starts_with(WAITS)
                    && !new.is_empty()
                    && seen.iter().all(|old| digest(old) != digest(&new))
            })
            .await;
        pending(&waiting)
    }

    /// Writes an old id into the spec: nothing is applied, and why is said.
    async fn approves_nothing(&self, old: &str, now: &str, what: &str) {
        let before = self.applies().await;
        self.world.edit("net", json!({ "approvePlan": old })).await;
        let still = self
            .world
            .until("net", what, |stack| {
                let observed = stack.status.as_ref().and_then(|s| s.observed_generation);
                let ready = condition(stack, "Ready");
                observed == stack.metadata.generation && ready.contains("(approvePlan")
            })
            .await;
        assert_eq!(pending(&still), now, "{what}");
        assert_eq!(self.applies().await, before, "{what}");
    }

    async fn applies(&self) -> usize {
        let apply = |run: &&TerraformRun| run.spec.action == Action::Apply;
        self.world.runs("net").await.iter().filter(apply).count()
    }
}

fn digest(id: &str) -> &str {
    id.rsplit('-').next().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn another_provider_version_provider_argument_or_backend_voids_an_approval() {
    let at = Trials::start().await;
    at.trial.release("1.1.0").unwrap();
    let usual = ["token-one", "it", "one"];
    at.commit("a", usual, Some("1.0.0")).await;
    at.stack(json!({})).await;
    let mut seen = vec![at.next(&[], "the first plan").await];

    at.commit("b", usual, Some("1.1.0")).await;
    seen.push(at.next(&seen, "a provider version in the lock file").await);
    Box::pin(at.approves_nothing(&seen[0], &seen[1], "with the newer provider")).await;

    at.commit("c", ["token-two", "it", "one"], Some("1.1.0")).await;
    seen.push(at.next(&seen, "a provider argument").await);
    Box::pin(at.approves_nothing(&seen[1], &seen[2], "with another provider argument")).await;

    for (what, backend) in [
        ("a backend's place", json!({ "secretSuffix": "elsewhere" })),
        ("a backend's labels", json!({ "labels": { "team": "network" } })),
    ] {
        at.world.edit("net", json!({ "backendConfig": backend })).await;
        seen.push(at.next(&seen, what).await);
        let [.., old, now] = seen.as_slice() else {
            panic!("two plans")
        };
        Box::pin(at.approves_nothing(old, now, what)).await;
    }
    assert!(at.trial.things().unwrap().is_empty());

    // A commit that the stack does not read keeps the plan, and then its id is good.
    let revision = at.commit("d", ["token-two", "it", "one"], Some("1.1.0")).await;
    at.world
        .until("net", "the unrelated revision", |stack| {
            stack.status.as_ref().unwrap().last_attempted_revision == revision
        })
        .await;
    at.world.edit("net", json!({ "approvePlan": seen.last() })).await;
    let done = at.world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(
        done.status.unwrap().plan.unwrap().last_applied,
        *seen.last().unwrap()
    );
    assert_eq!(at.trial.things().unwrap(), ["it"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approved_update_is_no_approval_of_a_replacement_or_a_destroy() {
    let at = Trials::start().await;
    at.commit("a", ["t", "it", "one"], None).await;
    at.stack(json!({ "approvePlan": "auto" })).await;
    at.world.ready("net", "True TerraformAppliedSucceed").await;
    at.world.edit("net", json!({ "approvePlan": "" })).await;
    at.world.observed("net").await;
    at.commit("b", ["t", "it", "two"], None).await;
    let update = at.next(&[], "an update").await;
    at.commit("c", ["t", "other", "two"], None).await;
    let replace = at.next(std::slice::from_ref(&update), "a replacement").await;
    Box::pin(at.approves_nothing(&update, &replace, "a replacement")).await;
    at.world.edit("net", json!({ "destroy": true })).await;
    let destroy = at.next(&[update.clone(), replace.clone()], "a destroy").await;
    for old in [&update, &replace] {
        Box::pin(at.approves_nothing(old, &destroy, "a destroy")).await;
    }
    assert_eq!(
        (at.trial.things().unwrap(), at.trial.content("it").as_deref()),
        (vec!["it".to_owned()], Some("one"))
    );
    at.world.edit("net", json!({ "approvePlan": destroy })).await;
    at.world
        .ready("net", "True TerraformAppliedSucceed Destroy applied successfully")
        .await;
    assert!(at.trial.things().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_plan_that_would_do_it_with_another_provider_waits_again() {
    let at = Trials::start().await;
    at.commit("a", ["t", "it", "one"], None).await;
    // Newer providers may be taken: what is approved is what was planned with the older one.
    at.stack(json!({ "approvePlan": "auto", "upgradeOnInit": true }))
        .await;
    at.world.ready("net", "True TerraformAppliedSucceed").await;
    at.world.edit("net", json!({ "approvePlan": "" })).await;
    at.world.observed("net").await;
    at.commit("b", ["t", "it", "two"], None).await;
    let old = at.next(&[], "an update").await;
    at.trial.release("1.1.0").unwrap();
    at.world.raise_serial("net").await;
    at.world.edit("net", json!({ "approvePlan": old })).await;
    let new = at
        .next(std::slice::from_ref(&old), "a plan with the newer provider")
        .await;
    assert_eq!(
        at.trial.content("it").as_deref(),
        Some("one"),
        "nothing was applied"
    );
    insta::assert_snapshot!(at.world.history("net").await, @"
    1 PlanAndApply Revision 1: Succeeded TerraformAppliedSucceed +1 ~0 -0
    2 Plan Spec 1: Succeeded TerraformPlannedWithChanges +0 ~1 -0
    3 Apply Approval 1: Failed PlanStale
    4 Plan Retry 2: Succeeded TerraformPlannedWithChanges +0 ~1 -0
    ");
    at.world.edit("net", json!({ "approvePlan": new })).await;
    at.world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(at.trial.content("it").as_deref(), Some("two"));
}

//! State locks that a run's own commands left behind: the answer that gave them was lost.

use std::path::PathBuf;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use sluice_api::run::TerraformRun;
use tokio_util::sync::CancellationToken;

use crate::backends::wrapped;
use crate::world::{NAMESPACE, Wish, World, appears, ending, status};

const ID: &str = "11111111-2222-3333-4444-555555555555";
const MODULE: &str = "resource \"terraform_data\" \"it\" { input = 1 }";

/// A CLI whose first such command waits until somebody has the lock, and fails.
struct Unheard {
    folder: PathBuf,
    marker: PathBuf,
}

/// What it says when it took the lock itself and did not hear of it.
const NO_ANSWER: &str =
    "Error: Error acquiring the state lock\\n\\nError message: Put \"https://127.0.0.1:1/\": EOF\\n";

impl Unheard {
    fn at(world: &World, words: &str) -> Self {
        Self::saying(world, words, NO_ANSWER)
    }

    fn saying(world: &World, words: &str, error: &str) -> Self {
        let marker = world.dir.path().join("asked");
        let (asked, go) = (marker.display(), marker.with_extension("go"));
        let before = format!(
            "case \"$*\" in {words}*)\n  if ! test -e {asked}; then\n    touch {asked}\n    \
             until test -e {go}; do sleep 0.05; done\n    \
             printf '\\n{error}' >&2\n    \
             exit 1\n  fi;;\nesac",
            go = go.display()
        );
        let folder = wrapped(world, &before);
        Self { folder, marker }
    }

    /// Carries out a run with it; `who` takes the lock of this workspace's state.
    async fn run(&self, world: &World, wish: Wish, workspace: &str, who: &str) -> TerraformRun {
        let name = world.prepare(wish).await;
        let mut context = world.context(&name);
        let path = context.environment.get_mut("PATH").unwrap();
        *path = format!("{}:{path}", self.folder.display());
        let taking = async {
            appears(&self.marker).await;
            take(world, workspace, who).await;
            std::fs::write(self.marker.with_extension("go"), "").unwrap();
        };
        let running = Box::pin(world.carry_out(&name, context, CancellationToken::new()));
        tokio::join!(running, taking);
        world.get(&name).await
    }
}

/// The Lease of a state is held, as the CLI holds it, from now on.
async fn take(world: &World, workspace: &str, who: &str) {
    let now = jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%S%.9fZ")
        .to_string();
    let info = json!({ "ID": ID, "Operation": "OperationTypeApply", "Info": "", "Who": who, "Version": "1.11.4",
        "Created": now, "Path": "" });
    let lease = json!({ "metadata": { "name": format!("lock-tfstate-{workspace}-net"), "namespace": NAMESPACE,
            "labels": { "tfstate": "true", "tfstateSecretSuffix": "net", "tfstateWorkspace": workspace,
                "app.kubernetes.io/managed-by": "terraform" },
            "annotations": { "app.terraform.io/lock-info": info.to_string() } },
        "spec": { "holderIdentity": ID } });
    let lease: Lease = serde_json::from_value(lease).unwrap();
    let api: Api<Lease> = Api::namespaced(world.client(), NAMESPACE);
    let name = lease.metadata.name.as_deref().unwrap();
    if api.get_opt(name).await.unwrap().is_some() {
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }
    api.create(&PostParams::default(), &lease).await.unwrap();
}

fn own(world: &World) -> String {
    world.context("any").identity.who
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_the_apply_did_not_hear_of_is_its_own() {
    let world = World::new("auto").await;
    world.commit(&[("main.tf", MODULE)]);
    let cli = Unheard::at(&world, "apply");
    let run = cli
        .run(&world, Wish::plan_and_apply(), "default", &own(&world))
        .await;
    assert_eq!(
        ending(&run),
        "Succeeded TerraformAppliedSucceed",
        "{:?}",
        run.status
    );
    assert_eq!(status(&run).lock, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_somebody_took_meanwhile_stands() {
    let world = World::new("auto").await;
    world.commit(&[("main.tf", MODULE)]);
    let cli = Unheard::at(&world, "apply");
    let run = cli
        .run(&world, Wish::plan_and_apply(), "default", "somebody@elsewhere")
        .await;
    assert_eq!(ending(&run), "Failed TFExecApplyFailed", "{:?}", run.status);
    assert_eq!(status(&run).lock.unwrap().id, ID);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_taken_while_the_run_looked_for_its_workspace_stands() {
    let world = World::new("auto").await;
    world.commit(&[("main.tf", MODULE)]);
    let blue = || Wish::plan_and_apply().with(json!({ "workspace": "blue" }));
    let first = world.run(blue()).await;
    assert_eq!(ending(&first), "Succeeded TerraformAppliedSucceed");
    world.commit(&[("main.tf", &MODULE.replace('1', "2"))]);
    let cli = Unheard::saying(&world, "workspace\\ new", "Workspace \"blue\" already exists\\n");
    // A person at this machine, by the name that its runs have too.
    let run = cli.run(&world, blue(), "blue", &own(&world)).await;
    assert_eq!(ending(&run), "Failed TFExecPlanFailed", "{:?}", run.status);
    assert_eq!(status(&run).lock.unwrap().id, ID);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_left_while_a_workspace_was_made_is_released_by_the_next_run() {
    let world = World::new("auto").await;
    world.commit(&[("main.tf", MODULE)]);
    let blue = || Wish::plan_and_apply().with(json!({ "workspace": "blue" }));
    let cli = Unheard::at(&world, "workspace\\ new");
    let run = cli.run(&world, blue(), "blue", &own(&world)).await;
    assert_eq!(ending(&run), "Failed SelectWorkspaceFailed", "{:?}", run.status);
    let next = world.run(blue()).await;
    assert_eq!(
        ending(&next),
        "Succeeded TerraformAppliedSucceed",
        "{:?}",
        next.status
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_somebody_that_keeps_a_workspace_from_being_made_is_told() {
    let world = World::new("auto").await;
    world.commit(&[("main.tf", MODULE)]);
    take(&world, "blue", "somebody@elsewhere").await;
    let run = world.run(Wish::plan().with(json!({ "workspace": "blue" }))).await;
    assert_eq!(ending(&run), "Failed SelectWorkspaceFailed", "{:?}", run.status);
    assert_eq!(status(&run).lock.unwrap().id, ID);
    assert!(
        status(&run).message.contains("somebody@elsewhere"),
        "{}",
        status(&run).message
    );
}

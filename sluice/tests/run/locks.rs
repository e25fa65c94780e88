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
        Self::ending(world, words, NO_ANSWER, 1)
    }

    fn ending(world: &World, words: &str, error: &str, code: u8) -> Self {
        let marker = world.dir.path().join("asked");
        let (asked, go) = (marker.display(), marker.with_extension("go"));
        let before = format!(
            "case \"$*\" in {words}*)\n  if ! test -e {asked}; then\n    touch {asked}\n    \
             until test -e {go}; do sleep 0.05; done\n    \
             printf '\\n{error}' >&2\n    \
             exit {code}\n  fi;;\nesac",
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

/// The next run takes the lock that was left, and applies.
async fn assert_next_applies(world: &World, wish: Wish) {
    let next = world.run(wish).await;
    assert_eq!(
        ending(&next),
        "Succeeded TerraformAppliedSucceed",
        "{:?}",
        next.status
    );
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

/// A Secret may hold the name of the user by which the lock's holder is known, and there may be more values than can be hidden.
fn hiding_the_holder(world: &World) -> [serde_json::Value; 2] {
    let many: Vec<_> = (0..=10_000).map(|n| format!("value-{n:05}")).collect();
    [json!({ "secrets": [own(world)] }), json!({ "secrets": many })]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_its_own_is_known_where_its_holder_is_hidden() {
    for number in 0..2 {
        let world = World::new("auto").await;
        world.commit(&[("main.tf", MODULE)]);
        let cli = Unheard::at(&world, "apply");
        let wish = Wish::plan_and_apply().with(hiding_the_holder(&world)[number].clone());
        let run = cli.run(&world, wish, "default", &own(&world)).await;
        let ended = ending(&run);
        assert_eq!(ended, "Succeeded TerraformAppliedSucceed", "{:?}", run.status);
        assert_eq!(status(&run).lock, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_a_dead_run_is_released_where_its_holder_is_hidden() {
    for number in 0..2 {
        let world = World::new("auto").await;
        world.commit(&[("main.tf", MODULE)]);
        let hiding = hiding_the_holder(&world)[number].clone();
        let mut blue = json!({ "workspace": "blue" });
        let cli = Unheard::at(&world, "workspace\\ new");
        let dead = cli
            .run(
                &world,
                Wish::plan_and_apply().with(blue.clone()),
                "blue",
                &own(&world),
            )
            .await;
        assert_eq!(ending(&dead), "Failed SelectWorkspaceFailed", "{:?}", dead.status);
        blue["secrets"] = hiding["secrets"].clone();
        let next = world.run(Wish::plan_and_apply().with(blue)).await;
        let ended = ending(&next);
        assert_eq!(ended, "Succeeded TerraformAppliedSucceed", "{:?}", next.status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_holder_of_a_lock_is_told_without_what_nobody_may_read() {
    const CANARY: &str = "canary-of-the-holder";
    let world = World::new("auto").await;
    world.commit(&[("main.tf", MODULE)]);
    take(&world, "default", &format!("{CANARY}@elsewhere")).await;
    let name = world
        .prepare(Wish::plan().with(json!({ "secrets": [CANARY] })))
        .await;
    let log = world.log_with(&name, ("RUST_LOG", "debug")).await;
    let run = world.get(&name).await;
    assert_eq!(ending(&run), "Failed TFExecInitFailed", "{:?}", run.status);
    let lock = status(&run).lock.unwrap();
    assert_eq!(
        (lock.id.as_str(), lock.who.as_str()),
        (ID, "(sensitive)@elsewhere")
    );
    let told = serde_json::to_string(&run).unwrap();
    assert!(!told.contains(CANARY) && !log.contains(CANARY), "{told}\n{log}");
    let logs = world.work().with_file_name(format!(".{NAMESPACE}_net.logs"));
    for entry in std::fs::read_dir(logs.join(&name)).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains(CANARY), "{}: {text}", path.display());
    }
}

/// A person at this machine, by the name that its runs have too.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_a_person_took_while_a_run_was_past_its_own_stands() {
    let world = World::new("auto").await;
    world.commit(&[("main.tf", MODULE)]);
    let cli = Unheard::ending(&world, "output", "Error: something else\\n", 1);
    let outputs = json!({ "outputs": { "name": "net-outputs" } });
    let failed = cli
        .run(
            &world,
            Wish::plan_and_apply().with(outputs),
            "default",
            &own(&world),
        )
        .await;
    assert_eq!(
        ending(&failed),
        "Failed TFExecOutputFailed",
        "{:?}",
        failed.status
    );
    assert_eq!(status(&failed).possible_lock_windows, Some(Vec::new()));
    let next = world.run(Wish::plan()).await;
    assert_eq!(ending(&next), "Failed TFExecPlanFailed", "{:?}", next.status);
    assert_eq!(status(&next).lock.unwrap().id, ID);
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
    let cli = Unheard::ending(
        &world,
        "workspace\\ new",
        "Workspace \"blue\" already exists\\n",
        1,
    );
    // A person at this machine, by the name that its runs have too.
    let run = cli.run(&world, blue(), "blue", &own(&world)).await;
    assert_eq!(ending(&run), "Failed TFExecPlanFailed", "{:?}", run.status);
    assert_eq!(status(&run).lock.unwrap().id, ID);
}

/// A crash is no error of the CLI's own: it ends otherwise, and names no lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_a_crash_left_is_released_by_the_next_run() {
    let world = World::new("auto").await;
    world.commit(&[("main.tf", MODULE)]);
    let cli = Unheard::ending(&world, "apply", "panic: runtime error\\n", 11);
    let run = cli
        .run(&world, Wish::plan_and_apply(), "default", &own(&world))
        .await;
    assert_eq!(ending(&run), "Failed TFExecApplyFailed", "{:?}", run.status);
    assert_next_applies(&world, Wish::plan_and_apply()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_left_while_a_workspace_was_made_is_released_by_the_next_run() {
    let world = World::new("auto").await;
    world.commit(&[("main.tf", MODULE)]);
    let blue = || Wish::plan_and_apply().with(json!({ "workspace": "blue" }));
    let cli = Unheard::at(&world, "workspace\\ new");
    let run = cli.run(&world, blue(), "blue", &own(&world)).await;
    assert_eq!(ending(&run), "Failed SelectWorkspaceFailed", "{:?}", run.status);
    assert_next_applies(&world, blue()).await;
}

/// `init` makes the first state under a lock. It shows the backend's request as it is, without a word on the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_left_while_the_state_was_initialised_is_released_by_the_next_run() {
    let world = World::new("auto").await;
    world.commit(&[("main.tf", MODULE)]);
    let no_answer =
        "Error: Post \"https://127.0.0.1:1/apis/coordination.k8s.io/v1/namespaces/team/leases\": EOF\\n";
    let cli = Unheard::ending(&world, "init", no_answer, 1);
    let run = cli
        .run(&world, Wish::plan_and_apply(), "default", &own(&world))
        .await;
    assert_eq!(ending(&run), "Failed TFExecInitFailed", "{:?}", run.status);
    assert_next_applies(&world, Wish::plan_and_apply()).await;
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

//! What a stack asks of the API: every request of controller, runner and CLI, counted at a door in front of it.

use crate::{
    leaders::door::Door,
    looks::condition,
    world::{NAMESPACE, World},
};
use kube::ResourceExt as _;
use serde_json::json;

/// A world whose controller, runners and CLIs come to the API by a door.
async fn counted() -> (World, Door) {
    let mut world = World::without_controller().await;
    let door = Door::open(world.client.clone()).await;
    world.kubeconfig = door.way(world.dir.path(), "all");
    world.start(4).await;
    (world, door)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pass_that_follows_reads_nothing_but_its_run() {
    let (world, door) = counted().await;
    let (began, gate) = (world.path("began"), world.path("gate"));
    let text = format!(
        "resource \"terraform_data\" \"slow\" {{\n  provisioner \"local-exec\" {{\n    command = \"touch {}; until [ -e {} ]; do sleep 0.1; done\"\n  }}\n}}\n",
        began.display(),
        gate.display()
    );
    world.commit("a", &[("main.tf", &text)]).await;
    world.stack("net", json!({})).await;
    crate::looks::appears(&began).await;
    world
        .until("net", "applying", |stack| {
            condition(stack, "Apply").contains("Apply started")
        })
        .await;
    let beat = beats(&world, None).await;
    door.forget();
    let beat = beats(&world, beat).await;
    beats(&world, beat).await;
    let asked: Vec<_> = door
        .asked()
        .into_iter()
        .filter(|asked| !asked.contains("watch="))
        .collect();
    std::fs::write(&gate, "").unwrap();
    world.ready("net", "True").await;
    let run = world.runs("net").await.remove(0).name_any();
    let of_run = format!("/terraformruns/{run}");
    let others: Vec<_> = asked.iter().filter(|asked| !asked.contains(&of_run)).collect();
    assert!(!asked.is_empty() && others.is_empty(), "{others:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_meets_a_lock_reads_the_runs_of_its_own_stack_only() {
    let (world, door) = counted().await;
    crate::locks::hold(&world, "net").await;
    let module = "resource \"terraform_data\" \"it\" { input = 1 }";
    world.commit("a", &[("main.tf", module)]).await;
    world.stack("net", json!({ "retryInterval": "1h" })).await;
    world.ready("net", "False").await;
    let lists = |asked: &String| {
        asked.starts_with("GET") && asked.contains("/terraformruns?") && !asked.contains("watch=")
    };
    let in_namespace = format!("/namespaces/{NAMESPACE}/");
    let asked = door.asked().into_iter().filter(lists);
    let asked: Vec<_> = asked.filter(|asked| asked.contains(&in_namespace)).collect();
    let own = |asked: &&String| asked.contains("labelSelector=") && asked.contains("net");
    assert!(asked.len() > 1, "the controller's and the runner's: {asked:#?}");
    assert!(asked.iter().all(|asked| own(&asked)), "{asked:#?}");
}

/// Waits until the run says once more that it lives.
async fn beats(
    world: &World,
    before: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime>,
) -> Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime> {
    let beat = |run: &sluice_api::run::TerraformRun| run.status.as_ref().and_then(|s| s.heartbeat_at.clone());
    let run = world
        .run("net", "a sign of life", |run| {
            beat(run).is_some() && beat(run) != before
        })
        .await;
    beat(&run)
}

/// A stack whose apply writes what it reads.
const FED: &str = "variable \"when\" { default = \"\" }\nresource \"terraform_data\" \"it\" { input = var.when }\n\
    output \"when\" { value = uuid() }\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_that_feeds_itself_slows_down_and_says_why() {
    let world = World::new().await;
    world.commit("a", &[("main.tf", FED)]).await;
    let spec = json!({ "writeOutputsToSecret": { "name": "fed" },
        "varsFrom": [{ "kind": "Secret", "name": "fed", "optional": true }] });
    world.stack("net", spec).await;
    let paused = world
        .until("net", "paused", |stack| {
            condition(stack, "Reconciling").contains("InputsChangeOften")
        })
        .await;
    assert!(
        condition(&paused, "Ready").starts_with("Unknown Progressing The inputs changed again"),
        "{}",
        condition(&paused, "Ready")
    );
    let runs = world.runs("net").await;
    assert!(runs.len() <= 3, "{}", world.history("net").await);
    // A person need not wait.
    world.request("net", "now").await;
    let next = runs.len() + 1;
    let asked = |run: &sluice_api::run::TerraformRun| run.name_any().ends_with(&format!("-{next}"));
    let run = world.run("net", "the one that was asked for", asked).await;
    assert!(run.annotations().contains_key("reconcile.fluxcd.io/requestedAt"));
    world.event("net", "Warning InputsChangeOften").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_downloaded_module_reads_of_the_artifact_counts() {
    let world = World::new().await;
    let far = |text: &str| crate::artifacts::pack(&[("main.tf", text)]);
    world.artifacts.put(
        "far.tar.gz",
        far("output \"it\" { value = file(\"${path.root}/../common.txt\") }\n"),
    );
    world
        .artifacts
        .put("plain.tar.gz", far("output \"it\" { value = 1 }\n"));
    let call = |name: &str| {
        format!(
            "module \"m\" {{\n  source = \"{}/{name}.tar.gz\"\n}}\noutput \"it\" {{ value = module.m.it }}\n",
            world.artifacts.url
        )
    };
    let (reads, plain) = (call("far"), call("plain"));
    let files = |common: &'static str| {
        [
            ("reads/main.tf", reads.clone()),
            ("plain/main.tf", plain.clone()),
            ("common.txt", common.to_owned()),
        ]
    };
    let publish = async |mark: &str, common| {
        let files = files(common);
        let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        world.commit(mark, &files).await
    };
    publish("a", "one").await;
    for name in ["reads", "plain"] {
        let outputs = json!({ "name": format!("{name}-out") });
        let spec = json!({ "path": name, "writeOutputsToSecret": outputs });
        world.stack(name, spec).await;
        world.ready(name, "True").await;
    }
    let noted = world
        .runs("reads")
        .await
        .remove(0)
        .status
        .unwrap()
        .module_reads
        .unwrap();
    assert!(
        noted.whole_artifact && noted.reason.starts_with("module m: main.tf: "),
        "{noted:?}"
    );
    let revision = publish("b", "two").await;
    for name in ["reads", "plain"] {
        let tried = |stack: &sluice_api::terraform::Terraform| {
            let status = stack.status.as_ref();
            status.is_some_and(|status| status.last_attempted_revision == revision)
                && condition(stack, "Ready").starts_with("True")
        };
        world.until(name, "tried", tried).await;
    }
    assert_eq!(world.runs("reads").await.len(), 2);
    assert_eq!(world.value("reads-out", "it").await.as_deref(), Some("two"));
    assert_eq!(world.runs("plain").await.len(), 1);
}

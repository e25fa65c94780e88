//! Counts the API requests of controller, runner and CLI at a proxy.

use kube::ResourceExt as _;
use serde_json::json;

use crate::environment::{NAMESPACE, TestEnvironment};
use crate::leader_loss::proxy::ApiProxy;
use crate::observe::condition;

/// Creates a test environment whose controller, runners and CLIs use the API through a proxy.
async fn environment_with_proxy() -> (TestEnvironment, ApiProxy) {
    let mut env = TestEnvironment::without_controller().await;
    let proxy = ApiProxy::open(env.client.clone()).await;
    env.kubeconfig = proxy.write_kubeconfig(env.dir.path(), "all");
    env.start(4).await;
    (env, proxy)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_reconciliation_reads_only_its_run() {
    let (env, proxy) = environment_with_proxy().await;
    let (began, gate) = (env.path("began"), env.path("gate"));
    let text = format!(
        "resource \"terraform_data\" \"slow\" {{\n  provisioner \"local-exec\" {{\n    command = \"touch {}; until [ -e {} ]; do sleep 0.1; done\"\n  }}\n}}\n",
        began.display(),
        gate.display()
    );
    env.commit("a", &[("main.tf", &text)]).await;
    env.stack("net", json!({})).await;
    crate::observe::wait_for_file(&began).await;
    env.wait_for("net", "applying", |stack| {
        condition(stack, "Apply").contains("Apply started")
    })
    .await;
    let beat = wait_for_heartbeat(&env, None).await;
    proxy.clear_requests();
    let beat = wait_for_heartbeat(&env, beat).await;
    wait_for_heartbeat(&env, beat).await;
    let requests: Vec<_> = proxy
        .requests()
        .into_iter()
        .filter(|request| !request.contains("watch="))
        .collect();
    std::fs::write(&gate, "").unwrap();
    env.wait_ready("net", "True").await;
    let run = env.runs("net").await.remove(0).name_any();
    let of_run = format!("/terraformruns/{run}");
    let others: Vec<_> = requests
        .iter()
        .filter(|request| !request.contains(&of_run))
        .collect();
    assert!(!requests.is_empty() && others.is_empty(), "{others:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_meets_a_lock_reads_only_the_runs_of_its_stack() {
    let (env, proxy) = environment_with_proxy().await;
    crate::locks::lock_state(&env, "net").await;
    let module = "resource \"terraform_data\" \"it\" { input = 1 }";
    env.commit("a", &[("main.tf", module)]).await;
    env.stack("net", json!({ "retryInterval": "1h" })).await;
    env.wait_ready("net", "False").await;
    let lists = |request: &String| {
        request.starts_with("GET") && request.contains("/terraformruns?") && !request.contains("watch=")
    };
    let in_namespace = format!("/namespaces/{NAMESPACE}/");
    let requests = proxy.requests().into_iter().filter(lists);
    let requests: Vec<_> = requests
        .filter(|request| request.contains(&in_namespace))
        .collect();
    let own = |request: &&String| request.contains("labelSelector=") && request.contains("net");
    assert!(
        requests.len() > 1,
        "those of controller and runner: {requests:#?}"
    );
    assert!(requests.iter().all(|request| own(&request)), "{requests:#?}");
}

/// Waits for the next heartbeat of the run.
async fn wait_for_heartbeat(
    env: &TestEnvironment,
    before: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime>,
) -> Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime> {
    let beat = |run: &sluice_api::run::TerraformRun| run.status.as_ref().and_then(|s| s.heartbeat_at.clone());
    let run = env
        .wait_run("net", "a heartbeat", |run| {
            beat(run).is_some() && beat(run) != before
        })
        .await;
    beat(&run)
}

/// A stack whose apply changes its own inputs.
const SELF_CHANGING: &str = "variable \"when\" { default = \"\" }\nresource \"terraform_data\" \"it\" { input = var.when }\n\
    output \"when\" { value = uuid() }\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_that_changes_its_own_inputs_slows_down_and_reports_why() {
    let env = TestEnvironment::new().await;
    env.commit("a", &[("main.tf", SELF_CHANGING)]).await;
    let spec = json!({ "writeOutputsToSecret": { "name": "fed" },
        "varsFrom": [{ "kind": "Secret", "name": "fed", "optional": true }] });
    env.stack("net", spec).await;
    let paused = env
        .wait_for("net", "paused", |stack| {
            condition(stack, "Reconciling").contains("InputsChangeOften")
        })
        .await;
    assert!(
        condition(&paused, "Ready").starts_with("Unknown Progressing The inputs changed again"),
        "{}",
        condition(&paused, "Ready")
    );
    let runs = env.runs("net").await;
    assert!(runs.len() <= 3, "{}", env.history("net").await);
    // A user request is not delayed.
    env.request("net", "now").await;
    let next = runs.len() + 1;
    let is_requested = |run: &sluice_api::run::TerraformRun| run.name_any().ends_with(&format!("-{next}"));
    let run = env.wait_run("net", "the requested run", is_requested).await;
    assert!(run.annotations().contains_key("reconcile.fluxcd.io/requestedAt"));
    env.wait_event("net", "Warning InputsChangeOften").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn artifact_files_read_by_a_downloaded_module_are_inputs() {
    let env = TestEnvironment::new().await;
    let far = |text: &str| crate::artifacts::pack(&[("main.tf", text)]);
    env.artifacts.put(
        "far.tar.gz",
        far("output \"it\" { value = file(\"${path.root}/../common.txt\") }\n"),
    );
    env.artifacts
        .put("plain.tar.gz", far("output \"it\" { value = 1 }\n"));
    let call = |name: &str| {
        format!(
            "module \"m\" {{\n  source = \"{}/{name}.tar.gz\"\n}}\noutput \"it\" {{ value = module.m.it }}\n",
            env.artifacts.url
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
        env.commit(mark, &files).await
    };
    publish("a", "one").await;
    for name in ["reads", "plain"] {
        let outputs = json!({ "name": format!("{name}-out") });
        let spec = json!({ "path": name, "writeOutputsToSecret": outputs });
        env.stack(name, spec).await;
        env.wait_ready(name, "True").await;
    }
    let noted = env
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
        env.wait_for(name, "tried", tried).await;
    }
    assert_eq!(env.runs("reads").await.len(), 2);
    assert_eq!(env.value("reads-out", "it").await.as_deref(), Some("two"));
    assert_eq!(env.runs("plain").await.len(), 1);
}

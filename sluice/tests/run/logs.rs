//! Logs of runs: printed in a pod while the CLI runs, their end in the status, and a longer log in Secrets.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use serde_json::json;
use sluice_api::run::{RunStatusLimit, TerraformRun};
use sluice_harness::cli;
use sluice_runtime::client;
use sluice_tf_runner::run::{Context, PodLog};
use tokio_util::sync::CancellationToken;

use crate::cli_wrapper::wrap_cli;
use crate::environment::{
    NAMESPACE, RunSetup, TestEnvironment, assert_ending, ending, status, terminate, wait_for_file, wait_until,
};

const RUNS_PAGE: &str = include_str!("../../../docs/concepts/runs.md");
const CANARY: &str = "canary-of-the-log";

/// An apply that prints much, then a sensitive value, and fails.
const FAILING: &str = r#"
variable "word" {}
resource "terraform_data" "it" {
  provisioner "local-exec" {
    command     = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo line $i; done; echo the word is $WORD; exit 3"
    environment = { WORD = var.word }
  }
}
"#;

/// The log of a pod.
#[derive(Clone, Default)]
pub(crate) struct Printed(Arc<Mutex<Vec<u8>>>);

impl Printed {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        sluice_runtime::sync::lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The clients and settings of a runner in a pod of its own.
pub(crate) fn in_pod(env: &TestEnvironment, name: &str) -> (Context, Printed) {
    let (mut context, printed) = (env.context(name), Printed::default());
    context.pod_log = Some(PodLog::new(printed.clone()));
    (context, printed)
}

/// Executes a run as in a pod. Returns the run and what the pod printed.
pub(crate) async fn run_in_pod(
    env: &TestEnvironment,
    setup: RunSetup,
    cli: Option<&Path>,
) -> (TerraformRun, String) {
    let name = env.prepare(setup).await;
    let (mut context, printed) = in_pod(env, &name);
    if let Some(cli) = cli {
        let path = context.environment.get_mut("PATH").unwrap();
        *path = format!("{}:{path}", cli.display());
    }
    env.execute_run(&name, context, CancellationToken::new()).await;
    (env.get(&name).await, printed.text())
}

/// A command of the documentation that reads the log of a run.
#[derive(Clone, Copy)]
pub(crate) enum ReadCommand {
    /// For a log of one part.
    OnePart,
    /// For a log of any number of parts.
    AllParts,
}

/// Reads the log of a run with a command of the documentation.
pub(crate) fn read_log(env: &TestEnvironment, run: &str, command: ReadCommand) -> String {
    let mut documented = RUNS_PAGE.lines().filter(|line| line.ends_with("| gunzip"));
    let documented = documented.nth(command as usize).unwrap();
    let command = documented.replace("NAME", run);
    let script =
        format!("kubectl config set-context --current --namespace={NAMESPACE} > /dev/null\n{command}");
    let kubectl = cli::kubectl().unwrap();
    let config = env.dir.path().join("user.kubeconfig");
    std::fs::copy(&env.kubeconfig, &config).unwrap();
    let output = Command::new("/bin/sh")
        .args(["-euc", &script])
        .env("KUBECONFIG", config)
        .env("KUBECACHEDIR", env.dir.path().join("cache"))
        .env(
            "PATH",
            format!("{}:/usr/bin:/bin", kubectl.parent().unwrap().display()),
        )
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

async fn secret(env: &TestEnvironment, name: &str) -> Option<Secret> {
    let api: Api<Secret> = Api::namespaced(env.client(), NAMESPACE);
    api.get_opt(name).await.unwrap()
}

fn failing_setup() -> RunSetup {
    let variables = json!({ "word": CANARY }).to_string();
    RunSetup::plan_and_apply().with(json!({ "variables": variables, "secrets": [CANARY] }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_apply_keeps_its_log_without_sensitive_values() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", FAILING)]);
    let (run, printed) = run_in_pod(&env, failing_setup(), None).await;
    let result = status(&run);
    assert_eq!(ending(&run), "Failed TFExecApplyFailed", "{result:?}");
    assert_eq!(
        (result.log_secret.clone(), result.log_error.as_str()),
        (format!("{}-log", run.name_any()), "")
    );
    let log = tokio::task::block_in_place(|| read_log(&env, &run.name_any(), ReadCommand::OnePart));
    for text in [&log, &printed] {
        for part in [
            " init -no-color ",
            " plan -no-color ",
            "terraform_data.it will be created",
            " apply -no-color ",
            "terraform_data.it (local-exec): line 1\n",
            "terraform_data.it (local-exec): line 3000\n",
            "the word is (sensitive)\n",
            "exit status 3",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
    }
    assert!(log.trim_end().ends_with(&result.log_tail) && result.log_tail.contains("exit status 3"));
    assert!((1..=RunStatusLimit::LOG_TAIL).contains(&result.log_tail.len()));
    let shown = format!("{result:?}{log}{printed}");
    assert!(!shown.contains(CANARY), "{shown}");

    let secret = secret(&env, &result.log_secret).await.unwrap();
    assert_eq!(
        secret.owner_references()[0].uid,
        run.uid().unwrap(),
        "it is deleted with the run"
    );
    assert_eq!(secret.immutable, Some(true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_keeps_the_end_of_its_log_and_stores_no_secret() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", FAILING)]);
    let run = env.run(failing_setup()).await;
    let result = status(&run);
    assert_eq!(ending(&run), "Failed TFExecApplyFailed", "{result:?}");
    assert!(
        result.log_tail.contains("exit status 3") && !result.log_tail.contains(CANARY),
        "{result:?}"
    );
    assert_eq!((result.log_secret.as_str(), result.log_error.as_str()), ("", ""));
    assert!(Path::new(&result.log_path).is_dir());
    let names = env.stored().await;
    assert!(!names.iter().any(|name| name.ends_with("-log")), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_log_is_in_the_status_alone() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", "output \"x\" { value = 1 }")]);
    let (applied, _) = run_in_pod(&env, RunSetup::plan_and_apply(), None).await;
    let (checked, printed) = run_in_pod(&env, RunSetup::plan(), None).await;
    for (run, end, text) in [
        (&applied, "Succeeded TerraformAppliedSucceed", "Apply complete!"),
        (&checked, "Succeeded TerraformPlannedNoChanges", "No changes."),
    ] {
        let result = status(run);
        assert_eq!(ending(run), end, "{result:?}");
        assert!(
            result.log_tail.starts_with("$ ") && result.log_tail.contains(text),
            "{result:?}"
        );
        assert!(result.log_tail.len() <= RunStatusLimit::LOG_TAIL_OF_SUCCESS);
        assert_eq!(result.log_secret, "");
    }
    assert_eq!(printed.trim_end(), status(&checked).log_tail);
    let names = env.stored().await;
    assert!(!names.iter().any(|name| name.ends_with("-log")), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_log_is_neither_printed_nor_kept() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", FAILING)]);
    let mut setup = failing_setup();
    setup.bundle["environment"] = json!({ "DISABLE_TF_LOGS": "1" });
    let (run, printed) = run_in_pod(&env, setup, None).await;
    let result = status(&run);
    assert_eq!(ending(&run), "Failed TFExecApplyFailed", "{result:?}");
    assert_eq!(
        (
            printed.as_str(),
            result.log_tail.as_str(),
            result.log_secret.as_str()
        ),
        ("", "", "")
    );
}

/// The state is read after the failure, so the error is not printed before.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_that_quotes_the_state_is_printed_without_its_values() {
    let env = TestEnvironment::new("auto").await;
    let module = format!("output \"hidden\" {{\n  value     = \"{CANARY}\"\n  sensitive = true\n}}\n");
    env.commit(&[("main.tf", &module)]);
    let applied = env.run(RunSetup::plan_and_apply()).await;
    assert_ending(&applied, "Succeeded TerraformAppliedSucceed");
    let script = format!("if [ \"$1\" = plan ]; then echo 'Error: bad {CANARY}' >&2; exit 1; fi");
    let cli = wrap_cli(&env, &script);
    let (run, printed) = run_in_pod(&env, RunSetup::plan(), Some(&cli)).await;
    let result = status(&run);
    assert_eq!(ending(&run), "Failed TFExecPlanFailed", "{result:?}");
    assert!(printed.ends_with("Error: bad (sensitive)\n"), "{printed}");
    assert!(result.log_tail.ends_with("Error: bad (sensitive)"), "{result:?}");
    assert!(
        !format!("{result:?}{printed}").contains(CANARY),
        "{result:?} {printed}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_log_cannot_be_stored_has_its_outcome() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", FAILING)]);
    let name = env.prepare(failing_setup()).await;
    let foreign: Secret =
        serde_json::from_value(json!({ "metadata": { "name": format!("{name}-log") } })).unwrap();
    let api: Api<Secret> = Api::namespaced(env.client(), NAMESPACE);
    api.create(&PostParams::default(), &foreign).await.unwrap();
    let (context, _) = in_pod(&env, &name);
    env.execute_run(&name, context, CancellationToken::new()).await;
    let run = env.get(&name).await;
    let result = status(&run);
    assert_eq!(ending(&run), "Failed TFExecApplyFailed", "{result:?}");
    assert_eq!(result.log_secret, "");
    assert_eq!(
        result.log_error,
        format!("the log is not stored: the Secret {name}-log exists and is not of this run; delete it")
    );
    assert!(result.message.contains("exit status 3") && result.log_tail.contains("exit status 3"));
}

/// The outage begins during the apply and lasts longer than the first attempt to store the log.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_stored_when_the_api_is_back() {
    let env = TestEnvironment::new("auto").await;
    let module = r#"
variable "marker" {}
resource "terraform_data" "it" {
  provisioner "local-exec" {
    command = "touch ${var.marker}; until [ -e ${var.marker}.go ]; do sleep 0.05; done; seq 3000; exit 3"
  }
}
"#;
    env.commit(&[("main.tf", module)]);
    let marker = env.dir.path().join("marker");
    let bundle = json!({
        "variables": json!({ "marker": marker }).to_string(),
        "backend": "terraform {\n  backend \"local\" {}\n}\n",
    });
    let name = env.prepare(RunSetup::plan_and_apply().with(bundle)).await;
    let (mut context, printed) = in_pod(&env, &name);
    let settings = client::Settings {
        kubeconfig: Some(env.kubeconfig.clone()),
        ..client::Settings::default()
    };
    context.client = client::build(&settings).await.unwrap();
    context.settings.log_timeout = Duration::from_secs(2);
    let interference = async {
        wait_for_file(&marker).await;
        let address = env.stop_api().await;
        std::fs::write(marker.with_extension("go"), "").unwrap();
        wait_until(|| printed.text().contains("(local-exec): 3000\n")).await;
        tokio::time::sleep(Duration::from_secs(4)).await;
        env.restart_api(address).await;
    };
    tokio::join!(
        env.execute_run(&name, context, CancellationToken::new()),
        interference
    );
    let run = env.get(&name).await;
    let result = status(&run);
    assert_eq!(ending(&run), "Failed TFExecApplyFailed", "{result:?}");
    assert_eq!(
        (result.log_secret.clone(), result.log_error.as_str()),
        (format!("{name}-log"), "")
    );
    assert!(secret(&env, &result.log_secret).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_prints_while_the_cli_runs_and_keeps_the_log_of_an_interrupted_run() {
    let env = TestEnvironment::new("auto").await;
    let (marker, setup) = RunSetup::slow(&env);
    let name = env.prepare(setup).await;
    let output = env.dir.path().join("pod.log");
    // As in a Job: without `--process`.
    let runner = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["tf-runner", "--namespace", NAMESPACE, "--run", &name])
        .args(["--grace-seconds", "30", "--work-root"])
        .arg(env.dir.path().join("work"))
        .env_clear()
        .env("PATH", cli::search_path().unwrap())
        .env("KUBECONFIG", &env.kubeconfig)
        .stdout(std::fs::File::create(&output).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for_file(&marker).await;
    let prints = |part: &str| std::fs::read_to_string(&output).unwrap().contains(part);
    wait_until(|| prints("terraform_data.slow: Creating...\n")).await;
    let running = status(&env.get(&name).await);
    assert!(running.log_tail.contains("Plan: 1 to add"), "{running:?}");
    assert_eq!(terminate(runner).await, Some(1));
    let run = env.get(&name).await;
    let result = status(&run);
    assert_eq!(ending(&run), "Failed TFExecApplyFailed", "{result:?}");
    for part in ["terraform_data.slow: Creating...\n", "Error: "] {
        assert!(
            result.log_tail.contains(part) && prints(part),
            "{part:?} is not in {result:?}"
        );
    }
    let printed = std::fs::read_to_string(&output).unwrap();
    assert_eq!(
        printed.trim_end(),
        result.log_tail.trim_end(),
        "the end is all of it"
    );
}

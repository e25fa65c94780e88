//! Redaction of values of the state that an interrupted or failed command quotes, and of health that was not checked.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::cli_wrapper::wrap_cli;
use crate::environment::{
    NAMESPACE, RunSetup, STACK, TestEnvironment, assert_ending, ending, status, wait_for_file,
};

/// A sensitive value of the state that no plan marks.
const QUOTED: &str = "a-value-of-the-state";

/// A wrapper of the CLI whose `plan` quotes its input, immediately or after an interrupt.
fn quoting_cli(env: &TestEnvironment, marker: &Path, waits: bool, show: &str) -> PathBuf {
    let real = sluice_harness::cli::terraform().unwrap();
    let folder = env.dir.path().join("quoting");
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join(real.file_name().unwrap());
    let quote = format!("echo 'Error: bad {QUOTED}' >&2; exit 1");
    let plan = if waits {
        format!(
            "trap \"{quote}\" INT; : > {}; while :; do sleep 0.05; done",
            marker.display()
        )
    } else {
        quote
    };
    // The parent of the tests may ignore interrupts, and a shell cannot restore them itself.
    let text = format!(
        "#!/usr/bin/env -S --default-signal=INT /bin/sh\ncase \"$1\" in\n  plan) {plan} ;;\n  show) {show} ;;\nesac\nexec {} \"$@\"\n",
        real.display()
    );
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// An environment with a sensitive output in the state.
async fn applied_environment() -> TestEnvironment {
    applied_environment_with(QUOTED).await
}

/// An environment with this sensitive value in the state.
async fn applied_environment_with(value: &str) -> TestEnvironment {
    let env = TestEnvironment::new("auto").await;
    let module = format!("output \"hidden\" {{\n  value     = \"{value}\"\n  sensitive = true\n}}\n");
    env.commit(&[("main.tf", &module)]);
    let run = env.run(RunSetup::plan_and_apply()).await;
    assert_ending(&run, "Succeeded TerraformAppliedSucceed");
    env
}

/// The logs of the last run.
fn logs_of_last_run(env: &TestEnvironment, log_path: &str) -> String {
    assert!(Path::new(log_path).starts_with(env.dir.path()), "{log_path}");
    let files = std::fs::read_dir(log_path).unwrap().flatten();
    files
        .map(|file| std::fs::read_to_string(file.path()).unwrap())
        .collect()
}

/// Plans with this CLI and stops the run once `plan` waits. Returns the message and the logs.
async fn stop_during_plan(env: &TestEnvironment, cli: &Path, marker: &Path) -> (String, String) {
    let name = env.prepare(RunSetup::plan()).await;
    let mut context = env.context(&name);
    let path = context.environment.get_mut("PATH").unwrap();
    *path = format!("{}:{path}", cli.display());
    let stop = CancellationToken::new();
    let interference = async {
        wait_for_file(marker).await;
        stop.cancel();
    };
    tokio::join!(env.execute_run(&name, context, stop.clone()), interference);
    let run = env.get(&name).await;
    assert_ending(&run, "Failed TFExecPlanFailed");
    let result = status(&run);
    assert_eq!(
        result.exit_code,
        Some(1),
        "the code of the failed command, not of the state read after it"
    );
    assert!(
        result.message.contains("the runner was terminated"),
        "{}",
        result.message
    );
    let logs = logs_of_last_run(env, &result.log_path);
    assert!(!format!("{result:?}{logs}").contains(QUOTED), "{result:?} {logs}");
    (result.message, logs)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_output_of_an_interrupted_plan_contains_no_state_values() {
    let env = applied_environment().await;
    let marker = env.dir.path().join("marker");
    let cli = quoting_cli(&env, &marker, true, ":");
    let (message, logs) = Box::pin(stop_during_plan(&env, &cli, &marker)).await;
    assert!(
        message.ends_with("(exit status 1). Error: bad (sensitive)"),
        "{message}"
    );
    assert!(logs.contains("bad (sensitive)"), "{logs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_plan_reports_no_output_if_the_state_is_unreadable() {
    let env = applied_environment().await;
    let marker = env.dir.path().join("marker");
    let cli = quoting_cli(&env, &marker, true, "exit 1");
    let (message, _) = Box::pin(stop_during_plan(&env, &cli, &marker)).await;
    assert!(
        message.ends_with("the runner was terminated (exit status 1)"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_plan_keeps_its_exit_code_when_the_state_is_read() {
    let env = applied_environment().await;
    let cli = quoting_cli(&env, &env.dir.path().join("marker"), false, ":");
    let run = env.run_with_path(RunSetup::plan(), &cli).await;
    let result = status(&run);
    assert_eq!(
        (ending(&run).as_str(), result.exit_code),
        ("Failed TFExecPlanFailed", Some(1))
    );
    assert!(result.message.ends_with("bad (sensitive)"), "{}", result.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_health_check_has_not_passed() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", "output \"x\" { value = 1 }")]);
    // It accepts the request and never responds.
    let service = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}/", service.local_addr().unwrap());
    let check = json!({ "name": "it", "kind": "http", "target": target, "timeoutMillis": 100_000 });
    let setup = RunSetup::plan_and_apply().with(json!({ "aftermath": { "healthChecks": [check] } }));
    let name = env.prepare(setup).await;
    let stop = CancellationToken::new();
    let interference = async {
        let asked = service.accept().await.unwrap();
        stop.cancel();
        asked
    };
    tokio::join!(
        env.execute_run(&name, env.context(&name), stop.clone()),
        interference
    );
    let run = env.get(&name).await;
    assert_ending(&run, "Failed HealthChecksFailed");
    let result = status(&run);
    assert!(
        result.message.contains("the runner was terminated"),
        "{}",
        result.message
    );
    assert!(result.health.is_none_or(|health| !health.passed));
    assert!(result.applied);
}

/// A value that is longer than the variation of the text before the position where a message is truncated.
fn long_value() -> String {
    "canary-".repeat(50)
}

/// A wrapper of the CLI that quotes the value in the error of this command, across the character at `cut`, with more text after it.
fn quoting_at(env: &TestEnvironment, command: &str, cut: usize) -> PathBuf {
    let file = env.dir.path().join("words");
    let words = format!("{}{}{}\n", "x".repeat(cut - 150), long_value(), "y".repeat(1000));
    std::fs::write(&file, words).unwrap();
    let script = format!(
        "case \"$1\" in\n  {command}) cat {} >&2; exit 1 ;;\nesac",
        file.display()
    );
    wrap_cli(env, &script)
}

/// The sensitive values of the state become known after the text was read.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_value_at_the_cut_of_a_message_is_removed_completely() {
    let env = applied_environment_with(&long_value()).await;
    let cli = quoting_at(&env, "plan", 20_000);
    let run = env.run_with_path(RunSetup::plan(), &cli).await;
    let result = status(&run);
    assert_eq!(ending(&run), "Failed TFExecPlanFailed", "{}", result.message);
    assert_eq!(result.message.len(), 20_003, "truncated");
    assert!(result.message.contains("x(sensitive)y"), "{}", result.message);
    let logs = logs_of_last_run(&env, &result.log_path);
    assert!(
        !format!("{result:?}{logs}").contains("canary"),
        "{result:?} {logs}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_at_the_cut_of_a_session_error_is_removed_completely() {
    let env = TestEnvironment::new("").await;
    env.commit(&[("main.tf", "")]);
    let cli = quoting_at(&env, "init", 500);
    let setup = RunSetup {
        action: "BreakTheGlass",
        trigger: "Request",
        ..RunSetup::plan().with(json!({ "secrets": [long_value()] }))
    };
    let name = env.prepare(setup).await;
    let mut context = env.context(&name);
    let path = context.environment.get_mut("PATH").unwrap();
    *path = format!("{}:{path}", cli.display());
    let environment_file = env
        .dir
        .path()
        .join(format!("work/.{NAMESPACE}_{STACK}.break-glass"));
    let user = async {
        let mut message = String::new();
        while !message.contains("The preparation failed") {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let result = env.get(&name).await.status.unwrap_or_default();
            assert!(!result.phase.is_final(), "{result:?}");
            message = result.message;
        }
        std::fs::remove_file(&environment_file).unwrap();
        message
    };
    let (_, message) = tokio::join!(env.execute_run(&name, context, CancellationToken::new()), user);
    assert!(
        message.contains("x(sensitive)y") && message.ends_with("y..."),
        "{message}"
    );
    assert!(!message.contains("canary"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_with_too_many_sensitive_values_reports_no_output() {
    let env = TestEnvironment::new("").await;
    // 11,000 sensitive values of the plan, more than the limit.
    let values = "flatten([for i in range(11) : [for j in range(1000) : format(\"value-%02d-%03d\", i, j)]])";
    let module = format!("resource \"terraform_data\" \"many\" {{ input = sensitive({values}) }}\n");
    env.commit(&[("main.tf", &module)]);
    let planned = env.run(RunSetup::plan()).await;
    assert_ending(&planned, "Succeeded TerraformPlannedWithChanges");
    let script =
        "case \"$1\" in\n  apply) echo 'Error: bad value-10-999' >&2; exit 1 ;;\n  show) exit 1 ;;\nesac";
    let cli = wrap_cli(&env, script);
    let applied = env.run_with_path(RunSetup::apply(&planned), &cli).await;
    let result = status(&applied);
    assert_eq!(ending(&applied), "Failed TFExecApplyFailed", "{}", result.message);
    assert_eq!(result.message, "(not shown: it may contain a sensitive value)");
    let logs = logs_of_last_run(&env, &result.log_path);
    assert!(!logs.contains("value-"), "{logs}");
}

//! What a command that is stopped or fails quotes of the state is not told, and neither is health that nobody has seen.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::backends::wrapped;
use crate::world::{NAMESPACE, STACK, Wish, World, appears, ending, status};

/// What only the state knows: no plan of the module tells that it is sensitive.
const QUOTED: &str = "a-value-of-the-state";

/// A CLI that does the real one's work but for `plan`, which quotes what it was given: at once, or when it is interrupted.
fn quoting(world: &World, marker: &Path, waits: bool, show: &str) -> PathBuf {
    let real = sluice_harness::cli::terraform().unwrap();
    let folder = world.dir.path().join("quoting");
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
    // Whoever starts the tests may ignore interrupts, which a shell cannot undo for itself.
    let text = format!(
        "#!/usr/bin/env -S --default-signal=INT /bin/sh\ncase \"$1\" in\n  plan) {plan} ;;\n  show) {show} ;;\nesac\nexec {} \"$@\"\n",
        real.display()
    );
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// A world in whose state stands a sensitive output.
async fn applied() -> World {
    applied_with(QUOTED).await
}

/// A world in whose state stands this value, and is sensitive.
async fn applied_with(value: &str) -> World {
    let world = World::new("auto").await;
    let module = format!("output \"hidden\" {{\n  value     = \"{value}\"\n  sensitive = true\n}}\n");
    world.commit(&[("main.tf", &module)]);
    let run = world.run(Wish::plan_and_apply()).await;
    assert_eq!(
        ending(&run),
        "Succeeded TerraformAppliedSucceed",
        "{:?}",
        run.status
    );
    world
}

/// Everything that the last run logged.
fn logged(world: &World, log_path: &str) -> String {
    assert!(Path::new(log_path).starts_with(world.dir.path()), "{log_path}");
    let files = std::fs::read_dir(log_path).unwrap().flatten();
    files
        .map(|file| std::fs::read_to_string(file.path()).unwrap())
        .collect()
}

/// Plans with this CLI, and stops the run once `plan` waits; gives the message and what was logged.
async fn stopped(world: &World, cli: &Path, marker: &Path) -> (String, String) {
    let name = world.prepare(Wish::plan()).await;
    let mut context = world.context(&name);
    let path = context.environment.get_mut("PATH").unwrap();
    *path = format!("{}:{path}", cli.display());
    let stop = CancellationToken::new();
    let meddler = async {
        appears(marker).await;
        stop.cancel();
    };
    tokio::join!(world.carry_out(&name, context, stop.clone()), meddler);
    let run = world.get(&name).await;
    assert_eq!(ending(&run), "Failed TFExecPlanFailed", "{:?}", run.status);
    let said = status(&run);
    assert_eq!(
        said.exit_code,
        Some(1),
        "of the command that failed, and of no look after it"
    );
    assert!(said.message.contains("told to stop"), "{}", said.message);
    let logs = logged(world, &said.log_path);
    assert!(!format!("{said:?}{logs}").contains(QUOTED), "{said:?} {logs}");
    (said.message, logs)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_plan_is_told_without_what_it_quotes_of_the_state() {
    let world = applied().await;
    let marker = world.dir.path().join("marker");
    let cli = quoting(&world, &marker, true, ":");
    let (message, logs) = Box::pin(stopped(&world, &cli, &marker)).await;
    assert!(
        message.ends_with("(exit status 1). Error: bad (sensitive)"),
        "{message}"
    );
    assert!(logs.contains("bad (sensitive)"), "{logs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_words_of_a_stopped_plan_are_not_told_where_the_state_cannot_be_read() {
    let world = applied().await;
    let marker = world.dir.path().join("marker");
    let cli = quoting(&world, &marker, true, "exit 1");
    let (message, _) = Box::pin(stopped(&world, &cli, &marker)).await;
    assert!(message.ends_with("told to stop (exit status 1)"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_plan_keeps_its_exit_code_when_the_state_is_looked_at() {
    let world = applied().await;
    let cli = quoting(&world, &world.dir.path().join("marker"), false, ":");
    let run = world.run_with_path(Wish::plan(), &cli).await;
    let said = status(&run);
    assert_eq!(
        (ending(&run).as_str(), said.exit_code),
        ("Failed TFExecPlanFailed", Some(1))
    );
    assert!(said.message.ends_with("bad (sensitive)"), "{}", said.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_health_check_that_was_cut_short_has_not_passed() {
    let world = World::new("auto").await;
    world.commit(&[("main.tf", "output \"x\" { value = 1 }")]);
    // It takes the request, and never answers.
    let service = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}/", service.local_addr().unwrap());
    let check = json!({ "name": "it", "kind": "http", "target": target, "timeoutMillis": 100_000 });
    let wish = Wish::plan_and_apply().with(json!({ "aftermath": { "healthChecks": [check] } }));
    let name = world.prepare(wish).await;
    let stop = CancellationToken::new();
    let meddler = async {
        let asked = service.accept().await.unwrap();
        stop.cancel();
        asked
    };
    tokio::join!(
        world.carry_out(&name, world.context(&name), stop.clone()),
        meddler
    );
    let run = world.get(&name).await;
    assert_eq!(ending(&run), "Failed HealthChecksFailed", "{:?}", run.status);
    let said = status(&run);
    assert!(said.message.contains("told to stop"), "{}", said.message);
    assert!(said.health.is_none_or(|health| !health.passed));
    assert!(said.applied);
}

/// A value that is longer than what stands before the place where a message is cut may differ by.
fn long_value() -> String {
    "canary-".repeat(50)
}

/// A CLI that quotes it in the error of this command, so that it reaches across the character at `cut`, and says more behind.
fn words_at(world: &World, command: &str, cut: usize) -> PathBuf {
    let file = world.dir.path().join("words");
    let words = format!("{}{}{}\n", "x".repeat(cut - 150), long_value(), "y".repeat(1000));
    std::fs::write(&file, words).unwrap();
    let script = format!(
        "case \"$1\" in\n  {command}) cat {} >&2; exit 1 ;;\nesac",
        file.display()
    );
    wrapped(world, &script)
}

/// What is known of the state is learnt when the text was read already.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_of_the_state_where_a_message_is_cut_goes_whole() {
    let world = applied_with(&long_value()).await;
    let cli = words_at(&world, "plan", 20_000);
    let run = world.run_with_path(Wish::plan(), &cli).await;
    let said = status(&run);
    assert_eq!(ending(&run), "Failed TFExecPlanFailed", "{}", said.message);
    assert_eq!(said.message.len(), 20_003, "cut, and said so");
    assert!(said.message.contains("x(sensitive)y"), "{}", said.message);
    let logs = logged(&world, &said.log_path);
    assert!(!format!("{said:?}{logs}").contains("canary"), "{said:?} {logs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_where_the_trouble_of_a_session_is_cut_goes_whole() {
    let world = World::new("").await;
    world.commit(&[("main.tf", "")]);
    let cli = words_at(&world, "init", 500);
    let wish = Wish {
        action: "BreakTheGlass",
        trigger: "Request",
        ..Wish::plan().with(json!({ "secrets": [long_value()] }))
    };
    let name = world.prepare(wish).await;
    let mut context = world.context(&name);
    let path = context.environment.get_mut("PATH").unwrap();
    *path = format!("{}:{path}", cli.display());
    let door = world
        .dir
        .path()
        .join(format!("work/.{NAMESPACE}_{STACK}.break-glass"));
    let person = async {
        let mut message = String::new();
        while !message.contains("The preparation failed") {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let said = world.get(&name).await.status.unwrap_or_default();
            assert!(!said.phase.is_final(), "{said:?}");
            message = said.message;
        }
        std::fs::remove_file(&door).unwrap();
        message
    };
    let (_, message) = tokio::join!(world.carry_out(&name, context, CancellationToken::new()), person);
    assert!(
        message.contains("x(sensitive)y") && message.ends_with("y..."),
        "{message}"
    );
    assert!(!message.contains("canary"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_tells_no_text_where_its_plan_has_more_values_than_are_remembered() {
    let world = World::new("").await;
    // 11,000 values that nothing but the plan knows; the last of them is one too many.
    let values = "flatten([for i in range(11) : [for j in range(1000) : format(\"value-%02d-%03d\", i, j)]])";
    let module = format!("resource \"terraform_data\" \"many\" {{ input = sensitive({values}) }}\n");
    world.commit(&[("main.tf", &module)]);
    let planned = world.run(Wish::plan()).await;
    assert_eq!(
        ending(&planned),
        "Succeeded TerraformPlannedWithChanges",
        "{:?}",
        planned.status
    );
    let script =
        "case \"$1\" in\n  apply) echo 'Error: bad value-10-999' >&2; exit 1 ;;\n  show) exit 1 ;;\nesac";
    let cli = wrapped(&world, script);
    let applied = world.run_with_path(Wish::apply(&planned), &cli).await;
    let said = status(&applied);
    assert_eq!(ending(&applied), "Failed TFExecApplyFailed", "{}", said.message);
    assert_eq!(said.message, "(not shown: it may hold a sensitive value)");
    let logs = logged(&world, &said.log_path);
    assert!(!logs.contains("value-"), "{logs}");
}

//! What a command that is stopped or fails quotes of the state is not told, and neither is health that nobody has seen.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::world::{Wish, World, appears, ending, status};

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
    let world = World::new("auto").await;
    let module = format!("output \"hidden\" {{\n  value     = \"{QUOTED}\"\n  sensitive = true\n}}\n");
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
    let (message, logs) = stopped(&world, &cli, &marker).await;
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
    let (message, _) = stopped(&world, &cli, &marker).await;
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

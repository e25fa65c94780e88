//! What `sluice __complete` answers: to shells, and to kubectl for its plugin.

use std::fs::{self, OpenOptions};
use std::net::TcpListener;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use serde_json::json;
use sluice_harness::{cli, skip};
use sluice_tf_core::state_copy::{ID, LABEL, TIME, WORKSPACE};
use tokio::process::Command;

use crate::fixture::{PLAN, TIMEOUT, TestEnvironment, ready};

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");
/// The script in docs/reference/cli.md that kubectl calls.
const SCRIPT_FOR_KUBECTL: &str = "#!/bin/sh\nexec sluice __complete -- \"$@\"\n";
/// The names of the stacks: plans of two wait.
const STACKS: &str = "app\twaits for approval\nzone\twaits for approval\ndb\nnet\n:36\n";

/// The API of [`TestEnvironment::with_stacks`] with one more plan that waits, and a context in the namespace `team`, whose name has letters at
/// which readline splits words.
pub(crate) async fn environment_to_complete() -> TestEnvironment {
    let environment = TestEnvironment::with_stacks().await;
    let mut waits = ready("Unknown", "TerraformPlannedWithChanges", "Plan generated");
    waits["plan"] = json!({"pending": PLAN});
    environment.create_stack("zone", &json!({}), &waits).await;
    environment.add_context("ci:team@x", "team");
    environment
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_has_commands_flags_and_names() {
    let environment = environment_to_complete().await;
    let plans = environment
        .stdout(&["__complete", "--", "approve", "app", "--id", ""])
        .await;
    assert_eq!(plans, format!("{PLAN}\n:36\n"));
    for (line, expected) in [
        ("hist", "history\tList the runs of a stack\n:36\n"),
        ("approve ", STACKS),
        ("approve z", "zone\twaits for approval\n:36\n"),
        ("describe ", "app\ndb\nnet\nzone\n:36\n"),
        ("get sources ", "infra\n:36\n"),
        ("suspend source ", "infra\ngit\n:36\n"),
        ("logs app --run ", "3\n:36\n"),
        ("logs db --run ", ":36\n"),
        ("logs app -n other --run ", ":36\n"),
        // It writes no Secret.
        ("outputs db ", ":36\n"),
        ("reject db --id ", ":36\n"),
        ("create terraform new --source ", "GitRepository/infra\n:36\n"),
        ("create terraform new --depends-on ", "app\ndb\nnet\nzone\n:36\n"),
        ("get tf --namespace=kube", "kube-system\n:36\n"),
        ("status --context=ci:", "ci:team@x\n:36\n"),
        ("describe --context ci:team@x ", ":36\n"),
        ("record export ", "app\ndb\nnet\nzone\n:36\n"),
        ("approve --kubeconfig=absent ", ":36\n"),
        ("approve --file ", ":0\n"),
        ("nonsense ", ":36\n"),
        ("completion ", "bash\nzsh\nfish\n:36\n"),
    ] {
        let words: Vec<_> = ["__complete", "--"].into_iter().chain(line.split(' ')).collect();
        assert_eq!(environment.stdout(&words).await, expected, "{line}");
    }
    let other = environment.sluice(&["completion", "powershell"]).await;
    assert_eq!(other.status.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn active_runs_state_locks_and_copies_of_a_state_are_completed() {
    let environment = environment_to_complete().await;
    let run = environment.create_apply("app", 4).await;
    let lock = Patch::Merge(json!({"status": {"lock": {"pending": "3c1f-lock"}}}));
    environment
        .stacks()
        .patch_status("db", &PatchParams::default(), &lock)
        .await
        .unwrap();
    let secrets: Api<Secret> = Api::namespaced(environment.client(), "default");
    for (id, time) in [
        ("older", "2026-01-01T00:00:00Z"),
        ("newer", "2026-01-02T00:00:00Z"),
    ] {
        let labels = json!({(LABEL): "app", (WORKSPACE): "default", (ID): id});
        let metadata =
            json!({"name": format!("tfcopy-{id}"), "labels": labels, "annotations": {(TIME): time}});
        let secret = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        secrets.create(&PostParams::default(), &secret).await.unwrap();
    }
    for (line, expected) in [
        ("cancel ", format!("{run}\tApplying\n:36\n")),
        ("unlock db --id ", "3c1f-lock\n:36\n".to_owned()),
        ("unlock app --id ", ":36\n".to_owned()),
        ("state show app --copy ", "newer\nolder\n:36\n".to_owned()),
        ("state restore app --copy=o", "older\n:36\n".to_owned()),
        ("state restore db --copy ", ":36\n".to_owned()),
    ] {
        let words: Vec<_> = ["__complete", "--"].into_iter().chain(line.split(' ')).collect();
        assert_eq!(environment.stdout(&words).await, expected, "{line}");
    }
}

/// Asks for names; there are none, and nothing is printed for the user.
async fn no_names(environment: &TestEnvironment) {
    let output = environment.sluice(&["__complete", "--", "approve", ""]).await;
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        (output.stdout.as_slice(), output.stderr),
        (b":36\n".as_slice(), Vec::new())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_that_does_not_answer_is_not_waited_for() {
    let environment = environment_to_complete().await;
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("https://{}", silent.local_addr().unwrap());
    environment.change_kubeconfig(|config| config["clusters"][0]["cluster"]["server"] = json!(server));
    no_names(&environment).await;
    silent.set_nonblocking(true).unwrap();
    assert!(silent.accept().is_ok(), "the program has connected");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_plugin_that_does_not_end_is_not_waited_for() {
    let environment = environment_to_complete().await;
    let pipe = environment.directory().join("pipe");
    mknodat(CWD, pipe.as_path(), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let plugin = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "cat",
        "args": [pipe.display().to_string()], "interactiveMode": "Never"});
    environment.change_kubeconfig(|config| config["users"][0]["user"] = json!({"exec": plugin}));
    no_names(&environment).await;
    // The plugin goes on reading. Without a reader, a pipe cannot be opened for writing in this mode.
    let mode = OFlags::NONBLOCK.bits().cast_signed();
    let deadline = Instant::now() + TIMEOUT;
    while let Err(error) = OpenOptions::new().write(true).custom_flags(mode).open(&pipe) {
        assert!(Instant::now() < deadline, "the plugin has not started: {error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_completes_its_plugin() {
    if cli::on_path("kubectl").is_none() && !skip::is_ci() {
        skip::skip("no kubectl is on PATH").unwrap();
        return;
    }
    let page = include_str!("../../../docs/reference/cli.md");
    assert!(page.contains(SCRIPT_FOR_KUBECTL), "the page has the script");
    let environment = environment_to_complete().await;
    let plugins = environment.directory().join("plugins");
    fs::create_dir(&plugins).unwrap();
    let script = plugins.join("kubectl_complete-sluice");
    fs::write(&script, SCRIPT_FOR_KUBECTL).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["sluice", "kubectl-sluice"] {
        symlink(SLUICE, plugins.join(name)).unwrap();
    }
    let path = format!("{}:{}", plugins.display(), std::env::var("PATH").unwrap());
    let mut kubectl = Command::new(cli::kubectl().unwrap());
    kubectl
        .args(["__complete", "sluice", "approve", ""])
        .env("PATH", path)
        .env("HOME", environment.directory())
        .env("KUBECONFIG", environment.kubeconfig())
        .kill_on_drop(true);
    let answer = tokio::time::timeout(TIMEOUT, kubectl.output())
        .await
        .expect("kubectl ends")
        .unwrap();
    assert_eq!(String::from_utf8(answer.stdout).unwrap(), STACKS);
}

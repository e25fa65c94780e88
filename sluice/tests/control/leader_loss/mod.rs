//! Loss of leadership during a run, with two instances of the program on one API; and runs whose locks the next controller cannot
//! see, since it is in another lock domain.

pub(crate) mod proxy;

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use proxy::ApiProxy;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::json;
use sluice_api::run::TerraformRun;
use sluice_tf_core::run_input::PodRef;
use tokio::process::{Child, Command};

use crate::environment::{ExecutorSettings, NAMESPACE, TIMEOUT, TestEnvironment};
use crate::exhaustive_interruption::invariants;
use crate::observe::{condition, wait_for_file};

/// The Lease of the controllers.
const LEASE: &str = "1953de50.contrib.fluxcd.io";

/// Its apply reports that it has started, and waits for a file.
const SLOW: &str = r#"
variable "marker" {}
resource "terraform_data" "slow" {
  provisioner "local-exec" { command = "echo x >> ${var.marker}; until [ -e ${var.marker}.go ]; do sleep 0.05; done" }
}
"#;

/// The program with short leader election intervals.
struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    fn start(env: &TestEnvironment, proxy: &ApiProxy, name: &str, work: &str) -> Self {
        let kubeconfig = proxy.write_kubeconfig(env.dir.path(), name);
        let log = env.path(&format!("{name}.log"));
        let path = sluice_harness::cli::search_path().unwrap();
        let file = File::create(&log).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_sluice"))
            .arg("tf-controller")
            .args([
                "--executor=process",
                "--metrics-addr=0",
                "--health-addr=0",
                "--enable-leader-election",
            ])
            .args([
                "--leader-election-lease-duration=6s",
                "--leader-election-renew-deadline=4s",
            ])
            .args(["--leader-election-retry-period=200ms", "--log-encoding=console"])
            .arg(format!("--runtime-namespace={NAMESPACE}"))
            .arg(format!("--runner={}", runner(env, proxy).display()))
            .arg(format!("--work-root={}", env.path(work).display()))
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .env_clear()
            .envs([
                ("PATH", path.as_str()),
                ("HOSTNAME", name),
                ("CHECKPOINT_DISABLE", "1"),
            ])
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self { child, log }
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.id().unwrap().cast_signed();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }

    /// Waits for its end, after which the log must report the loss of leadership.
    async fn wait_for_loss(&mut self) {
        let ended = tokio::time::timeout(TIMEOUT, self.child.wait()).await;
        let log = std::fs::read_to_string(&self.log).unwrap();
        assert_eq!(ended.unwrap().unwrap().code(), Some(1), "{log}");
        assert!(log.contains("leader election lost"), "{log}");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let text = std::fs::read_to_string(&self.log).unwrap_or_default();
            let lines: Vec<_> = text.lines().collect();
            eprintln!("{}", lines[lines.len().saturating_sub(40)..].join("\n"));
        }
    }
}

/// Returns the runner: this test binary with its own kubeconfig.
fn runner(env: &TestEnvironment, proxy: &ApiProxy) -> PathBuf {
    let kubeconfig = proxy
        .write_kubeconfig(env.dir.path(), "runner")
        .display()
        .to_string();
    let this = std::env::current_exe().unwrap().display().to_string();
    let text = format!(
        "#!/bin/sh\nexport KUBECONFIG={kubeconfig} KUBE_CONFIG_PATH={kubeconfig}\n\
         exec {this} as_runner --exact --nocapture -- \"$@\"\n"
    );
    let path = env.path("runner");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Waits until this instance is the leader.
async fn wait_until_leader(env: &TestEnvironment, name: &str) {
    let api: Api<Lease> = env.api();
    let front = format!("{name}_");
    let looking = async {
        loop {
            let lease = api.get_opt(LEASE).await.unwrap();
            let holder = lease.and_then(|lease| lease.spec?.holder_identity);
            if holder.is_some_and(|holder| holder.starts_with(&front)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let led = tokio::time::timeout(TIMEOUT, looking).await;
    assert!(led.is_ok(), "{name} does not lead");
}

fn phase(run: &TerraformRun) -> &'static str {
    run.status
        .as_ref()
        .map_or("Pending", |status| status.phase.as_str())
}

/// Creates a stack whose apply was started by the leader `a`; `b` is on standby.
async fn start_apply(env: &TestEnvironment) {
    env.commit("a", &[("main.tf", SLOW)]).await;
    let spec = json!({ "vars": [{ "name": "marker", "value": env.path("net") }] });
    env.stack("net", spec).await;
    // Prints more details than a missing file if it fails.
    env.wait_run("net", "applying", |run| phase(run) == "Applying")
        .await;
    wait_for_file(&env.path("net")).await;
}

fn release_apply(env: &TestEnvironment) {
    std::fs::write(env.path("net.go"), "").unwrap();
}

/// Watches for violated invariants until it is dropped.
fn watch_invariants(env: &TestEnvironment) -> (Arc<Mutex<Vec<String>>>, tokio::task::JoinHandle<()>) {
    let violations: Arc<Mutex<Vec<String>>> = Arc::default();
    let (found, client) = (Arc::clone(&violations), env.client.clone());
    let task = tokio::spawn(async move {
        invariants::watch(client, |violation| found.lock().unwrap().push(violation)).await;
    });
    (violations, task)
}

/// Checks the end of each scenario: one apply in one run, and nothing was repeated.
async fn assert_applied_once(env: &TestEnvironment, violations: &Mutex<Vec<String>>) {
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(
        env.history("net").await,
        "1 PlanAndApply Revision 1: Succeeded TerraformAppliedSucceed +1 ~0 -0"
    );
    assert_eq!(std::fs::read_to_string(env.path("net")).unwrap(), "x\n");
    assert_eq!(*violations.lock().unwrap(), Vec::<String>::new());
}

/// The API refuses the renewal of the Lease during an apply.
async fn check_refused_renewal(work: [&str; 2]) {
    let env = TestEnvironment::without_controller().await;
    let proxy = ApiProxy::open(env.client.clone()).await;
    let (violations, watching) = watch_invariants(&env);
    let mut a = Program::start(&env, &proxy, "a", work[0]);
    wait_until_leader(&env, "a").await;
    let _b = Program::start(&env, &proxy, "b", work[1]);
    start_apply(&env).await;
    proxy.refuse_lease("a");
    a.wait_for_loss().await;
    wait_until_leader(&env, "b").await;
    // It has reconciled the stack: it accepts the request, and the run continues unchanged.
    env.request("net", "for b").await;
    let before = heartbeat(&env).await;
    env.wait_run("net", "another heartbeat", |run| {
        run.status.as_ref().unwrap().heartbeat_at != before
    })
    .await;
    let runs = env.runs("net").await;
    assert_eq!(runs.iter().map(phase).collect::<Vec<_>>(), ["Applying"]);
    release_apply(&env);
    env.wait_run("net", "done", |run| phase(run) == "Succeeded").await;
    // The request arrived during the run: drift detection follows.
    env.wait_ready("net", "True ").await;
    assert_eq!(std::fs::read_to_string(env.path("net")).unwrap(), "x\n");
    assert_eq!(*violations.lock().unwrap(), Vec::<String>::new());
    let first = &env.runs("net").await[0];
    assert_eq!(phase(first), "Succeeded");
    watching.abort();
}

async fn heartbeat(
    env: &TestEnvironment,
) -> Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime> {
    env.runs("net").await[0].status.clone().unwrap().heartbeat_at
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_cannot_renew_its_lease_ends_and_the_next_one_follows_its_run() {
    Box::pin(check_refused_renewal(["work", "work"])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_leader_in_another_lock_domain_follows_the_run_by_its_heartbeat() {
    Box::pin(check_refused_renewal(["work-a", "work-b"])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_leader_ends_when_resumed_and_repeats_nothing() {
    let env = TestEnvironment::without_controller().await;
    let proxy = ApiProxy::open(env.client.clone()).await;
    let (violations, watching) = watch_invariants(&env);
    let mut a = Program::start(&env, &proxy, "a", "work");
    wait_until_leader(&env, "a").await;
    let _b = Program::start(&env, &proxy, "b", "work");
    start_apply(&env).await;
    a.signal(Signal::STOP);
    wait_until_leader(&env, "b").await;
    release_apply(&env);
    assert_applied_once(&env, &violations).await;
    // A revision that both instances know when the old one is resumed.
    let revision = env
        .commit(
            "b",
            &[("main.tf", &format!("{SLOW}output \"more\" {{ value = 1 }}\n"))],
        )
        .await;
    a.signal(Signal::CONT);
    a.wait_for_loss().await;
    env.wait_for("net", "at the second revision", |stack| {
        let applied = stack
            .status
            .as_ref()
            .map(|status| status.last_applied_revision.clone());
        applied.as_ref() == Some(&revision) && condition(stack, "Ready").starts_with("True ")
    })
    .await;
    let runs = env.runs("net").await;
    assert_eq!(
        runs.iter().map(phase).collect::<Vec<_>>(),
        ["Succeeded", "Succeeded"]
    );
    assert_eq!(*violations.lock().unwrap(), Vec::<String>::new());
    watching.abort();
}

/// Kills a run as a failing machine would: the runner and the CLI with all descendants.
fn kill_all(run: &TerraformRun) {
    let claim = run.status.as_ref().unwrap().claim.as_ref().unwrap();
    let runner: i32 = claim.process.rsplit_once(':').unwrap().1.parse().unwrap();
    let parent = |process: i32| {
        let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        text.rsplit_once(')')?
            .1
            .split_whitespace()
            .nth(1)?
            .parse::<i32>()
            .ok()
    };
    let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let all = all.filter_map(|entry| entry.file_name().to_string_lossy().parse::<i32>().ok());
    let children: Vec<_> = all.filter(|process| parent(*process) == Some(runner)).collect();
    assert!(!children.is_empty(), "the CLI works");
    kill_process(Pid::from_raw(runner).unwrap(), Signal::KILL).unwrap();
    for group in children {
        kill_process_group(Pid::from_raw(group).unwrap(), Signal::KILL).unwrap();
    }
}

fn pod(name: &str) -> PodRef {
    PodRef {
        namespace: NAMESPACE.to_owned(),
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
    }
}

async fn lock(env: &TestEnvironment) -> Option<String> {
    let api: Api<Lease> = env.api();
    let lease = api.get("lock-tfstate-default-net").await.unwrap();
    lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
}

fn folder(path: &Path) -> &Path {
    std::fs::create_dir_all(path).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_run_of_another_pod_is_lost_and_its_state_lock_stays_until_that_pod_is_gone() {
    let mut env = TestEnvironment::without_controller().await;
    let proxy = ApiProxy::open(env.client.clone()).await;
    env.kubeconfig = proxy.write_kubeconfig(folder(&env.path("ways")), "all");
    proxy.add_pod("old", "uid-of-old");
    env.executor_settings.pod = Some(pod("old"));
    env.start(4).await;
    start_apply(&env).await;
    let run = env.runs("net").await.remove(0);
    kill_all(&run);
    env.stop().await;
    release_apply(&env);
    let lock_before = lock(&env).await;
    assert!(lock_before.is_some());

    *env.executor_settings = ExecutorSettings {
        root: "elsewhere".to_owned(),
        pod: Some(pod("new")),
        run_silence: Duration::from_secs(2),
    };
    env.start(4).await;
    env.wait_run("net", "lost", |run| phase(run) == "Lost").await;
    env.wait_ready("net", "False TFExec").await;
    let met = env
        .wait_for("net", "at the lock", |stack| {
            condition(stack, "StateLocked").starts_with("True LockHeld")
        })
        .await;
    // A pod with the same name may be another one; this one has taken the lock and is running.
    let failures = met.status.unwrap().reconciliation_failures;
    env.wait_for("net", "tried again", |stack| {
        stack
            .status
            .as_ref()
            .is_some_and(|status| status.reconciliation_failures > failures)
    })
    .await;
    assert_eq!(lock(&env).await, lock_before, "its holder may still be active");
    proxy.remove_pod("old");
    env.wait_ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(lock(&env).await, None);
    assert_eq!(
        std::fs::read_to_string(env.path("net")).unwrap(),
        "x\nx\n",
        "followed by a new plan"
    );
}

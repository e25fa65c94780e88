//! Leaders that are lost while a run goes on: the program itself, twice, on one API. And runs whose locks the next controller
//! cannot see, since it works elsewhere.

pub(crate) mod door;

use crate::{
    looks::{appears, condition},
    stops::laws,
    world::{DEADLINE, NAMESPACE, Site, World},
};
use door::Door;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::json;
use sluice_api::run::TerraformRun;
use sluice_tf_runner::run::Pod;
use std::{
    fs::File,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::process::{Child, Command};

/// The Lease of the controllers.
const LEASE: &str = "1953de50.contrib.fluxcd.io";

/// Its apply says that it has begun, and waits to be let go on.
const SLOW: &str = r#"
variable "marker" {}
resource "terraform_data" "slow" {
  provisioner "local-exec" { command = "echo x >> ${var.marker}; until [ -e ${var.marker}.go ]; do sleep 0.05; done" }
}
"#;

/// The program, with leader election in seconds.
struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    fn start(world: &World, door: &Door, name: &str, work: &str) -> Self {
        let kubeconfig = door.way(world.dir.path(), name);
        let log = world.path(&format!("{name}.log"));
        let path = sluice_harness::cli::search_path().unwrap();
        let file = File::create(&log).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_sluice-tf-controller"))
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
            .arg(format!("--runner={}", runner(world, door).display()))
            .arg(format!("--work-root={}", world.path(work).display()))
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

    /// Waits for its end, which must say that the lead was lost.
    async fn loses(&mut self) {
        let ended = tokio::time::timeout(DEADLINE, self.child.wait()).await;
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

/// The runner: this test binary, with a way to the API of its own.
fn runner(world: &World, door: &Door) -> PathBuf {
    let kubeconfig = door.way(world.dir.path(), "runner").display().to_string();
    let this = std::env::current_exe().unwrap().display().to_string();
    let text = format!(
        "#!/bin/sh\nexport KUBECONFIG={kubeconfig} KUBE_CONFIG_PATH={kubeconfig}\n\
         exec {this} as_runner --exact --nocapture -- \"$@\"\n"
    );
    let path = world.path("runner");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Waits until this one leads.
async fn leads(world: &World, name: &str) {
    let api: Api<Lease> = world.api();
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
    let led = tokio::time::timeout(DEADLINE, looking).await;
    assert!(led.is_ok(), "{name} does not lead");
}

fn phase(run: &TerraformRun) -> &'static str {
    run.status
        .as_ref()
        .map_or("Pending", |status| status.phase.as_str())
}

/// A stack whose apply goes on, begun by the leader `a`, while `b` stands by.
async fn mid_apply(world: &World) {
    world.commit("a", &[("main.tf", SLOW)]).await;
    let spec = json!({ "vars": [{ "name": "marker", "value": world.path("net") }] });
    world.stack("net", spec).await;
    // Says more than that there is no file, if it comes to that.
    world.run("net", "applying", |run| phase(run) == "Applying").await;
    appears(&world.path("net")).await;
}

fn let_go(world: &World) {
    std::fs::write(world.path("net.go"), "").unwrap();
}

/// Looks for laws that are broken, while it lives.
fn watch(world: &World) -> (Arc<Mutex<Vec<String>>>, tokio::task::JoinHandle<()>) {
    let broken: Arc<Mutex<Vec<String>>> = Arc::default();
    let (told, client) = (Arc::clone(&broken), world.client.clone());
    let task = tokio::spawn(async move { laws::watch(client, |law| told.lock().unwrap().push(law)).await });
    (broken, task)
}

/// The end of each of these stories: one apply, in one run, and nothing done twice.
async fn applied_once(world: &World, broken: &Mutex<Vec<String>>) {
    world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(
        world.history("net").await,
        "1 PlanAndApply Revision 1: Succeeded TerraformAppliedSucceed +1 ~0 -0"
    );
    assert_eq!(std::fs::read_to_string(world.path("net")).unwrap(), "x\n");
    assert_eq!(*broken.lock().unwrap(), Vec::<String>::new());
}

/// The API takes no renewal of the leader any more while its run applies.
async fn refused(work: [&str; 2]) {
    let world = World::without_controller().await;
    let door = Door::open(world.client.clone()).await;
    let (broken, watching) = watch(&world);
    let mut a = Program::start(&world, &door, "a", work[0]);
    leads(&world, "a").await;
    let _b = Program::start(&world, &door, "b", work[1]);
    mid_apply(&world).await;
    door.refuse_lease("a");
    a.loses().await;
    leads(&world, "b").await;
    // It has looked at the stack: what it asks for is taken up, and the run goes on as it was.
    world.request("net", "for b").await;
    let before = heartbeat(&world).await;
    world
        .run("net", "to give another sign of life", |run| {
            run.status.as_ref().unwrap().heartbeat_at != before
        })
        .await;
    let runs = world.runs("net").await;
    assert_eq!(runs.iter().map(phase).collect::<Vec<_>>(), ["Applying"]);
    let_go(&world);
    world.run("net", "done", |run| phase(run) == "Succeeded").await;
    // The request came while the run was under way: a look follows.
    world.ready("net", "True ").await;
    assert_eq!(std::fs::read_to_string(world.path("net")).unwrap(), "x\n");
    assert_eq!(*broken.lock().unwrap(), Vec::<String>::new());
    let first = &world.runs("net").await[0];
    assert_eq!(phase(first), "Succeeded");
    watching.abort();
}

async fn heartbeat(world: &World) -> Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime> {
    world.runs("net").await[0].status.clone().unwrap().heartbeat_at
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_cannot_renew_its_lease_ends_and_the_next_one_follows_its_run() {
    Box::pin(refused(["work", "work"])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_leader_elsewhere_follows_the_run_of_the_old_one_by_its_signs_of_life() {
    Box::pin(refused(["work-a", "work-b"])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_stopped_for_a_while_ends_when_it_goes_on_and_does_nothing_twice() {
    let world = World::without_controller().await;
    let door = Door::open(world.client.clone()).await;
    let (broken, watching) = watch(&world);
    let mut a = Program::start(&world, &door, "a", "work");
    leads(&world, "a").await;
    let _b = Program::start(&world, &door, "b", "work");
    mid_apply(&world).await;
    a.signal(Signal::STOP);
    leads(&world, "b").await;
    let_go(&world);
    applied_once(&world, &broken).await;
    // A revision that both know of when the old one goes on.
    let revision = world
        .commit(
            "b",
            &[("main.tf", &format!("{SLOW}output \"more\" {{ value = 1 }}\n"))],
        )
        .await;
    a.signal(Signal::CONT);
    a.loses().await;
    world
        .until("net", "at the second revision", |stack| {
            let applied = stack
                .status
                .as_ref()
                .map(|status| status.last_applied_revision.clone());
            applied.as_ref() == Some(&revision) && condition(stack, "Ready").starts_with("True ")
        })
        .await;
    let runs = world.runs("net").await;
    assert_eq!(
        runs.iter().map(phase).collect::<Vec<_>>(),
        ["Succeeded", "Succeeded"]
    );
    assert_eq!(*broken.lock().unwrap(), Vec::<String>::new());
    watching.abort();
}

/// Kills a run as its machine does that stops: the runner, and the CLI with all that it started.
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

fn pod(name: &str) -> Pod {
    Pod {
        namespace: NAMESPACE.to_owned(),
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
    }
}

async fn lock(world: &World) -> Option<String> {
    let api: Api<Lease> = world.api();
    let lease = api.get("lock-tfstate-default-net").await.unwrap();
    lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
}

fn folder(path: &Path) -> &Path {
    std::fs::create_dir_all(path).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_another_pod_that_fell_silent_is_lost_and_its_state_lock_stands_until_that_pod_is_gone() {
    let mut world = World::without_controller().await;
    let door = Door::open(world.client.clone()).await;
    world.kubeconfig = door.way(folder(&world.path("ways")), "all");
    door.pod_works("old", "uid-of-old");
    world.site.pod = Some(pod("old"));
    world.start(4).await;
    mid_apply(&world).await;
    let run = world.runs("net").await.remove(0);
    kill_all(&run);
    world.stop().await;
    let_go(&world);
    let held = lock(&world).await;
    assert!(held.is_some());

    *world.site = Site {
        root: "elsewhere".to_owned(),
        pod: Some(pod("new")),
        run_silence: Duration::from_secs(2),
    };
    world.start(4).await;
    world.run("net", "lost", |run| phase(run) == "Lost").await;
    world.ready("net", "False TFExec").await;
    let met = world
        .until("net", "at the lock", |stack| {
            condition(stack, "StateLocked").starts_with("True LockHeld")
        })
        .await;
    // Whoever has the same name is another pod; but this one is the one that took the lock, and works.
    let failures = met.status.unwrap().reconciliation_failures;
    world
        .until("net", "tried again", |stack| {
            stack
                .status
                .as_ref()
                .is_some_and(|status| status.reconciliation_failures > failures)
        })
        .await;
    assert_eq!(lock(&world).await, held, "its holder may still work");
    door.pod_goes("old");
    world.ready("net", "True TerraformAppliedSucceed").await;
    assert_eq!(lock(&world).await, None);
    assert_eq!(
        std::fs::read_to_string(world.path("net")).unwrap(),
        "x\nx\n",
        "begun anew by a fresh plan"
    );
}

//! Many stacks and sources on a real etcd and kube-apiserver: the cost of their convergence, of an interval without changes, of a restart
//! and of a change of the leader. Both controllers run under the roles of `config` with leader election; runs are Jobs.
//!
//! `SLUICE_STACKS` and `SLUICE_SOURCES` set the numbers: `make load` measures 1,500 and 1,000, and the suite runs the same test with few.
//! Numbers of runs, fetches and requests are asserted, and memory where the numbers are at least these. Times are only printed.
//!
//! The Git server is the real one, and so is the Job controller of Kubernetes. There is no scheduler, and [`kubelet`] starts no pod but
//! plays its runner.

mod checks;
mod kubelet;
mod measurement;
mod objects;
mod requests;
mod sizes;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Debug;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use sluice_api::run::TerraformRun;
use sluice_api::source::GitRepository;
use sluice_api::terraform::Terraform;
use sluice_harness::git::{GitServer, RepositorySet, Step};

use crate::environment::{Controller, TestEnvironment};
use crate::{with_timeout_of, without_cluster};
use kubelet::Kubelet;
use measurement::{Account, GitRequests, Measurement, Memory};
use objects::Size;
use requests::{AuditLog, RequestCounts, RequestKind};

/// The numbers of the test in the suite.
const SUITE_SIZE: (usize, usize) = (30, 20);
/// The interval of sources, in seconds: with few objects, and else that of Flux's examples.
const INTERVALS: (u64, u64) = (10, 60);
/// Time without requests after which the controllers have done everything. Longer than the delay of any retry and trigger but the interval.
const QUIET: Duration = Duration::from_secs(5);
/// How many intervals without changes are measured: an interval has a jitter.
const IDLE_INTERVALS: f64 = 1.2;
/// Timeout of the start of servers and controllers.
const START_TIMEOUT: Duration = Duration::from_mins(5);
/// Time for each object beyond that.
const OBJECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two reads of the audit log.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

#[test]
fn a_restart_and_a_change_of_the_leader_run_and_fetch_nothing() {
    if without_cluster() {
        return;
    }
    let size = size();
    // Far above the normal duration, on a slow machine too.
    let objects = u32::try_from(size.stacks + size.sources).unwrap();
    let timeout = START_TIMEOUT + OBJECT_TIMEOUT * objects;
    with_timeout_of(START_TIMEOUT + timeout, async {
        let mut load = Load::start(size).await;
        let measured = tokio::time::timeout(timeout, Box::pin(load.measure())).await;
        let logs = || format!("timeout after {timeout:?}\n{}", load.env.logs());
        measured.unwrap_or_else(|_| panic!("{}", logs()));
        load.end().await;
    });
}

/// Returns the numbers of the environment.
fn size() -> Size {
    let number = |name: &str, default: usize| match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    };
    let (stacks, sources) = (
        number("SLUICE_STACKS", SUITE_SIZE.0),
        number("SLUICE_SOURCES", SUITE_SIZE.1),
    );
    assert!(
        stacks >= sources && sources > 0,
        "each source needs a stack: set SLUICE_STACKS to at least SLUICE_SOURCES"
    );
    let seconds = if stacks > SUITE_SIZE.0 {
        INTERVALS.1
    } else {
        INTERVALS.0
    };
    Size {
        stacks,
        sources,
        interval: Duration::from_secs(seconds),
    }
}

/// The servers, controllers and objects of the test.
struct Load {
    size: Size,
    env: TestEnvironment,
    client: Client,
    server: GitServer,
    _repositories: RepositorySet,
    kubelet: Kubelet,
    log: AuditLog,
    /// The runs that exist.
    runs: BTreeSet<String>,
    /// tf-controllers that have ended.
    ended: Vec<Controller>,
}

/// A part of the test that is being measured.
struct Part {
    title: &'static str,
    began: Instant,
    before: RequestCounts,
}

impl Load {
    /// Starts the servers and creates all objects. The controllers do not run yet.
    async fn start(size: Size) -> Self {
        let mut env = TestEnvironment::start_with_jobs().await;
        env.elect_leaders();
        let client = env.plane.client().await.unwrap();
        let server = GitServer::start().await.unwrap();
        let repositories = objects::repositories(size.sources).unwrap();
        let runners = objects::runners(&env.plane, size).await.unwrap();
        let created = objects::create(&client, size, &repositories, &server).await;
        created.unwrap();
        let log = AuditLog::new(&env.plane.folder().join("audit.log"));
        let build = if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        };
        eprintln!("{} stacks, {} sources, {build} build", size.stacks, size.sources);
        Self {
            size,
            client: client.clone(),
            server,
            _repositories: repositories,
            kubelet: Kubelet::start(client, runners),
            log,
            runs: BTreeSet::new(),
            ended: Vec::new(),
            env,
        }
    }

    /// Measures and checks all parts.
    async fn measure(&mut self) {
        let first = self.converge().await;
        self.check_convergence(&first);
        let idle = self.idle().await;
        self.check_idle(&idle);
        let restart = self.restart().await;
        self.check_unchanged(&restart);
        let leader = self.change_leader().await;
        self.check_unchanged(&leader);
        self.print_sizes([&first, &idle, &restart, &leader]).await;
    }

    /// Starts the controllers, and waits until all sources are ready and all stacks are planned or applied.
    async fn converge(&mut self) -> Measurement {
        let part = self.begin("First start");
        self.env.start_controllers();
        let sources = Box::pin(wait_for_all(
            self.api::<GitRepository>(),
            self.size.sources,
            is_source_ready,
        ));
        let stacks = Box::pin(wait_for_all(
            self.api::<Terraform>(),
            self.size.stacks,
            is_stack_done,
        ));
        let done = async { tokio::join!(sources, stacks) };
        let (sources, stacks) = tokio::select! {
            times = done => times,
            error = self.kubelet.failed() => panic!("{error}\n{}", self.env.logs()),
        };
        let seconds = |time: Duration| time.as_secs_f64();
        eprintln!(
            "All sources are ready after {:.1} s, all stacks are planned or applied after {:.1} s",
            seconds(sources),
            seconds(stacks)
        );
        self.finish(part).await
    }

    /// Waits for an interval of the sources, in which each is polled.
    async fn idle(&mut self) -> Measurement {
        let part = self.begin("An interval without changes");
        tokio::time::sleep(self.size.interval.mul_f64(IDLE_INTERVALS)).await;
        self.finish(part).await
    }

    /// Kills both controllers and starts them again. They wait until the Leases of the killed ones expire. source-controller is first: a
    /// new tf-controller reads the artifacts of all stacks.
    async fn restart(&mut self) -> Measurement {
        let part = self.begin("Restart after a kill");
        self.env.tf_controller.kill().await.unwrap();
        self.env.source_controller.kill_and_start().await.unwrap();
        self.wait_for_lookups().await;
        self.env.tf_controller.start().unwrap();
        self.wait_for_reads(&part).await;
        self.finish(part).await
    }

    /// Ends both controllers in order. source-controller starts again, as its Deployment does it (`Recreate`). A second tf-controller,
    /// which waits, takes over.
    async fn change_leader(&mut self) -> Measurement {
        let mut standby = self.env.standby_tf_controller().await;
        standby.start().unwrap();
        let part = self.begin("Change of the leader");
        self.env.source_controller.end().await.unwrap();
        self.env.source_controller.start().unwrap();
        self.wait_for_lookups().await;
        self.env.tf_controller.end().await.unwrap();
        std::mem::swap(&mut self.env.tf_controller, &mut standby);
        self.ended.push(standby);
        self.wait_for_reads(&part).await;
        self.finish(part).await
    }

    fn begin(&mut self, title: &'static str) -> Part {
        self.log.read().unwrap();
        self.server.clear_requests();
        Part {
            title,
            began: Instant::now(),
            before: self.log.counts(),
        }
    }

    /// Waits until each repository was looked up in this part.
    async fn wait_for_lookups(&self) {
        loop {
            let requests = self.server.requests();
            let lookups = requests.iter().filter(|request| request.step == Step::LsRefs);
            let repositories: HashSet<_> = lookups.map(|request| request.repository.as_str()).collect();
            if repositories.len() == self.size.sources {
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until tf-controller has read the runs of as many stacks as there are in this part.
    async fn wait_for_reads(&mut self, part: &Part) {
        let is_read = |kind: &RequestKind| kind.resource == "terraformruns" && kind.verb == "list";
        loop {
            self.log.read().unwrap();
            let requests = self.log.since(&part.before);
            if requests.sum("tf-controller", is_read) >= self.size.stacks {
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until the controllers have done everything, prints what the part cost, and returns it.
    async fn finish(&mut self, part: Part) -> Measurement {
        let mut last = Instant::now();
        while last.elapsed() < QUIET {
            tokio::time::sleep(POLL_INTERVAL).await;
            if self.log.read().unwrap() {
                last = Instant::now();
            }
        }
        let runs = self.run_names().await;
        let measurement = Measurement {
            title: part.title,
            duration: last.duration_since(part.began),
            requests: self.log.since(&part.before),
            git: GitRequests::of(&self.server.requests()),
            runs: runs.difference(&self.runs).count(),
            memory: self.memory(),
        };
        self.runs.extend(runs);
        eprintln!("{}", measurement.table(&self.accounts()));
        assert_eq!(self.kubelet.error(), None);
        measurement
    }

    /// Returns the names of all runs.
    async fn run_names(&self) -> BTreeSet<String> {
        let runs = self
            .api::<TerraformRun>()
            .list_metadata(&ListParams::default())
            .await;
        let names = runs.unwrap().items;
        names
            .iter()
            .map(|run| format!("{}/{}", run.namespace().unwrap_or_default(), run.name_any()))
            .collect()
    }

    fn memory(&self) -> BTreeMap<&'static str, Memory> {
        let [sources, stacks] = self.accounts();
        let of = |account: Account, controller: &Controller| {
            let id = controller.id().unwrap();
            (account.name, Memory::of_process(id).unwrap())
        };
        [
            of(sources, &self.env.source_controller),
            of(stacks, &self.env.tf_controller),
        ]
        .into()
    }

    /// Returns the accounts of both controllers.
    const fn accounts(&self) -> [Account; 2] {
        [
            Account {
                name: "source-controller",
                object: "source",
                objects: self.size.sources,
            },
            Account {
                name: "tf-controller",
                object: "stack",
                objects: self.size.stacks,
            },
        ]
    }

    fn api<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    /// Ends the controllers. Fails if the API server refused a request.
    async fn end(mut self) {
        self.env.source_controller.end_without_refusal().await;
        self.env.tf_controller.end_without_refusal().await;
        for controller in &mut self.ended {
            controller.end_without_refusal().await;
        }
    }
}

/// Waits until `count` objects of a kind are done. Returns how long it took.
async fn wait_for_all<K>(api: Api<K>, count: usize, is_done: fn(&K) -> bool) -> Duration
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let began = Instant::now();
    let mut objects = pin!(
        watcher(api, watcher::Config::default())
            .default_backoff()
            .applied_objects()
    );
    let mut done = HashSet::new();
    while done.len() < count {
        let Some(object) = objects.next().await else {
            panic!("the watch ended");
        };
        // The watch starts again.
        let Ok(object) = object else { continue };
        if is_done(&object) {
            done.insert(object.uid());
        } else {
            done.remove(&object.uid());
        }
    }
    began.elapsed()
}

fn is_ready(conditions: &[Condition]) -> bool {
    let mut all = conditions.iter();
    all.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn is_source_ready(source: &GitRepository) -> bool {
    let status = source.status.as_ref();
    status.is_some_and(|status| status.artifact.is_some() && is_ready(&status.conditions))
}

/// Returns whether a stack is applied, or planned if its plan needs an approval.
fn is_stack_done(stack: &Terraform) -> bool {
    let Some(status) = &stack.status else {
        return false;
    };
    if stack.spec.approve_plan == "auto" {
        return is_ready(&status.conditions) && !status.last_applied_revision.is_empty();
    }
    let plan = status.plan.as_ref();
    plan.is_some_and(|plan| !plan.pending.is_empty())
}

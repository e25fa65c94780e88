//! Measures source-controller with many small sources: their first reconciliation, unchanged passes, and a restart. Flux's
//! source-controller does the same work in the same run, where Go can build it. Each has its own API server in this process
//! and the same Git server, so their times and CPU are comparable with each other only.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Api;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_harness::git::{GitServer, RepositorySet};
use sluice_harness::gobuild::{self, Tool};
use sluice_tests::BoxError;

use crate::controller::{Controller, Cost, definitions, own_program};
use crate::{Table, mebibytes, seconds};

/// Timeout of each part for all objects.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Number of concurrent writes to the API.
const CONCURRENT_WRITES: usize = 16;
/// Interval of unchanged sources while they are observed, in seconds, and the number of intervals.
const INTERVAL: (u32, u32) = (10, 3);

/// What a controller needed for the parts of one round.
struct Round {
    first: Cost,
    memory: u64,
    pass: Cost,
    restart: Cost,
}

/// Measures `count` sources in `rounds` rounds, in turn with both controllers.
pub(crate) async fn measure(count: usize, rounds: usize, table: &mut Table) -> Result<(), BoxError> {
    let contents = |number: usize| format!("locals {{\n  number = {number}\n}}\n");
    let repositories = RepositorySet::create(count, "main.tf", contents)?;
    let server = GitServer::start().await?;
    let urls: Vec<_> = repositories
        .git_dirs()
        .enumerate()
        .map(|(number, git_dir)| server.serve_git_dir(&name(number), &git_dir))
        .collect();
    let flux = match gobuild::build(Tool::FluxSourceController, &mut |line| eprintln!("{line}")) {
        Ok(program) => Some(program),
        Err(error) => {
            table.line("Flux's source-controller", &format!("not measured: {error}"));
            None
        }
    };
    let (mut own, mut other) = (Vec::new(), Vec::new());
    for _ in 0..rounds.max(1) {
        own.push(measure_once(&own_program()?, &urls).await?);
        if let Some(program) = &flux {
            other.push(measure_once(std::slice::from_ref(program), &urls).await?);
        }
    }
    report(count, &own, &other, table);
    Ok(())
}

/// Measures one controller from its first start to a restart.
async fn measure_once(program: &[PathBuf], urls: &[String]) -> Result<Round, BoxError> {
    let folder = tempfile::tempdir()?;
    let mut controller = Controller::start(program, folder.path(), definitions()?).await?;
    let before = controller.cost().await?;
    let began = Instant::now();
    create(controller.sources(), urls).await?;
    wait_for_all(controller.sources(), is_ready).await?;
    let first = controller.cost().await?.since(&before, began.elapsed());
    let memory = controller.usage()?.memory;
    let pass = observe_passes(&controller).await?;
    let restart = restart(&mut controller, folder.path()).await?;
    controller.end().await?;
    Ok(Round {
        first,
        memory,
        pass,
        restart,
    })
}

/// Creates the sources, with an interval that does not end during the first reconciliations.
async fn create(sources: &Api<DynamicObject>, urls: &[String]) -> Result<(), BoxError> {
    let creations = urls.iter().enumerate().map(|(number, url)| async move {
        let source = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": { "name": name(number) },
            "spec": { "url": url, "interval": "1h", "ref": { "branch": "main" } } });
        let source = serde_json::from_value(source)?;
        sources.create(&PostParams::default(), &source).await?;
        Ok::<_, BoxError>(())
    });
    stream::iter(creations)
        .buffer_unordered(CONCURRENT_WRITES)
        .try_collect()
        .await
}

/// Shortens the intervals, and returns the mean cost of a pass of all sources.
async fn observe_passes(controller: &Controller) -> Result<Cost, BoxError> {
    let (interval, passes) = INTERVAL;
    let spec = json!({ "spec": { "interval": format!("{interval}s") } });
    patch_all(controller.sources(), &spec).await?;
    wait_for_all(controller.sources(), is_observed).await?;
    // The first pass spreads over one interval.
    tokio::time::sleep(Duration::from_secs(interval.into())).await;
    let before = controller.cost().await?;
    let observed = Duration::from_secs((interval * passes).into());
    tokio::time::sleep(observed).await;
    // A pass takes as long as its interval.
    let all = controller.cost().await?.since(&before, Duration::ZERO);
    Ok(all.divided_by(passes))
}

/// Starts the controller again on its storage, with a reconcile request for each source.
async fn restart(controller: &mut Controller, folder: &Path) -> Result<Cost, BoxError> {
    controller.kill().await?;
    let token = "restart";
    let metadata = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": token } } });
    patch_all(controller.sources(), &metadata).await?;
    let began = Instant::now();
    controller.start_again(folder).await?;
    let handled = |source: &DynamicObject| source.data["status"]["lastHandledReconcileAt"] == token;
    wait_for_all(controller.sources(), handled).await?;
    Ok(controller.cost().await?.since(&Cost::default(), began.elapsed()))
}

async fn patch_all(sources: &Api<DynamicObject>, patch: &Value) -> Result<(), BoxError> {
    let all = sources.list(&ListParams::default()).await?.items;
    let patches = all.into_iter().map(|source| async move {
        let name = source.metadata.name.unwrap_or_default();
        sources
            .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok::<_, BoxError>(())
    });
    stream::iter(patches)
        .buffer_unordered(CONCURRENT_WRITES)
        .try_collect()
        .await
}

/// Waits until all sources fulfil the condition. Lists are rare enough not to disturb.
async fn wait_for_all(
    sources: &Api<DynamicObject>,
    condition: impl Fn(&DynamicObject) -> bool,
) -> Result<(), BoxError> {
    let waiting = async {
        loop {
            let all = sources.list(&ListParams::default()).await?.items;
            if all.iter().all(&condition) {
                return Ok::<_, BoxError>(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, waiting).await?
}

fn is_ready(source: &DynamicObject) -> bool {
    let conditions = source.data["status"]["conditions"].as_array();
    conditions.is_some_and(|all| {
        all.iter()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    })
}

fn is_observed(source: &DynamicObject) -> bool {
    is_ready(source) && source.data["status"]["observedGeneration"].as_i64() == source.metadata.generation
}

fn name(number: usize) -> String {
    format!("source-{number}")
}

/// Selects the cost of one part of a round.
type Part = fn(&Round) -> &Cost;

/// Prints the medians of both controllers, and their ratios.
fn report(count: usize, own: &[Round], other: &[Round], table: &mut Table) {
    let parts: [(String, Part); 3] = [
        (format!("{count} new small sources"), |round| &round.first),
        (format!("a pass of {count} unchanged sources"), |round| {
            &round.pass
        }),
        (format!("restart with {count} sources, all requested"), |round| {
            &round.restart
        }),
    ];
    for (title, part) in parts {
        let median = |rounds: &[Round]| Cost::median(rounds.iter().map(part));
        let (sluice, flux) = (median(own), median(other));
        let is_compared = !other.is_empty();
        let times = |own: Duration, other: Duration| {
            let ratio = own.as_secs_f64() / other.as_secs_f64().max(f64::EPSILON);
            if is_compared {
                format!("{ratio:.2} ({} to {} of Flux)", seconds(own), seconds(other))
            } else {
                seconds(own)
            }
        };
        table.line(&format!("{title}: CPU"), &times(sluice.cpu, flux.cpu));
        if !sluice.time.is_zero() {
            table.line("  time", &times(sluice.time, flux.time));
        }
        let requests = beside(
            is_compared,
            &sluice.requests.to_string(),
            &flux.requests.to_string(),
        );
        table.line("  API requests", &requests);
    }
    let memory = |rounds: &[Round]| {
        let mut all: Vec<_> = rounds.iter().map(|round| round.memory).collect();
        all.sort_unstable();
        mebibytes(all.get(all.len() / 2).copied().unwrap_or_default())
    };
    let value = beside(!other.is_empty(), &memory(own), &memory(other));
    table.line("  memory after the first reconciliations", &value);
}

fn beside(is_compared: bool, own: &str, other: &str) -> String {
    if is_compared {
        format!("{own} to {other} of Flux")
    } else {
        own.to_owned()
    }
}

//! Measures source-controller with many small sources: their first reconciliation, reconciliations without a change, and restarts. Flux's
//! source-controller does the same work in the same run, where Go can build it. Each has its own API server in this process and the same
//! Git server, so their times and CPU are comparable with each other only.

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
use crate::results::{Goal, Results, Row, Unit, number, seconds};
use crate::usage::Usage;

/// Timeout of each part for all objects.
const TIMEOUT: Duration = Duration::from_mins(10);
/// Number of concurrent writes to the API.
const CONCURRENT_WRITES: usize = 16;
/// Interval of unchanged sources while they are observed, in seconds, and the number of intervals.
pub(crate) const INTERVAL: (u32, u32) = (10, 3);
/// The most that a source may cost on two cores: seconds of CPU and requests of the first reconciliation, seconds of CPU of a
/// reconciliation without a change.
const CPU_OF_NEW: f64 = 0.008;
const REQUESTS_OF_NEW: f64 = 4.0;
pub(crate) const CPU_OF_PASS: f64 = 0.000_25;
/// The most anonymous memory of a source, in bytes, and the number of sources from which on the memory of the program itself counts little.
const MEMORY_OF_SOURCE: (f64, usize) = (15_000.0, 1_000);
/// The numbers of sources with limits of their own: seconds until all are ready, and resident memory then.
const LIMITS: [(usize, f64, u64); 2] = [(300, 5.0, 40 << 20), (1_000, 15.0, 64 << 20)];
/// Seconds until 300 sources are handled after a restart: with their storage, and with an empty one.
const RESTARTS: (usize, f64, f64) = (300, 1.0, 5.0);

/// What a controller needed for the parts of one round.
struct Round {
    first: Cost,
    /// Before the first source, and when all are ready.
    empty: Usage,
    ready: Usage,
    pass: Cost,
    /// The restarts: with the storage kept, and with an empty one.
    kept: Cost,
    emptied: Cost,
}

/// The rounds of one number of sources.
struct Fleet {
    count: usize,
    own: Vec<Round>,
    /// Name of the alternative, or why there is none, and its rounds.
    other: (String, Vec<Round>),
}

/// Measures each number of sources on its own, and what a source adds to the memory between two numbers.
pub(crate) async fn measure_all(
    counts: &[usize],
    rounds: usize,
    results: &mut Results,
) -> Result<(), BoxError> {
    let mut last: Option<Fleet> = None;
    for count in counts {
        let fleet = measure(*count, rounds).await?;
        report(&fleet, results);
        if let Some(smaller) = last.filter(|last| last.count < fleet.count) {
            report_growth(&smaller, &fleet, results);
        }
        last = Some(fleet);
    }
    Ok(())
}

/// Measures `count` sources in `rounds` rounds, in turn with both controllers.
async fn measure(count: usize, rounds: usize) -> Result<Fleet, BoxError> {
    let contents = |number: usize| format!("locals {{\n  number = {number}\n}}\n");
    let repositories = RepositorySet::create(count, "main.tf", contents)?;
    let server = GitServer::start().await?;
    let urls: Vec<_> = repositories
        .git_dirs()
        .enumerate()
        .map(|(number, git_dir)| server.serve_git_dir(&name(number), &git_dir))
        .collect();
    let flux = gobuild::build(Tool::FluxSourceController, &mut |line| eprintln!("{line}"));
    let alternative = match &flux {
        Ok(_) => "Flux's source-controller".to_owned(),
        Err(error) => format!("Flux's source-controller is not built: {error}"),
    };
    let (mut own, mut other) = (Vec::new(), Vec::new());
    for _ in 0..rounds.max(1) {
        own.push(measure_once(&own_program()?, &urls).await?);
        if let Ok(program) = &flux {
            other.push(measure_once(std::slice::from_ref(program), &urls).await?);
        }
    }
    Ok(Fleet {
        count,
        own,
        other: (alternative, other),
    })
}

/// Measures one controller from its first start to its restarts.
async fn measure_once(program: &[PathBuf], urls: &[String]) -> Result<Round, BoxError> {
    let folder = tempfile::tempdir()?;
    let mut controller = Controller::start(program, folder.path(), definitions()?).await?;
    let before = controller.cost().await?;
    let empty = controller.usage()?;
    let began = Instant::now();
    create(controller.sources(), urls).await?;
    wait_for_all(controller.sources(), is_ready).await?;
    let first = controller.cost().await?.since(&before, began.elapsed());
    let ready = controller.usage()?;
    let (interval, _) = INTERVAL;
    shorten_intervals(controller.sources(), interval).await?;
    let pass = observe_passes(&controller).await?;
    controller.kill().await?;
    let kept = restart(&mut controller, folder.path(), "kept").await?;
    controller.kill().await?;
    let storage = folder.path().join("storage");
    std::fs::remove_dir_all(&storage)?;
    std::fs::create_dir(&storage)?;
    let emptied = restart(&mut controller, folder.path(), "emptied").await?;
    controller.end().await?;
    Ok(Round {
        first,
        empty,
        ready,
        pass,
        kept,
        emptied,
    })
}

/// Creates the sources, with an interval that does not end during the first reconciliations.
pub(crate) async fn create(sources: &Api<DynamicObject>, urls: &[String]) -> Result<(), BoxError> {
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

/// Shortens the intervals of all sources to these seconds, and waits until their reconciliations are spread over one interval.
pub(crate) async fn shorten_intervals(sources: &Api<DynamicObject>, interval: u32) -> Result<(), BoxError> {
    let spec = json!({ "spec": { "interval": format!("{interval}s") } });
    patch_all(sources, &spec).await?;
    wait_for_all(sources, is_observed).await?;
    tokio::time::sleep(Duration::from_secs(interval.into())).await;
    Ok(())
}

/// Returns the mean cost of one reconciliation of each source.
pub(crate) async fn observe_passes(controller: &Controller) -> Result<Cost, BoxError> {
    let (interval, passes) = INTERVAL;
    let before = controller.cost().await?;
    let observed = Duration::from_secs((interval * passes).into());
    tokio::time::sleep(observed).await;
    // The measured part lasts one interval.
    let all = controller.cost().await?.since(&before, Duration::ZERO);
    Ok(all.divided_by(passes))
}

/// Starts the killed controller again, with a reconcile request for each source.
async fn restart(controller: &mut Controller, folder: &Path, token: &str) -> Result<Cost, BoxError> {
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
pub(crate) async fn wait_for_all(
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

/// Returns whether a source is ready.
pub(crate) fn is_ready(source: &DynamicObject) -> bool {
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
/// The most seconds, seconds of CPU, requests and writes of all sources together.
type Limits = [Option<f64>; 4];

/// Adds the rows of all parts, with what they must be.
fn report(fleet: &Fleet, results: &mut Results) {
    let Fleet { count, own, other } = fleet;
    let (count, (name, other)) = (*count, other);
    let all = number(count as u64);
    let limits = LIMITS.into_iter().find(|(limited, ..)| *limited == count);
    let (time, memory) = (limits.map(|(_, time, _)| time), limits.map(|(.., memory)| memory));
    let (restarted, kept, emptied) = RESTARTS;
    let of_restart = |limit: f64| (restarted == count).then_some(limit);
    let parts: [(String, Part, Limits); 4] = [
        (
            format!("{count} new small sources"),
            |round| &round.first,
            [time, Some(CPU_OF_NEW * all), Some(REQUESTS_OF_NEW * all), None],
        ),
        (
            format!("a reconciliation of {count} unchanged sources"),
            |round| &round.pass,
            [None, Some(CPU_OF_PASS * all), Some(0.0), Some(0.0)],
        ),
        (
            format!("restart with {count} sources, all requested"),
            |round| &round.kept,
            [of_restart(kept), None, None, Some(all)],
        ),
        (
            format!("restart with {count} sources, storage emptied"),
            |round| &round.emptied,
            [of_restart(emptied), None, None, None],
        ),
    ];
    for (title, part, limits) in parts {
        let costs = |rounds: &[Round]| rounds.iter().map(|round| *part(round)).collect::<Vec<_>>();
        report_part(&title, &costs(own), (name, &costs(other)), limits, results);
    }
    report_memory(fleet, memory, results);
}

/// Adds the rows of the memory when all sources are ready, and of what each adds to that of the start.
fn report_memory(fleet: &Fleet, limit: Option<u64>, results: &mut Results) {
    let Fleet { count, own, other } = fleet;
    let (name, other) = other;
    let resident = |rounds: &[Round]| of_rounds(rounds, |round| number(round.ready.memory));
    let row = Row::new(
        format!("{count} new small sources: resident memory"),
        Unit::Bytes,
        resident(own),
    );
    let goal = limit.map(|bytes| Goal::AtMost(number(bytes)));
    results.add(row.beside(name, resident(other)).goal_if_known(goal));
    let anonymous = |rounds: &[Round]| of_rounds(rounds, |round| number(round.ready.private));
    let row = Row::new("its anonymous part", Unit::Bytes, anonymous(own));
    results.add(row.beside(name, anonymous(other)));
    let all = number(*count as u64);
    let each = |rounds: &[Round]| {
        of_rounds(rounds, |round| {
            number(round.ready.private.saturating_sub(round.empty.private)) / all
        })
    };
    let title = format!("anonymous memory of each, from 0 to {count} sources");
    let row = Row::new(title, Unit::Bytes, each(own)).beside(name, each(other));
    let (most, many) = MEMORY_OF_SOURCE;
    results.add(row.goal_if_known((*count >= many).then_some(Goal::AtMost(most))));
}

/// Adds the row of what a source adds to the anonymous memory between two numbers of sources: the program itself and its pools do not count.
fn report_growth(smaller: &Fleet, larger: &Fleet, results: &mut Results) {
    let more = number((larger.count - smaller.count) as u64);
    let each = |smaller: &[Round], larger: &[Round]| {
        let pairs = smaller.iter().zip(larger);
        let growth = pairs.map(|(smaller, larger)| {
            number(larger.ready.private.saturating_sub(smaller.ready.private)) / more
        });
        growth.collect::<Vec<_>>()
    };
    let title = format!(
        "anonymous memory of each, from {} to {} sources",
        smaller.count, larger.count
    );
    let (name, other) = &larger.other;
    let row = Row::new(title, Unit::Bytes, each(&smaller.own, &larger.own));
    let row = row.beside(name, each(&smaller.other.1, other));
    let (most, _) = MEMORY_OF_SOURCE;
    results.add(row.goal(Goal::AtMost(most)));
}

/// Returns a sample of each round.
fn of_rounds(rounds: &[Round], sample: impl Fn(&Round) -> f64) -> Vec<f64> {
    rounds.iter().map(sample).collect()
}

/// Adds the rows of one part: time, CPU, requests and writes. A reconciliation without a change has no time of its own.
fn report_part(
    title: &str,
    own: &[Cost],
    (name, other): (&str, &[Cost]),
    [time, cpu, requests, writes]: Limits,
    results: &mut Results,
) {
    let goal = |limit: Option<f64>| limit.map(Goal::AtMost);
    let times = |costs: &[Cost]| costs.iter().map(|cost| cost.time).collect::<Vec<_>>();
    if times(own).iter().any(|time| !time.is_zero()) {
        let row = Row::times(format!("{title}: time"), &times(own));
        results.add(row.beside(name, seconds(&times(other))).goal_if_known(goal(time)));
    }
    let cpus = |costs: &[Cost]| costs.iter().map(|cost| cost.cpu).collect::<Vec<_>>();
    let row = Row::times(format!("{title}: CPU"), &cpus(own));
    results.add(row.beside(name, seconds(&cpus(other))).goal_if_known(goal(cpu)));
    let counts = |costs: &[Cost]| costs.iter().map(|cost| number(cost.requests)).collect();
    let row = Row::new(format!("{title}: API requests"), Unit::Count, counts(own));
    results.add(row.beside(name, counts(other)).goal_if_known(goal(requests)));
    let counts = |costs: &[Cost]| costs.iter().map(|cost| number(cost.writes)).collect();
    let row = Row::new(format!("{title}: writes of objects"), Unit::Count, counts(own));
    results.add(row.beside(name, counts(other)).goal_if_known(goal(writes)));
}

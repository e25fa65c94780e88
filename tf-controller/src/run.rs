//! The controller as a whole: its watches, wired to its passes.

use crate::{
    definitions,
    executor::{Executor, RunRef},
    inputs::{DefaultBackend, Place, SecretPlace, reads},
    reconcile::{
        Artifacts, Context, Following, Pulses, Spent, Stacks, forget_stack, in_order, neighbours, stack_of,
        version,
    },
    runs,
    schedule::{Limits, Places},
    sources::{self, Known},
};
use futures::{Stream, StreamExt, channel::mpsc::UnboundedReceiver as Turns, future, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client, ResourceExt, core::DeserializeGuard};
use sluice_api::{
    interval::Interval,
    reference::CrossNamespace,
    run::{Action, TerraformRun},
    source::GitRepository,
    terraform::{KeySource, SourceKind, Terraform},
};
use sluice_runtime::{
    artifact::Fetcher,
    clock::{Clock, SystemClock},
    http, pages,
    probes::Readiness,
    schedule::ObjectKey,
    shutdown::Token,
    watch::{Changes, Kind, Objects, Related, Scope, Settings, Watch},
};
use std::{collections::HashSet, path::PathBuf, sync::Arc, time::Duration};
use tokio::sync::mpsc::UnboundedReceiver;

/// Time between looks for an API that is away at the start.
const AGAIN: Duration = Duration::from_secs(1);
/// Time between looks for stacks that were called to their turn and never came.
const PASS_BY: Duration = Duration::from_secs(10);
/// How long a pass that a run's own word calls may take, before the end of its runner calls one.
const HEARD: Duration = Duration::from_millis(500);
/// Runners that end at once and are waited for so; others wait behind them.
const UNHEARD: usize = 256;
/// How long passes wait for the first list of sources.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the controller is told.
pub struct Options {
    /// How its watch runs: name, scope, passes at once, recorder, metrics.
    pub settings: Settings,
    /// Scratch directory for artifacts.
    pub scratch: PathBuf,
    /// Directory of the installed versions of the CLI, as the runners are told too; none: only what is on PATH.
    pub tools: Option<PathBuf>,
    /// Runs at once.
    pub runs: u16,
    /// Runs of one namespace at once; 0: as many as there are.
    pub runs_per_namespace: u16,
    /// Whether references may leave their namespace.
    pub cross_namespace: CrossNamespace,
    /// Whether stacks that name a ServiceAccount of their own are carried out with the rights of this process.
    pub ignore_account: bool,
    /// Bound on a run.
    pub run_deadline: Interval,
    /// How long a run that works elsewhere may give no sign of life before it counts as lost.
    pub run_silence: Duration,
    /// The Secret with the keys that stored plans are sealed with; none: they are not.
    pub plan_encryption: Option<SecretPlace>,
    /// Longest session of a person in a stack's directory; `None`: sessions are not allowed.
    pub glass: Option<Interval>,
    /// Most bytes of files, compressed, that are kept of what a stack applied, for a destroy without its source.
    pub destroy_files_limit: u64,
    /// Where the CLI runs.
    pub place: Place,
    /// The backend of stacks that say nothing of one.
    pub default_backend: DefaultBackend,
    /// Retries of an artifact download, of which a pass makes two at most.
    pub http_retry: u32,
    /// Host that replaces the one of artifact URLs.
    pub artifact_host: Option<String>,
    /// Set once the definitions in the cluster are found to keep every field; before that nothing is done.
    pub ready: Readiness,
}

/// Why the controller could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The scratch directory cannot be used.
    #[error("cannot use the scratch directory: {0}")]
    Scratch(#[from] std::io::Error),
    /// No TLS.
    #[error(transparent)]
    Tls(#[from] http::TlsError),
}

/// Runs the controller until `stop`. Runs in progress are left alone: the next controller finds them.
///
/// # Errors
/// [`RunError`], before anything was watched.
pub async fn run<E: Executor + 'static>(
    options: Options,
    (executor, ended): (Arc<E>, UnboundedReceiver<RunRef>),
    client: Client,
    stop: Token,
) -> Result<(), RunError> {
    definitions::wait(&client, &options.ready, &stop).await;
    let scope = options.settings.scope.clone();
    let watch = Watch::<Terraform>::new(client.clone(), options.settings.clone()).relate(version, neighbours);
    let denied = options.cross_namespace == CrossNamespace::Denied;
    let elsewhere = Scope {
        labels: None,
        // Where references may leave their namespace, so may what a stack waits for.
        namespace: scope.namespace.clone().filter(|_| denied),
    };
    let stacks = watch.objects();
    let (context, turns) = context(&options, client.clone(), executor, &stacks, &stop)?;
    take_stock(&context, &scope, &client, &stop).await;
    // Runs do not carry the labels by which stacks are chosen.
    let changed_runs = runs::changed(
        client.clone(),
        scope.namespace.as_ref(),
        Arc::clone(&context.runs),
    );
    let foreign = sources::of_others(&client, elsewhere.namespace.as_ref(), &stacks);
    let (git, listed_sources) = readers_of_sources(&client, &elsewhere, stacks.clone());
    let (secrets, listed_secrets) =
        readers_of::<Secret>(&client, &elsewhere, KeySource::Secret, stacks.clone());
    let (configs, listed_configs) =
        readers_of::<ConfigMap>(&client, &elsewhere, KeySource::ConfigMap, stacks);
    let listed = async move {
        future::join3(listed_sources, listed_secrets, listed_configs).await;
    };
    let gone = gone(ended, Arc::clone(&context));
    watch
        .trigger(changed_runs)
        .trigger(git)
        .trigger(foreign)
        .trigger(secrets)
        .trigger(configs)
        .trigger(gone)
        .trigger(with_passing_by(turns, Arc::clone(&context)))
        .after(listed)
        .run(Stacks::new(context), stop)
        .await;
    Ok(())
}

/// The stacks whose turn to run has come.
fn with_passing_by(turns: Turns<ObjectKey>, context: Arc<Context>) -> impl Stream<Item = ObjectKey> + Send {
    let passing_by = stream::unfold(context, |context| async move {
        tokio::time::sleep(PASS_BY).await;
        // Before the first list nobody is there.
        context.stacks.ready().await;
        context.places.take_back(|stack| context.stacks.has(stack));
        context.places.pass_by();
        Some((stream::empty(), context))
    });
    stream::select(turns, passing_by.flatten())
}

/// The stacks that a change of a source concerns; and the end of the first list of sources, or of the patience for it.
fn readers_of_sources(
    client: &Client,
    scope: &Scope,
    stacks: Objects<Terraform>,
) -> (
    impl Stream<Item = ObjectKey> + Send + 'static,
    impl Future<Output = ()> + Send + 'static,
) {
    let sources = Related::<GitRepository>::new(client.clone(), scope.clone());
    let (seen, known) = (sources.objects(), Known::default());
    let readers = sources.keys(move |source| behind(&stacks, &known, &source));
    let listed = async move {
        // Late is late: passes begin, and what the list holds calls for them.
        drop(tokio::time::timeout(PATIENCE, seen.ready()).await);
    };
    (readers, listed)
}

/// The stacks that read a Secret or ConfigMap that changes, appears or goes; and the end of the first list, which is no
/// change. The content is never asked for here: a pass reads it, and its digest tells whether anything is run.
fn readers_of<K: Kind>(
    client: &Client,
    scope: &Scope,
    kind: KeySource,
    stacks: Objects<Terraform>,
) -> (
    impl Stream<Item = ObjectKey> + Send + 'static,
    impl Future<Output = ()> + Send + 'static,
) {
    let (changed, listed) = Changes::<K>::new(client.clone(), scope.clone())
        .and_deletions()
        .keys();
    let readers = changed.flat_map(move |object| {
        stream::iter(stacks.keys(|stack| !stack.spec.suspend && reads(stack, kind, &object)))
    });
    (readers, listed)
}

fn context(
    options: &Options,
    client: Client,
    executor: Arc<dyn Executor>,
    stacks: &Objects<Terraform>,
    stop: &Token,
) -> Result<(Arc<Context>, Turns<ObjectKey>), RunError> {
    let (places, turns) = Places::new(Limits {
        runs: options.runs,
        per_namespace: options.runs_per_namespace,
    });
    let mut fetcher = Fetcher::new(http::client(&http::Settings::default())?);
    fetcher.host.clone_from(&options.artifact_host);
    // A pass must not wait long: the stack is looked at again.
    fetcher.retries = options.http_retry.min(2);
    fetcher.min_wait = Duration::from_millis(500);
    let context = Context {
        client,
        clock: Arc::new(SystemClock),
        executor,
        recorder: options.settings.recorder.clone(),
        spent: Spent::default(),
        pulses: Pulses::new(options.run_silence),
        following: Following::default(),
        runs: Arc::default(),
        tools: options.tools.clone(),
        artifacts: Artifacts::new(fetcher, options.scratch.clone(), stop.clone())?,
        places,
        since: SystemClock.now(),
        cross_namespace: options.cross_namespace,
        glass: options.glass.clone(),
        ignore_account: options.ignore_account,
        run_deadline: options.run_deadline.clone(),
        destroy_files_limit: options.destroy_files_limit,
        plan_encryption: options.plan_encryption.clone(),
        place: options.place,
        stacks: stacks.clone(),
        watched: options.settings.scope.namespace.clone(),
        default_backend: options.default_backend,
    };
    Ok((Arc::new(context), turns))
}

/// Counts the runs in progress before the first pass may start another one; as long as the API is away, nothing starts. What the
/// executor still keeps of runs that are gone goes.
async fn take_stock(context: &Arc<Context>, scope: &Scope, client: &Client, stop: &Token) {
    let api: Api<DeserializeGuard<TerraformRun>> = match &scope.namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let seen = |run: &RunRef| scope.namespace.as_ref().is_none_or(|only| *only == run.namespace);
    loop {
        // Looked at before the list: a run has its object before anything is kept of it.
        let kept = context.executor.kept().await.unwrap_or_else(|error| {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "what is kept of old runs is not known"
            );
            Vec::new()
        });
        let mut gone: HashSet<RunRef> = kept.into_iter().filter(seen).collect();
        let mut working = Vec::new();
        let listed = pages::each(&api, |run: DeserializeGuard<TerraformRun>| {
            gone.remove(&reference(&run));
            working.extend(run.0.ok().filter(is_in_progress).map(|run| stack_of(&run)));
        });
        match listed.await {
            Ok(()) => {
                forget(context, gone).await;
                forget_stacks(context, scope, client).await;
                for stack in &working {
                    context.places.hold(stack);
                }
                return;
            }
            Err(error) => tracing::warn!(%error, "the runs in progress are not known yet"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

fn reference(run: &DeserializeGuard<TerraformRun>) -> RunRef {
    RunRef {
        namespace: run.namespace().unwrap_or_default(),
        name: run.name_any(),
    }
}

/// Removes what is kept of runs that this controller would see, and that are not there.
async fn forget(context: &Context, gone: HashSet<RunRef>) {
    for run in gone {
        tracing::info!(run = run.name, "what was kept of a run that is gone is removed");
        if let Err(error) = context.executor.forget(run).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "files of an old run stay for now"
            );
        }
    }
}

/// Removes what is kept of stacks that are nowhere: with other labels they may be another controller's. Should the API not tell,
/// the next start will.
async fn forget_stacks(context: &Arc<Context>, scope: &Scope, client: &Client) {
    let kept = context.executor.kept_stacks().await.unwrap_or_else(|error| {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "what is kept of old stacks is not known"
        );
        Vec::new()
    });
    let seen = |stack: &ObjectKey| {
        scope
            .namespace
            .as_ref()
            .is_none_or(|only| *only == stack.namespace)
    };
    let mut gone: HashSet<ObjectKey> = kept.into_iter().filter(seen).collect();
    if gone.is_empty() {
        return;
    }
    let api: Api<DeserializeGuard<Terraform>> = match &scope.namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let listed = pages::each(&api, |stack: DeserializeGuard<Terraform>| {
        gone.remove(&ObjectKey::of(&stack));
    });
    if let Err(error) = listed.await {
        tracing::warn!(%error, "which stacks are gone is not known");
        return;
    }
    for stack in gone {
        tracing::info!(%stack, "what was kept of a stack that is gone is removed");
        forget_stack(context, stack);
    }
}

fn is_in_progress(run: &TerraformRun) -> bool {
    run.status
        .as_ref()
        .is_some_and(|status| status.claim.is_some() && !status.phase.is_final())
        && run.spec.action != Action::BreakTheGlass
}

/// The stacks that are behind this source, each behind those that it builds on.
fn behind(stacks: &Objects<Terraform>, known: &Known, source: &GitRepository) -> Vec<ObjectKey> {
    let artifact = source.status.as_ref().and_then(|status| status.artifact.as_ref());
    let Some(artifact) = artifact else {
        return Vec::new();
    };
    let keys = known.behind(
        stacks,
        SourceKind::GitRepository,
        &ObjectKey::of(source),
        artifact,
    );
    in_order(keys, stacks)
}

/// The stacks of runners that ended. Most tell the end of their run themselves, and nothing is left to do: they are given time to be
/// heard.
fn gone(ended: UnboundedReceiver<RunRef>, context: Arc<Context>) -> impl Stream<Item = ObjectKey> + Send {
    let ended = stream::unfold(
        ended,
        |mut ended| async move { Some((ended.recv().await?, ended)) },
    );
    let unheard = move |run: RunRef| {
        let context = Arc::clone(&context);
        async move {
            tokio::time::sleep(HEARD).await;
            let stack = context.runs.of(&key_of(&run))?;
            (!context.spent.is(&stack, &run.name)).then_some(stack)
        }
    };
    ended
        .map(unheard)
        .buffer_unordered(UNHEARD)
        .filter_map(std::future::ready)
}

fn key_of(run: &RunRef) -> ObjectKey {
    ObjectKey {
        namespace: run.namespace.clone(),
        name: run.name.clone(),
    }
}

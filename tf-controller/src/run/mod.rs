//! The controller as a whole: connects its watches with its reconciler.

mod restore;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc::UnboundedReceiver as Grants;
use futures::{Stream, StreamExt, future, stream};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client, Resource, ResourceExt};
use restore::restore_active_runs;
use sluice_api::interval::Interval;
use sluice_api::reference::{CrossNamespace, ObjectName};
use sluice_api::run::PlanApproval;
use sluice_api::source::GitRepository;
use sluice_api::terraform::{KeySource, SourceKind, Terraform};
use sluice_runtime::artifact::Fetcher;
use sluice_runtime::clock::{Clock, SystemClock};
use sluice_runtime::http;
use sluice_runtime::probes::Readiness;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::shutdown::Token;
use sluice_runtime::trace::Tracer;
use sluice_runtime::watch::{Kind, MetadataWatch, ObjectCache, Scope, SecondaryWatch, Settings, Watch};
use sluice_tf_core::bundle::StateCopies;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::executor::{Executor, RunRef};
use crate::inputs::{CliLocation, DefaultBackend, is_referenced};
use crate::reconcile::{
    ActiveRuns, Artifacts, Context, DeletedBundles, HeartbeatTracker, StackMetrics, TerraformReconciler,
    dependency_order, related_stacks, relevant_version,
};
use crate::schedule::{RunLimits, RunSlots};
use crate::sources::{self, ArtifactDigests};
use crate::{definitions, runs};

/// Time between checks of the queue for expired grants and outdated reports.
const QUEUE_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// How long the report of an ended run may take before the end of its runner triggers a reconciliation.
const REPORT_DELAY: Duration = Duration::from_millis(500);
/// Ended runners whose reports are awaited at once; others wait.
const MAX_PENDING_ENDS: usize = 256;
/// How long reconciliations wait for the first list of sources.
const SOURCE_LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// The options of the controller.
pub struct Options {
    /// How its watch runs: name, scope, concurrency, recorder, metrics.
    pub settings: Settings,
    /// Exports traces.
    pub tracer: Tracer,
    /// Scratch directory for artifacts.
    pub scratch: PathBuf,
    /// Directory of the installed versions of the CLI, the same as for runners; `None`: only PATH.
    pub tools: Option<PathBuf>,
    /// The limits of concurrent runs.
    pub limits: RunLimits,
    /// Whether cross-namespace references are allowed.
    pub cross_namespace: CrossNamespace,
    /// Whether stacks with `spec.serviceAccountName` run with the rights of this process.
    pub ignore_account: bool,
    /// ServiceAccount of stacks that name none. If it is set, the inputs of each stack are read under its account.
    pub default_account: Option<String>,
    /// ServiceAccount, in the namespace of the stack, under which a deletion destroys if the stack's own account does not exist.
    pub destroy_account: Option<String>,
    /// Deadline of a run.
    pub run_deadline: Interval,
    /// How long a run without visible process lock may send no heartbeat before it counts as lost.
    pub run_silence: Duration,
    /// The Secret with the keys that seal stored plans; `None`: they are not sealed.
    pub plan_encryption: Option<ObjectName>,
    /// Longest break-glass session; `None`: sessions are not allowed.
    pub break_glass_limit: Option<Interval>,
    /// Maximum compressed size in bytes of the files that are stored with the last applied record.
    pub destroy_files_limit: u64,
    /// The copies of its state that a run stores before it applies, without keys.
    pub state_copies: StateCopies,
    /// Where the CLI runs.
    pub cli_location: CliLocation,
    /// The backend of stacks that configure none.
    pub default_backend: DefaultBackend,
    /// Retries of an artifact download, of which a reconciliation makes at most two.
    pub http_retry: u32,
    /// Host that replaces that of artifact URLs.
    pub artifact_host: Option<String>,
    /// Set once the definitions in the cluster are found to keep every field; nothing is done before.
    pub ready: Readiness,
}

/// Why the controller could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The scratch directory cannot be used.
    #[error("cannot use the scratch directory: {0}")]
    Scratch(#[from] std::io::Error),
    /// TLS is not available.
    #[error(transparent)]
    Tls(#[from] http::TlsError),
}

/// Runs the controller until `stop`. Active runs continue: the next controller finds them.
///
/// # Errors
/// [`RunError`], before anything was watched.
pub async fn run(
    options: Options,
    (executor, ended): (Arc<dyn Executor>, UnboundedReceiver<RunRef>),
    client: Client,
    stop: Token,
) -> Result<(), RunError> {
    definitions::wait(&client, &options.ready, &stop).await;
    let scope = options.settings.scope.clone();
    let watch = Watch::<Terraform>::new(client.clone(), options.settings.clone())
        .requeue_dependents(relevant_version, related_stacks);
    let denied = options.cross_namespace == CrossNamespace::Denied;
    let reference_scope = Scope {
        labels: None,
        // Cross-namespace references need watches of all namespaces.
        namespace: scope.namespace.clone().filter(|_| denied),
    };
    let stacks = watch.objects();
    let sources = SecondaryWatch::<GitRepository>::new(client.clone(), reference_scope.clone());
    let approvals = SecondaryWatch::<PlanApproval>::new(client.clone(), unlabelled(&scope));
    let caches = (stacks.clone(), sources.objects(), approvals.objects());
    let (context, grants) = context(&options, client.clone(), executor, caches, &stop)?;
    restore_active_runs(&context, &scope, &client, &stop).await;
    // Runs lack the labels that select stacks.
    let changed_runs =
        runs::changed_stacks(&client, scope.namespace.as_ref(), Arc::clone(&context.run_owners));
    let other_sources = sources::changes_of_other_kinds(&client, reference_scope.namespace.as_ref(), &stacks);
    let (git, listed_sources) = source_consumers(sources, stacks.clone());
    let (secrets, listed_secrets) =
        reference_consumers::<Secret>(&client, &reference_scope, KeySource::Secret, stacks.clone());
    let (configs, listed_configs) =
        reference_consumers::<ConfigMap>(&client, &reference_scope, KeySource::ConfigMap, stacks);
    let listed = async move {
        future::join3(listed_sources, listed_secrets, listed_configs).await;
    };
    let ended = stacks_of_ended_runners(ended, Arc::clone(&context));
    watch
        .trigger(changed_runs)
        .trigger(approvals.keys(|approval| [stack_of_approval(&approval)]))
        .trigger(git)
        .trigger(other_sources)
        .trigger(secrets)
        .trigger(configs)
        .trigger(ended)
        .trigger(with_queue_checks(grants, Arc::clone(&context)))
        .begin_after(listed)
        .run(TerraformReconciler::new(context), stop)
        .await;
    Ok(())
}

/// The caches of stacks, sources and approvals.
type Caches = (
    ObjectCache<Terraform>,
    ObjectCache<GitRepository>,
    ObjectCache<PlanApproval>,
);

/// Returns the scope of objects that lack the labels of stacks.
fn unlabelled(scope: &Scope) -> Scope {
    Scope {
        labels: None,
        namespace: scope.namespace.clone(),
    }
}

/// Returns the stack that an approval names.
fn stack_of_approval(approval: &PlanApproval) -> ObjectKey {
    ObjectKey {
        namespace: approval.namespace().unwrap_or_default(),
        name: approval.spec.terraform_ref.name.clone(),
    }
}

/// Returns the stacks with a grant and those with an outdated report, and expires old grants.
fn with_queue_checks(
    grants: Grants<ObjectKey>,
    context: Arc<Context>,
) -> impl Stream<Item = ObjectKey> + Send {
    let checks = stream::unfold(context, |context| async move {
        tokio::time::sleep(QUEUE_CHECK_INTERVAL).await;
        // The cache is empty before the first list.
        context.stacks.ready().await;
        context.run_slots.reclaim(|stack| context.stacks.contains(stack));
        context.run_slots.expire_grants();
        let outdated = context.run_slots.outdated_reports();
        Some((stream::iter(outdated), context))
    });
    stream::select(grants, checks.flatten())
}

/// Returns the stacks that a change of a source concerns; and the end of the first list of sources, or of its timeout.
fn source_consumers(
    sources: SecondaryWatch<GitRepository>,
    stacks: ObjectCache<Terraform>,
) -> (
    impl Stream<Item = ObjectKey> + Send + 'static,
    impl Future<Output = ()> + Send + 'static,
) {
    let (objects, digests) = (sources.objects(), ArtifactDigests::default());
    let consumers = sources.keys(move |source| outdated_consumers(&stacks, &digests, &source));
    let listed = async move {
        // After the timeout reconciliations start, and the list triggers them again.
        drop(tokio::time::timeout(SOURCE_LIST_TIMEOUT, objects.ready()).await);
    };
    (consumers, listed)
}

/// Returns the stacks that read a Secret or ConfigMap that changes, appears or is deleted; and the end of the first
/// list, which does not count as a change. The content is not read here: a reconciliation reads it, and the inputs digest
/// shows whether a run is needed.
fn reference_consumers<K: Kind>(
    client: &Client,
    scope: &Scope,
    kind: KeySource,
    stacks: ObjectCache<Terraform>,
) -> (
    impl Stream<Item = ObjectKey> + Send + 'static,
    impl Future<Output = ()> + Send + 'static,
) {
    let (changed, listed) = MetadataWatch::<K>::new(client.clone(), scope.clone())
        .with_deletions()
        .keys();
    let readers = changed.flat_map(move |object| {
        stream::iter(stacks.keys(|stack| !stack.spec.suspend && is_referenced(stack, kind, &object)))
    });
    (readers, listed)
}

fn context(
    options: &Options,
    client: Client,
    executor: Arc<dyn Executor>,
    (stacks, sources, approvals): Caches,
    stop: &Token,
) -> Result<(Arc<Context>, Grants<ObjectKey>), RunError> {
    let (run_slots, grants) = RunSlots::new(options.limits.clone());
    let run_slots = Arc::new(run_slots);
    let metrics = StackMetrics::new(&options.settings.metrics, Arc::new(SystemClock), &run_slots);
    let mut fetcher = Fetcher::new(http::client(&http::Settings::default())?);
    fetcher.host.clone_from(&options.artifact_host);
    // A reconciliation must not wait long: it is retried.
    fetcher.retries = options.http_retry.min(2);
    fetcher.min_wait = Duration::from_millis(500);
    let context = Context {
        client,
        clock: Arc::new(SystemClock),
        executor,
        recorder: options.settings.recorder.clone(),
        tracer: options.tracer.clone(),
        deleted_bundles: DeletedBundles::default(),
        heartbeats: HeartbeatTracker::new(options.run_silence),
        active_runs: ActiveRuns::default(),
        run_owners: Arc::default(),
        tools_dir: options.tools.clone(),
        artifacts: Artifacts::new(fetcher, options.scratch.clone(), stop.clone())?,
        run_slots,
        metrics,
        started_at: SystemClock.now(),
        cross_namespace: options.cross_namespace,
        break_glass_limit: options.break_glass_limit.clone(),
        ignore_account: options.ignore_account,
        default_account: options.default_account.clone(),
        destroy_account: options.destroy_account.clone(),
        run_deadline: options.run_deadline.clone(),
        destroy_files_limit: options.destroy_files_limit,
        state_copies: options.state_copies.clone(),
        plan_encryption: options.plan_encryption.clone(),
        cli_location: options.cli_location,
        stacks,
        approvals,
        sources,
        watched_namespace: options.settings.scope.namespace.clone(),
        default_backend: options.default_backend,
    };
    Ok((Arc::new(context), grants))
}

/// Returns the API of a kind in one namespace; `None`: in all of them.
pub(crate) fn api_in<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope>,
    K::DynamicType: Default,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Returns the stacks that are outdated by this source, each after its dependencies.
fn outdated_consumers(
    stacks: &ObjectCache<Terraform>,
    digests: &ArtifactDigests,
    source: &GitRepository,
) -> Vec<ObjectKey> {
    let artifact = source.status.as_ref().and_then(|status| status.artifact.as_ref());
    let Some(artifact) = artifact else {
        return Vec::new();
    };
    let keys = digests.outdated_consumers(
        stacks,
        SourceKind::GitRepository,
        &ObjectKey::of(source),
        artifact,
    );
    dependency_order(keys, stacks)
}

/// Returns the stacks of runners that ended. Most report the end of their run themselves and leave nothing to do:
/// their report gets some time to arrive.
fn stacks_of_ended_runners(
    ended: UnboundedReceiver<RunRef>,
    context: Arc<Context>,
) -> impl Stream<Item = ObjectKey> + Send {
    let ended = stream::unfold(
        ended,
        |mut ended| async move { Some((ended.recv().await?, ended)) },
    );
    let unreported = move |run: RunRef| {
        let context = Arc::clone(&context);
        async move {
            tokio::time::sleep(REPORT_DELAY).await;
            let stack = context.run_owners.stack_of(&key_of(&run))?;
            (!context.deleted_bundles.contains(&stack, &run.name)).then_some(stack)
        }
    };
    ended
        .map(unreported)
        .buffer_unordered(MAX_PENDING_ENDS)
        .filter_map(std::future::ready)
}

fn key_of(run: &RunRef) -> ObjectKey {
    ObjectKey {
        namespace: run.namespace.clone(),
        name: run.name.clone(),
    }
}

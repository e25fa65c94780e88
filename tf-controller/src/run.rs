//! The controller as a whole: its watches, wired to its passes.

use crate::{
    executor::{ProcessExecutor, RunRef},
    inputs::{DefaultBackend, Place},
    reconcile::{Artifacts, Context, Stacks, in_order, neighbours, place_of, stack_of, version},
    schedule::Slots,
};
use futures::{StreamExt, stream};
use kube::{Api, Client, ResourceExt, api::ListParams, core::DeserializeGuard};
use sluice_api::{
    interval::Interval, reference::CrossNamespace, run::TerraformRun, source::GitRepository,
    terraform::Terraform,
};
use sluice_runtime::{
    artifact::Fetcher,
    clock::SystemClock,
    http,
    schedule::ObjectKey,
    shutdown::Token,
    watch::{Objects, Related, Scope, Settings, Watch},
};
use std::{path::PathBuf, sync::Arc, time::Duration};
use tokio::sync::mpsc::UnboundedReceiver;

/// Time between looks for an API that is away at the start.
const AGAIN: Duration = Duration::from_secs(1);

/// What the controller is told.
pub struct Options {
    /// How its watch runs: name, scope, passes at once, recorder, metrics.
    pub settings: Settings,
    /// Scratch directory for artifacts.
    pub scratch: PathBuf,
    /// Runs at once.
    pub runs: u16,
    /// Whether references may leave their namespace.
    pub cross_namespace: CrossNamespace,
    /// Bound on a run.
    pub run_deadline: Interval,
    /// Where the CLI runs.
    pub place: Place,
    /// The backend of stacks that say nothing of one.
    pub default_backend: DefaultBackend,
    /// Host that replaces the one of artifact URLs.
    pub artifact_host: Option<String>,
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
pub async fn run(
    options: Options,
    (executor, ended): (Arc<ProcessExecutor>, UnboundedReceiver<RunRef>),
    client: Client,
    stop: Token,
) -> Result<(), RunError> {
    let scope = options.settings.scope.clone();
    let watch = Watch::<Terraform>::new(client.clone(), options.settings.clone()).relate(version, neighbours);
    let stacks = watch.objects();
    let context = context(&options, client.clone(), executor, &stacks, &stop)?;
    hold_places(&context, &scope, &client, &stop).await;
    // Runs do not carry the labels by which stacks are chosen.
    let runs = Related::<TerraformRun>::new(
        client.clone(),
        Scope {
            labels: None,
            namespace: scope.namespace.clone(),
        },
    );
    let seen = runs.objects();
    let changed_runs = runs.keys(|run| [stack_of(&run)]);
    let denied = options.cross_namespace == CrossNamespace::Denied;
    let sources = Related::<GitRepository>::new(
        client,
        Scope {
            labels: None,
            // Where references may leave their namespace, so may what a stack waits for.
            namespace: scope.namespace.filter(|_| denied),
        },
    );
    let readers = stacks.clone();
    let changed_sources = sources.keys(move |source| behind(&readers, &source));
    let gone = stream::unfold(
        ended,
        |mut ended| async move { Some((ended.recv().await?, ended)) },
    )
    .filter_map(move |run| std::future::ready(owner_of(&seen, &run)));
    watch
        .trigger(changed_runs)
        .trigger(changed_sources)
        .trigger(gone)
        .run(Stacks::new(context), stop)
        .await;
    Ok(())
}

fn context(
    options: &Options,
    client: Client,
    executor: Arc<ProcessExecutor>,
    stacks: &Objects<Terraform>,
    stop: &Token,
) -> Result<Arc<Context>, RunError> {
    let mut fetcher = Fetcher::new(http::client(&http::Settings::default())?);
    fetcher.host.clone_from(&options.artifact_host);
    // A pass must not wait long: the stack is looked at again.
    fetcher.retries = 2;
    fetcher.min_wait = Duration::from_millis(500);
    Ok(Arc::new(Context {
        client,
        clock: Arc::new(SystemClock),
        executor,
        recorder: options.settings.recorder.clone(),
        artifacts: Artifacts::new(fetcher, options.scratch.clone(), stop.clone())?,
        slots: Slots::new(options.runs),
        cross_namespace: options.cross_namespace,
        run_deadline: options.run_deadline.clone(),
        place: options.place,
        stacks: stacks.clone(),
        watched: options.settings.scope.namespace.clone(),
        default_backend: options.default_backend,
    }))
}

/// Counts the runs in progress before the first pass may start another one; as long as the API is away, nothing starts.
async fn hold_places(context: &Context, scope: &Scope, client: &Client, stop: &Token) {
    let api: Api<DeserializeGuard<TerraformRun>> = match &scope.namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let params = ListParams::default();
    loop {
        match api.list(&params).await {
            Ok(list) => {
                let runs = list.items.into_iter().filter_map(|run| run.0.ok());
                for run in runs.filter(is_in_progress) {
                    let stack = stack_of(&run);
                    context.slots.hold(&place_of(&stack.namespace, &stack.name));
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

fn is_in_progress(run: &TerraformRun) -> bool {
    run.status
        .as_ref()
        .is_some_and(|status| status.claim.is_some() && !status.phase.is_final())
}

/// The stacks that read this source and have not tried its revision, each behind those that it builds on.
fn behind(stacks: &Objects<Terraform>, source: &GitRepository) -> Vec<ObjectKey> {
    let Some(artifact) = source.status.as_ref().and_then(|status| status.artifact.as_ref()) else {
        return Vec::new();
    };
    let (name, namespace) = (source.name_any(), source.namespace().unwrap_or_default());
    let keys = stacks.keys(|stack| {
        let wanted = &stack.spec.source_ref;
        let from = if wanted.namespace.is_empty() {
            stack.namespace().unwrap_or_default()
        } else {
            wanted.namespace.clone()
        };
        let tried = stack
            .status
            .as_ref()
            .is_some_and(|s| s.last_attempted_revision == artifact.revision);
        wanted.name == name && from == namespace && !tried
    });
    in_order(keys, stacks)
}

/// The stack of a run whose process has ended.
fn owner_of(runs: &Objects<TerraformRun>, run: &RunRef) -> Option<ObjectKey> {
    let key = ObjectKey {
        namespace: run.namespace.clone(),
        name: run.name.clone(),
    };
    runs.get(&key).map(|run| stack_of(&run))
}

//! The controller as a whole: connects its watches with its reconciler.

use std::sync::Arc;

use futures::{Stream, StreamExt as _, future, stream};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use sluice_api::repo::Repo;
use sluice_api::run::TerraformRun;
use sluice_api::source::GitRepository;
use sluice_api::terraform::{GROUP, Terraform};
use sluice_runtime::clock::SystemClock;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::shutdown::Token;
use sluice_runtime::watch::{Kind, MetadataWatch, ObjectCache, Scope, Settings, Watch, log_interruption};

use crate::decide::MANAGED_BY_SELECTOR;
use crate::reconcile::RepoReconciler;

/// Name of the controller in metrics and logs.
pub const CONTROLLER: &str = "repo";

/// Runs the controller until `stop`.
pub async fn run(settings: Settings, client: Client, stop: Token) {
    let scope = Scope {
        labels: Some(MANAGED_BY_SELECTOR.to_owned()),
        namespace: settings.scope.namespace.clone(),
    };
    let reconciler = RepoReconciler {
        client: client.clone(),
        clock: Arc::new(SystemClock),
        recorder: settings.recorder.clone(),
    };
    let watch = Watch::<Repo>::new(client.clone(), settings);
    let runs = repos_of_runs(&client, scope.namespace.as_deref(), watch.objects());
    // An object has the name of its Repo.
    let (sources, listed_sources) = changes::<GitRepository>(&client, &scope);
    let (stacks, listed_stacks) = changes::<Terraform>(&client, &scope);
    let listed = async move {
        future::join(listed_sources, listed_stacks).await;
    };
    watch
        .trigger(sources)
        .trigger(stacks)
        .trigger(runs)
        .begin_after(listed)
        .run(reconciler, stop)
        .await;
}

/// Returns the keys of objects that change or are deleted, and the end of their first list.
fn changes<K: Kind>(
    client: &Client,
    scope: &Scope,
) -> (
    impl Stream<Item = ObjectKey> + Send + 'static,
    impl Future<Output = ()> + Send + 'static,
) {
    MetadataWatch::<K>::new(client.clone(), scope.clone())
        .with_deletions()
        .keys()
}

/// Returns the `Repo` of each run that changes. Other stacks have runs too.
fn repos_of_runs(
    client: &Client,
    namespace: Option<&str>,
    repos: ObjectCache<Repo>,
) -> impl Stream<Item = ObjectKey> + Send + 'static {
    let api: Api<PartialObjectMeta<TerraformRun>> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    watcher(api, watcher::Config::default())
        .default_backoff()
        .touched_objects()
        .flat_map(move |run| {
            let run = run.inspect_err(log_interruption::<TerraformRun>);
            let stack = run.ok().and_then(|run| stack_of(&run));
            stream::iter(stack.filter(|stack| repos.contains(stack)))
        })
}

/// Returns the stack that owns a run.
fn stack_of(run: &PartialObjectMeta<TerraformRun>) -> Option<ObjectKey> {
    let mut owners = run.owner_references().iter();
    let stack = owners.find(|owner| owner.kind == "Terraform" && owner.api_version.starts_with(GROUP))?;
    Some(ObjectKey {
        namespace: run.namespace().unwrap_or_default(),
        name: stack.name.clone(),
    })
}

//! The live view: watches the objects of an API and prints progress.

mod lines;
pub mod progress;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::SelectAll;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
pub use lines::Lines;
pub(crate) use lines::has_colours;
use progress::Line;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

type Describe = fn(Option<&Value>, &Value) -> Vec<Line>;

fn watched_kinds() -> [(ApiResource, Describe); 4] {
    let resource = |group: &str, version: &str, kind: &str| {
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
    };
    let sources = resource("source.toolkit.fluxcd.io", "v1", "GitRepository");
    let runs = resource("infra.sluice.dev", "v1alpha1", "TerraformRun");
    let stacks = resource("infra.contrib.fluxcd.io", "v1alpha2", "Terraform");
    [
        (sources, progress::repository),
        (runs, progress::run),
        (stacks, progress::stack),
        (resource("", "v1", "Event"), progress::event),
    ]
}

/// Prints progress on `lines` until `stop`, beginning with the current state of existing objects.
pub async fn follow(client: Client, lines: Arc<Lines>, stop: CancellationToken) {
    let mut streams = SelectAll::new();
    for (index, (resource, _)) in watched_kinds().into_iter().enumerate() {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let changes = watcher(api, watcher::Config::default()).default_backoff();
        streams.push(changes.map(move |event| (index, event)).boxed());
    }
    let mut cache: BTreeMap<(usize, String), Value> = BTreeMap::new();
    while let Some((index, event)) =
        tokio::select! { next = streams.next() => next, () = stop.cancelled() => None }
    {
        match event {
            Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                print_changes(&lines, &mut cache, index, &object);
            }
            Ok(watcher::Event::Delete(object)) => {
                cache.remove(&(index, uid(&object)));
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "the view's watch was interrupted and is restarted"),
        }
        let active: Vec<_> = cache
            .range((1, String::new())..(2, String::new()))
            .filter_map(|(_, run)| progress::active_run(run))
            .collect();
        lines.status(&active.join("   "));
    }
    lines.status("");
}

fn uid(object: &DynamicObject) -> String {
    object.metadata.uid.clone().unwrap_or_default()
}

fn print_changes(
    lines: &Lines,
    cache: &mut BTreeMap<(usize, String), Value>,
    index: usize,
    object: &DynamicObject,
) {
    let Ok(after) = serde_json::to_value(object) else {
        return;
    };
    let cache_key = (index, uid(object));
    let describe = watched_kinds()[index].1;
    for line in describe(cache.get(&cache_key), &after) {
        lines.print_line(&line);
    }
    cache.insert(cache_key, after);
}

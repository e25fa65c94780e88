//! The live view: watches the objects of an API and tells what happens, as it happens.

mod screen;
pub mod story;

pub use screen::Screen;

use futures::{StreamExt, stream::SelectAll};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};
use story::Line;
use tokio_util::sync::CancellationToken;

type Tell = fn(Option<&Value>, &Value) -> Vec<Line>;

fn watched() -> [(ApiResource, Tell); 4] {
    let resource = |group: &str, version: &str, kind: &str| {
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
    };
    [
        (
            resource("source.toolkit.fluxcd.io", "v1", "GitRepository"),
            story::repository,
        ),
        (
            resource("infra.sluice.dev", "v1alpha1", "TerraformRun"),
            story::run,
        ),
        (
            resource("infra.contrib.fluxcd.io", "v1alpha2", "Terraform"),
            story::stack,
        ),
        (resource("", "v1", "Event"), story::event),
    ]
}

/// Tells the story on `screen` until `stop`. What was there before is told as well, in its latest form.
pub async fn follow(client: Client, screen: Arc<Screen>, stop: CancellationToken) {
    let mut streams = SelectAll::new();
    for (index, (resource, _)) in watched().into_iter().enumerate() {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let changes = watcher(api, watcher::Config::default()).default_backoff();
        streams.push(changes.map(move |event| (index, event)).boxed());
    }
    let mut known: BTreeMap<(usize, String), Value> = BTreeMap::new();
    while let Some((index, event)) =
        tokio::select! { next = streams.next() => next, () = stop.cancelled() => None }
    {
        match event {
            Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                tell(&screen, &mut known, index, &object);
            }
            Ok(watcher::Event::Delete(object)) => {
                known.remove(&(index, key(&object)));
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "the view's watch broke off; it is resumed"),
        }
        let doing: Vec<_> = known
            .range((1, String::new())..(2, String::new()))
            .filter_map(|(_, run)| story::doing(run))
            .collect();
        screen.status(&doing.join("   "));
    }
    screen.status("");
}

fn key(object: &DynamicObject) -> String {
    object.metadata.uid.clone().unwrap_or_default()
}

fn tell(screen: &Screen, known: &mut BTreeMap<(usize, String), Value>, index: usize, object: &DynamicObject) {
    let Ok(after) = serde_json::to_value(object) else {
        return;
    };
    let place = (index, key(object));
    let [(_, repository), (_, run), (_, stack), (_, event)] = watched();
    let tell: Tell = [repository, run, stack, event][index];
    for line in tell(known.get(&place), &after) {
        screen.show(&line);
    }
    known.insert(place, after);
}

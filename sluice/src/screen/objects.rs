//! Watches the objects that the screen shows.

use std::pin::pin;

use futures::StreamExt as _;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use sluice_runtime::shutdown::Token;
use tokio::sync::mpsc::UnboundedSender;

use super::model::{Change, Event, full_name};

/// Sends the sources, stacks and runs of all namespaces, and their changes, until `stop`.
pub(super) fn follow(client: &Client, sender: &UnboundedSender<Event>, stop: &Token) {
    tokio::spawn(follow_kind(
        client.clone(),
        sender.clone(),
        stop.clone(),
        Event::Sources,
    ));
    tokio::spawn(follow_kind(
        client.clone(),
        sender.clone(),
        stop.clone(),
        Event::Stacks,
    ));
    tokio::spawn(follow_kind(
        client.clone(),
        sender.clone(),
        stop.clone(),
        Event::Runs,
    ));
}

async fn follow_kind<K>(
    client: Client,
    sender: UnboundedSender<Event>,
    stop: Token,
    event: fn(Change<K>) -> Event,
) where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + 'static,
{
    let api: Api<DynamicObject> = Api::all_with(client, &ApiResource::erase::<K>(&()));
    let mut changes = pin!(watcher(api, watcher::Config::default()).default_backoff());
    let mut listed = Vec::new();
    loop {
        let next = tokio::select! {
            next = changes.next() => next,
            () = stop.cancelled() => None,
        };
        let Some(next) = next else { return };
        let change = match next {
            Ok(watcher::Event::Init) => {
                listed.clear();
                None
            }
            Ok(watcher::Event::InitApply(object)) => {
                listed.extend(parse::<K>(object));
                None
            }
            Ok(watcher::Event::InitDone) => Some(Change::All(std::mem::take(&mut listed))),
            Ok(watcher::Event::Apply(object)) => parse(object).map(Box::new).map(Change::One),
            Ok(watcher::Event::Delete(object)) => Some(Change::Gone(full_name(&object))),
            Err(error) => {
                tracing::debug!(%error, "a watch of the screen was interrupted and is restarted");
                None
            }
        };
        if change.is_some_and(|change| sender.send(event(change)).is_err()) {
            return;
        }
    }
}

/// Parses an object; one that this program does not understand is not shown.
fn parse<K: Resource + DeserializeOwned>(object: DynamicObject) -> Option<K> {
    let name = full_name(&object);
    match object.try_parse() {
        Ok(parsed) => Some(parsed),
        Err(error) => {
            tracing::warn!(object = name, %error, "an object cannot be shown");
            None
        }
    }
}

//! An unmodified kube-rs Controller on the in-process client.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{Event, finalizer};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{Controller, watcher};
use kube::{Api, CustomResource, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::fixture::server;

/// The part of a Widget that the controller reads.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.dev",
    version = "v1",
    kind = "Widget",
    namespaced,
    status = "WidgetStatus"
)]
struct WidgetSpec {
    size: i64,
}

/// The status that the controller writes.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct WidgetStatus {
    phase: Option<String>,
}

type Failure = kube::runtime::finalizer::Error<kube::Error>;

async fn reconcile(widget: Arc<Widget>, api: Arc<Api<Widget>>) -> Result<Action, Failure> {
    finalizer(&api, "example.dev/test", widget, |event| async {
        if let Event::Apply(widget) = event {
            let phase = format!("Size{}", widget.spec.size);
            let patch = Patch::Merge(json!({"status": {"phase": phase}}));
            api.patch_status(&widget.name_any(), &PatchParams::default(), &patch)
                .await?;
        }
        Ok(Action::await_change())
    })
    .await
}

#[tokio::test]
async fn a_controller_lists_watches_reconciles_and_finalizes() {
    let embedded = server();
    let api: Api<Widget> = Api::default_namespaced(embedded.client());
    let running = tokio::spawn(
        Controller::new(api.clone(), watcher::Config::default())
            .run(
                reconcile,
                |_, _, _| Action::requeue(Duration::from_millis(50)),
                Arc::new(api.clone()),
            )
            .for_each(|_| async {}),
    );
    let limit = Duration::from_secs(20);
    let shows = |phase: &'static str| {
        let wait = await_condition(api.clone(), "a", move |widget: Option<&Widget>| {
            widget.and_then(|w| w.status.as_ref()?.phase.as_deref()) == Some(phase)
        });
        async move { tokio::time::timeout(limit, wait).await.expect("in time").unwrap() }
    };
    api.create(&PostParams::default(), &Widget::new("a", WidgetSpec { size: 1 }))
        .await
        .unwrap();
    let widget = shows("Size1").await.unwrap();
    assert_eq!(widget.finalizers(), ["example.dev/test"]);
    api.patch(
        "a",
        &PatchParams::default(),
        &Patch::Merge(json!({"spec": {"size": 2}})),
    )
    .await
    .unwrap();
    let widget = shows("Size2").await.unwrap();
    api.delete("a", &DeleteParams::default()).await.unwrap();
    let deleted = await_condition(
        api.clone(),
        "a",
        conditions::is_deleted(widget.meta().uid.as_ref().unwrap()),
    );
    tokio::time::timeout(limit, deleted)
        .await
        .expect("in time")
        .unwrap();
    embedded.stop();
    running.abort();
}

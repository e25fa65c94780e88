//! Tests of reconciliations that other objects trigger.

use super::*;

/// `data.version` is the version, `data.on` the dependency.
fn related(watch: Watch<ConfigMap>) -> Watch<ConfigMap> {
    let read = |object: &ConfigMap, field: &str| object.data.as_ref()?.get(field).cloned();
    watch.requeue_dependents(
        move |object| read(object, "version"),
        move |object, objects| {
            objects
                .keys(|other| read(other, "on").is_some_and(|on| Some(&on) == object.metadata.name.as_ref()))
        },
    )
}

#[tokio::test]
async fn a_new_version_triggers_only_dependents() {
    let api = Arc::new(FakeApi::default());
    api.put("base", &json!({"data": {"version": "1"}}));
    api.put("house", &json!({"data": {"on": "base"}}));
    api.put("hut", &json!({}));
    let run = RunningWatch::start_with(&api, related);
    for name in ["base", "house", "hut"] {
        run.until_seen(name, 1).await;
    }
    api.until(|api| !lock(&api.watchers).is_empty()).await;
    // A write without a new version, then one with a new version.
    api.put("base", &json!({"data": {"version": "1", "other": "x"}}));
    api.put("base", &json!({"data": {"version": "2"}}));
    run.until_seen("house", 2).await;
    api.put("base", &json!({"data": {"version": "3"}}));
    run.until_seen("house", 3).await;
    let mut passes = run.end().await;
    passes.sort();
    assert_eq!(passes, ["base", "house", "house", "house", "hut"]);
}

#[tokio::test]
async fn reconciliations_begin_after_the_future_and_triggers_are_not_lost() {
    let api = Arc::new(FakeApi::default());
    api.put("a", &json!({}));
    let (open, opened) = futures::channel::oneshot::channel::<()>();
    let run = RunningWatch::start_with(&api, |watch| watch.begin_after(opened.map(|_| ())));
    run.ask.unbounded_send(key("a")).unwrap();
    tokio::task::yield_now().await;
    assert_eq!(run.count("a"), 0);
    open.send(()).unwrap();
    run.until_seen("a", 1).await;
    run.end().await;
}

#[tokio::test]
async fn metadata_changes_exclude_the_first_list() {
    let api = Arc::new(FakeApi::default());
    api.put("old", &json!({}));
    let (keys, listed) = MetadataWatch::<ConfigMap>::new(api.client(), Scope::default()).keys();
    let keys = tokio::spawn(keys.take(2).collect::<Vec<_>>());
    tokio::time::timeout(LONG, listed).await.unwrap();
    api.until(|api| !lock(&api.watchers).is_empty()).await;
    api.put("old", &json!({}));
    api.put("old", &json!({"metadata": {"resourceVersion": "3"}}));
    api.put("old", &json!({"metadata": {"resourceVersion": "4"}}));
    api.put("new", &json!({}));
    let keys = tokio::time::timeout(LONG, keys).await.unwrap().unwrap();
    assert_eq!(keys, [key("new"), key("old")]);
}

#[tokio::test]
async fn a_late_first_list_is_yielded_completely() {
    let api = Arc::new(FakeApi::default());
    api.put("old", &json!({}));
    let (keys, listed) = MetadataWatch::<ConfigMap>::new(api.client(), Scope::default()).keys();
    drop(listed);
    let mut keys = std::pin::pin!(keys);
    assert_eq!(
        tokio::time::timeout(LONG, keys.next()).await.unwrap(),
        Some(key("old"))
    );
}

#[tokio::test]
async fn the_shown_versions_are_those_of_the_last_list_and_of_the_changes_since() {
    let api = Arc::new(FakeApi::default());
    api.put("a", &json!({}));
    let shown = ShownVersions::default();
    let is_shown = |uid: &str, version: &str| shown.is_shown(&key("a"), Some(uid), Some(version));
    let watch = MetadataWatch::<ConfigMap>::new(api.client(), Scope::default());
    let (keys, listed) = watch.with_versions(shown.clone()).keys();
    assert!(!is_shown("a", "2"), "before the list");
    let running = tokio::spawn(keys.for_each(|_| std::future::ready(())));
    tokio::time::timeout(LONG, listed).await.unwrap();
    assert!(is_shown("a", "2"));
    assert!(!is_shown("a", "1") && !is_shown("other", "2"));
    api.until(|api| !lock(&api.watchers).is_empty()).await;
    assert_eq!(shown.interruptions(), 0);
    api.delete_unseen("a");
    let noticed = async {
        while shown.interruptions() == 0 || is_shown("a", "2") {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LONG, noticed).await.unwrap();
    running.abort();
}

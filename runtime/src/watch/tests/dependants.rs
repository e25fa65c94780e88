//! Passes for objects because of other objects.

use super::*;

/// `data.version` is the version, `data.on` the object that this one builds on.
fn related(watch: Watch<ConfigMap>) -> Watch<ConfigMap> {
    let read = |object: &ConfigMap, field: &str| object.data.as_ref()?.get(field).cloned();
    watch.relate(
        move |object| read(object, "version"),
        move |object, objects| {
            objects
                .keys(|other| read(other, "on").is_some_and(|on| Some(&on) == object.metadata.name.as_ref()))
        },
    )
}

#[tokio::test]
async fn another_version_of_an_object_calls_those_that_build_on_it_alone() {
    let world = Arc::new(World::default());
    world.put("base", &json!({"data": {"version": "1"}}));
    world.put("house", &json!({"data": {"on": "base"}}));
    world.put("hut", &json!({}));
    let run = Run::start_with(&world, related);
    for name in ["base", "house", "hut"] {
        run.until_seen(name, 1).await;
    }
    world.until(|world| !lock(&world.watchers).is_empty()).await;
    // A write that leaves the version as it is, then one that does not.
    world.put("base", &json!({"data": {"version": "1", "other": "x"}}));
    world.put("base", &json!({"data": {"version": "2"}}));
    run.until_seen("house", 2).await;
    world.put("base", &json!({"data": {"version": "3"}}));
    run.until_seen("house", 3).await;
    let mut passes = run.end().await;
    passes.sort();
    assert_eq!(passes, ["base", "house", "house", "house", "hut"]);
}

#[tokio::test]
async fn passes_begin_when_they_may_and_triggers_are_not_lost() {
    let world = Arc::new(World::default());
    world.put("a", &json!({}));
    let (open, opened) = futures::channel::oneshot::channel::<()>();
    let run = Run::start_with(&world, |watch| watch.after(opened.map(|_| ())));
    run.ask.unbounded_send(key("a")).unwrap();
    tokio::task::yield_now().await;
    assert_eq!(run.count("a"), 0);
    open.send(()).unwrap();
    run.until_seen("a", 1).await;
    run.end().await;
}

#[tokio::test]
async fn changes_of_another_kind_are_told_without_what_was_there_before() {
    let world = Arc::new(World::default());
    world.put("old", &json!({}));
    let (keys, listed) = Changes::<ConfigMap>::new(world.client(), Scope::default()).keys();
    let keys = tokio::spawn(keys.take(2).collect::<Vec<_>>());
    tokio::time::timeout(LONG, listed).await.unwrap();
    world.until(|world| !lock(&world.watchers).is_empty()).await;
    world.put("old", &json!({}));
    world.put("old", &json!({"metadata": {"resourceVersion": "3"}}));
    world.put("old", &json!({"metadata": {"resourceVersion": "4"}}));
    world.put("new", &json!({}));
    let keys = tokio::time::timeout(LONG, keys).await.unwrap().unwrap();
    assert_eq!(keys, [key("new"), key("old")]);
}

#[tokio::test]
async fn who_did_not_wait_for_the_first_list_is_told_all_of_it() {
    let world = Arc::new(World::default());
    world.put("old", &json!({}));
    let (keys, listed) = Changes::<ConfigMap>::new(world.client(), Scope::default()).keys();
    drop(listed);
    let mut keys = std::pin::pin!(keys);
    assert_eq!(
        tokio::time::timeout(LONG, keys.next()).await.unwrap(),
        Some(key("old"))
    );
}

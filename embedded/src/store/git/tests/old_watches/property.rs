//! Any sequence of changes, which an old watch receives as one from the start has.

use proptest::collection::vec;
use proptest::prelude::{Just, ProptestConfig, Strategy, prop_oneof, proptest};
use proptest::sample::select;

use super::super::status::widgets;
use super::*;

const CONFIG_MAPS: &str = "configmaps";
const WIDGETS: &str = "widgets.example.dev";
const WIDGET_PATH: &str = "example.dev/v1/widgets/default/a.yaml";
const NAMES: [&str; 2] = ["a", "b"];
const FIELDS: [&str; 2] = ["spec", "status"];
const REMOVED_PATHS: [&str; 2] = [DEFAULT_PATH, WIDGET_PATH];

/// A step of a process or user.
#[derive(Clone, Copy, Debug)]
enum Operation {
    /// A write of a ConfigMap, which it creates if necessary.
    Write(&'static str),
    /// A deletion of a ConfigMap.
    Remove(&'static str),
    /// A write of the spec or status of the widget.
    WriteWidget(&'static str),
    /// A deletion of the widget.
    RemoveWidget,
    /// A push of the file of a ConfigMap.
    Push(&'static str),
    /// A push of the file of the widget.
    PushWidget,
    /// A push that removes a file.
    PushRemoval(&'static str),
    /// A write of a Secret.
    WriteSecret,
    /// A restart of the process.
    Restart,
}

fn operation() -> impl Strategy<Value = Operation> {
    let name = || select(&NAMES[..]);
    prop_oneof![
        3 => name().prop_map(Operation::Write),
        2 => name().prop_map(Operation::Remove),
        3 => select(&FIELDS[..]).prop_map(Operation::WriteWidget),
        1 => Just(Operation::RemoveWidget),
        2 => name().prop_map(Operation::Push),
        1 => Just(Operation::PushWidget),
        1 => select(&REMOVED_PATHS[..]).prop_map(Operation::PushRemoval),
        2 => Just(Operation::WriteSecret),
    ]
}

/// A watch from the start, which reads each change when it is published.
struct LiveWatch {
    revision: u64,
    seen: BTreeMap<String, Vec<Seen>>,
}

impl LiveWatch {
    fn new(store: &Store) -> Self {
        Self {
            revision: store.read().revision(),
            seen: BTreeMap::new(),
        }
    }

    fn read(&mut self, store: &Store) {
        let changes = store.read().changes_of(CONFIG_MAPS, self.revision).unwrap();
        for change in changes {
            self.revision = change.revision;
            let seen = self.seen.entry(change.key.resource.clone()).or_default();
            seen.push(Seen::of(&change));
        }
    }
}

fn open_with_widgets(environment: &Environment) -> Arc<Store> {
    let store = Store::git(environment.options("a"), &[widgets()]).unwrap();
    Arc::new(store.with_watch_window(WINDOW))
}

fn widget_key(name: &str) -> Key {
    Key::new(WIDGETS, "default", name)
}

/// Writes a field of a widget. One that does not exist is created, without a status.
fn write_widget(store: &Store, name: &str, field: &str, number: usize) {
    let key = widget_key(name);
    let written = store.write_now(&key, |view| {
        let Some(before) = view.get(&key) else {
            return Ok(Write::Put(json!({
                "apiVersion": "example.dev/v1", "kind": "Widget",
                "metadata": {"name": name, "namespace": "default", "generation": 1}, "spec": {"size": number},
            })));
        };
        let mut object = Value::clone(before);
        if field == "spec" {
            let generation = object["metadata"]["generation"].as_i64().unwrap();
            object["metadata"]["generation"] = (generation + 1).into();
        }
        object[field] = json!({"size": number});
        Ok(Write::Put(object))
    });
    written.unwrap();
}

fn remove_if_present(store: &Store, key: &Key) {
    let before = store.read().get(key).cloned();
    if let Some(before) = before {
        let removed = store.write_now(key, |_| Ok(Write::Remove(Value::clone(&before))));
        removed.unwrap();
    }
}

/// Commits a file as a user, and reads the commit.
fn push(environment: &Environment, store: &Store, path: &str, text: Option<&str>) {
    if text.is_some() || environment.read(path).is_some() {
        environment.commit([(path, text)]);
        store.poll();
    }
}

/// Runs an operation, whose number makes its content unique.
fn run(environment: &Environment, store: &Store, operation: Operation, number: usize) {
    match operation {
        Operation::Write(name) => drop(put(store, name, "one", &number.to_string()).unwrap()),
        Operation::Remove(name) => remove_if_present(store, &key(name)),
        Operation::WriteWidget(field) => write_widget(store, "a", field, number),
        Operation::RemoveWidget => remove_if_present(store, &widget_key("a")),
        Operation::Push(name) => {
            let text = BY_HAND.replace("name: a", &format!("name: {name}"));
            let text = text.replace("\"1\"", &format!("\"{number}\""));
            let path = format!("core/v1/configmaps/default/{name}.yaml");
            push(environment, store, &path, Some(&text));
        }
        Operation::PushWidget => {
            let text = format!(
                "apiVersion: example.dev/v1\nkind: Widget\nmetadata:\n  name: a\nspec:\n  size: {number}\n"
            );
            push(environment, store, WIDGET_PATH, Some(&text));
        }
        Operation::PushRemoval(path) => push(environment, store, path, None),
        Operation::WriteSecret => {
            let secret = Key::new("secrets", "default", "a");
            let object = json!({"metadata": {"name": "a"}, "data": {"one": number}});
            let written = store.write_now(&secret, |_| Ok(Write::Put(object.clone())));
            written.unwrap();
        }
        Operation::Restart => {}
    }
}

/// Compares the changes of an old watch, which begins after `before` and runs beside `during`, with those of a watch from the start.
async fn compare(before: Vec<Operation>, during: Vec<Operation>) {
    let environment = Environment::with(StatusLocation::Branch);
    let mut store = open_with_widgets(&environment);
    // A start on a repository without commits resumes no watch.
    put(&store, "a", "one", "first").unwrap();
    let first = store.read().revision();
    let mut live = LiveWatch::new(&store);
    let first_number = before.len();
    for (number, operation) in before.into_iter().enumerate() {
        if matches!(operation, Operation::Restart) {
            drop(store);
            store = open_with_widgets(&environment);
        }
        run(&environment, &store, operation, number);
        live.read(&store);
    }
    let shared = store.clone();
    let writer = tokio::task::spawn_blocking(move || {
        for (number, operation) in (first_number..).zip(during) {
            run(&environment, &shared, operation, number);
            live.read(&shared);
        }
        put(&shared, LAST, "one", "1").unwrap();
        write_widget(&shared, LAST, "spec", 1);
        live.read(&shared);
        (live.seen, environment)
    });
    let (config_maps, of_widgets) =
        tokio::join!(watch(&store, CONFIG_MAPS, first), watch(&store, WIDGETS, first));
    let (seen, _environment) = writer.await.unwrap();
    for (resource, old) in [(CONFIG_MAPS, config_maps), (WIDGETS, of_widgets)] {
        let expected = &seen[resource];
        assert_eq!(old.as_ref(), Some(expected), "{resource}");
        let middle = (expected.len() - 1) / 2;
        if middle + 1 < expected.len() {
            let rest = watch(&store, resource, expected[middle].revision).await;
            assert_eq!(rest.unwrap(), expected[middle + 1..], "{resource}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn an_old_watch_receives_each_change_once(
        before in vec(prop_oneof![8 => operation(), 1 => Just(Operation::Restart)], 4..20),
        during in vec(operation(), 0..12),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(compare(before, during));
    }
}

//! The steps that the controller has to pass. Each step begins where the one before has ended.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_harness::gobuild::{self, Tool};
use sluice_tests::scenario::{TIMEOUT, retry, wait_for, wait_until_gone};

use super::controller::{Controller, LeaderElection};

/// The finalizer of the example.
const FINALIZER: &str = "example.com/record";
/// The field manager of its applies, and the reporter of its Events.
const MANAGER: &str = "page-controller";
/// The object of its leader election.
const LEASE: &str = "page-controller.example.com";
/// Interval between two lists of Events.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Number of lines of each log in a message.
const LOG_LINES: usize = 40;

/// An API that serves pages, and what a controller needs to use it.
pub(super) struct Fixture {
    client: Client,
    program: PathBuf,
    kubeconfig: PathBuf,
    folder: PathBuf,
}

fn page(name: &str, text: &str, secret: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Page", "metadata": {"name": name},
        "spec": {"text": text, "secretName": secret}})
}

impl Fixture {
    /// Builds the program, and creates the Secret that the first page names.
    pub(super) async fn open(client: Client, kubeconfig: &Path, folder: &Path) -> Self {
        let build = || gobuild::build(Tool::ControllerExample, &mut |line| eprintln!("{line}"));
        let program = tokio::task::spawn_blocking(build).await.unwrap().unwrap();
        let fixture = Self {
            client,
            program,
            kubeconfig: kubeconfig.to_owned(),
            folder: folder.to_owned(),
        };
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "words"}, "stringData": {"word": "a"}});
        create(&fixture.api("", "Secret"), secret).await;
        fixture
    }

    fn api(&self, group: &str, kind: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(group, "v1", kind);
        Api::namespaced_with(self.client.clone(), "default", &ApiResource::from_gvk(&kind))
    }

    fn pages(&self) -> Api<DynamicObject> {
        self.api("example.com", "Page")
    }

    fn config_maps(&self) -> Api<DynamicObject> {
        self.api("", "ConfigMap")
    }

    fn start(&self, instance: &str, election: LeaderElection) -> Controller {
        Controller::start(&self.program, &self.kubeconfig, &self.folder, instance, election)
    }

    /// Starts a controller, which publishes the first page and corrects what others change.
    pub(super) async fn begin(&self) -> Controller {
        let controller = self.start("one", LeaderElection::Disabled);
        self.publish().await;
        self.correct().await;
        self.follow_secret().await;
        for path in [
            "/apis/example.com/v1/pages",
            "/api/v1/configmaps",
            "/api/v1/secrets",
        ] {
            assert_streamed(&controller.log(), path);
        }
        controller
    }

    /// Restarts the controller, deletes the first page, and hands the second over from leader to leader.
    pub(super) async fn finish(&self, controller: Controller) {
        let controller = self.restart(controller).await;
        self.delete().await;
        let log = controller.end().await;
        assert!(log.contains("The controller ended"), "{log}");
        self.hand_over().await;
    }

    /// A new page gets a finalizer, owned and other objects, a status and an Event.
    async fn publish(&self) {
        create(&self.pages(), page("first", "hello", "words")).await;
        let page = self.wait_until_ready("first", "one").await;
        assert_eq!(page["metadata"]["finalizers"], json!([FINALIZER]));
        assert_eq!(page["metadata"]["generation"], 1, "only its spec counts");
        // The status is written last.
        let text = self.get("first-text").await;
        assert_eq!(text["data"]["text"], "hello");
        assert_eq!(text["data"]["checksum"].as_str().map(str::len), Some(64));
        let applied = self.get("first-applied").await;
        assert_eq!(applied["data"], json!({"text": "hello"}));
        for owned in [&text, &applied] {
            let owner = &owned["metadata"]["ownerReferences"][0];
            assert_eq!(owner["uid"], page["metadata"]["uid"]);
            assert_eq!(
                (&owner["kind"], &owner["controller"]),
                (&json!("Page"), &json!(true))
            );
        }
        let record = self.get("first-record").await;
        assert_eq!(record["data"]["uid"], page["metadata"]["uid"]);
        let managers = applied["metadata"]["managedFields"].as_array().unwrap();
        let of_applies = managers.iter().filter(|entry| entry["operation"] == "Apply");
        assert_eq!(
            of_applies.map(|entry| &entry["manager"]).collect::<Vec<_>>(),
            [MANAGER]
        );
        self.wait_for_event("events.k8s.io", "Published", |event| {
            event["regarding"]["name"] == "first"
                && event["reportingController"] == MANAGER
                && event["note"] == "Published generation 1"
        })
        .await;
    }

    /// Foreign edits and deletions of owned objects are undone; keys of other managers of an applied object stay.
    async fn correct(&self) {
        let maps = self.config_maps();
        let edit = json!({"data": {"text": "changed", "extra": "kept"}});
        merge(&maps, "first-text", &edit).await;
        let is_replaced = |map: &Value| map["data"]["text"] == "hello" && map["data"]["extra"].is_null();
        let text = self
            .wait(&maps, "first-text", "the replaced data", is_replaced)
            .await;
        merge(&maps, "first-applied", &edit).await;
        let is_applied = |map: &Value| map["data"] == json!({"text": "hello", "extra": "kept"});
        self.wait(&maps, "first-applied", "the applied key", is_applied)
            .await;
        let params = DeleteParams::default();
        maps.delete("first-text", &params).await.unwrap();
        let is_new =
            |map: &Value| map["metadata"]["uid"] != text["metadata"]["uid"] && map["data"]["text"] == "hello";
        self.wait(&maps, "first-text", "another object", is_new).await;
    }

    /// A change of the Secret reaches the page that names it, through the index.
    async fn follow_secret(&self) {
        let before = self.get("first-text").await;
        let edit = json!({"stringData": {"word": "b"}});
        merge(&self.api("", "Secret"), "words", &edit).await;
        let is_changed = |map: &Value| map["data"]["checksum"] != before["data"]["checksum"];
        let maps = self.config_maps();
        self.wait(&maps, "first-text", "another checksum", is_changed)
            .await;
    }

    /// The next process handles the changes that were made while none was running.
    async fn restart(&self, controller: Controller) -> Controller {
        controller.kill().await;
        let drift = json!({"data": {"text": "changed"}});
        merge(&self.config_maps(), "first-applied", &drift).await;
        merge(&self.pages(), "first", &json!({"spec": {"text": "edited"}})).await;
        create(&self.pages(), page("second", "other", "")).await;
        let controller = self.start("two", LeaderElection::Disabled);
        self.wait_until_ready("first", "two").await;
        self.wait_until_ready("second", "two").await;
        self.wait_for_text("first", "edited").await;
        self.wait_for_text("second", "other").await;
        let applied = self.get("first-applied").await;
        assert_eq!(applied["data"], json!({"text": "edited", "extra": "kept"}));
        controller
    }

    /// The finalizer deletes the record, and the garbage collector what the page owns.
    async fn delete(&self) {
        let params = DeleteParams::default();
        self.pages().delete("first", &params).await.unwrap();
        wait_until_gone(&self.pages(), "first").await.unwrap();
        for name in ["first-record", "first-text", "first-applied"] {
            let gone = wait_until_gone(&self.config_maps(), name).await;
            gone.unwrap_or_else(|error| panic!("{name}: {error}\n{}", self.logs()));
        }
        for name in ["second-record", "second-text", "second-applied"] {
            self.get(name).await;
        }
    }

    /// Only the leader reconciles. Another one follows when it releases the lease, and when the lease of a killed one expires.
    async fn hand_over(&self) {
        let left = self.start("left", LeaderElection::Enabled);
        self.wait_until_ready("second", "left").await;
        let right = self.start("right", LeaderElection::Enabled);
        right.wait_for_log("Attempting to acquire leader lease").await;
        merge(&self.pages(), "second", &json!({"spec": {"text": "left"}})).await;
        self.wait_until_ready("second", "left").await;
        left.end().await;
        self.wait_until_ready("second", "right").await;

        let third = self.start("third", LeaderElection::Enabled);
        third.wait_for_log("Attempting to acquire leader lease").await;
        right.kill().await;
        self.wait_until_ready("second", "third").await;
        let lease = self.api("coordination.k8s.io", "Lease").get(LEASE).await.unwrap();
        let lease = serde_json::to_value(lease).unwrap();
        // On a slow machine, an instance that waits may take a lease that is renewed late.
        let transitions = lease["spec"]["leaseTransitions"].as_i64();
        assert!(transitions.is_some_and(|count| count >= 2), "{lease}");
        self.wait_for_event("", "LeaderElection", |event| {
            event["involvedObject"]["name"] == LEASE
        })
        .await;
        third.end().await;
    }

    /// Waits until this instance has reconciled the present generation.
    async fn wait_until_ready(&self, name: &str, instance: &str) -> Value {
        let is_ready = |page: &Value| {
            let status = &page["status"];
            status["instance"] == instance
                && status["observedGeneration"] == page["metadata"]["generation"]
                && status["conditions"][0]["status"] == "True"
        };
        self.wait(&self.pages(), name, "the status of the instance", is_ready)
            .await
    }

    /// Waits until this text is published.
    pub(super) async fn wait_for_text(&self, page: &str, text: &str) {
        let is_published = |map: &Value| map["data"]["text"] == text;
        let maps = self.config_maps();
        self.wait(&maps, &format!("{page}-text"), "the text", is_published)
            .await;
    }

    async fn wait(
        &self,
        api: &Api<DynamicObject>,
        name: &str,
        what: &'static str,
        condition: impl Fn(&Value) -> bool,
    ) -> Value {
        let waited = wait_for(api, name, what, condition).await;
        waited.unwrap_or_else(|error| panic!("{error}\n{}", self.logs()))
    }

    /// Waits until there is an Event with this reason that meets a condition. `group` is that of its kind.
    async fn wait_for_event(&self, group: &str, reason: &str, condition: impl Fn(&Value) -> bool) {
        let (events, all) = (self.api(group, "Event"), ListParams::default());
        let mut tick = tokio::time::interval(POLL_INTERVAL);
        let found = async {
            loop {
                tick.tick().await;
                let listed = retry(|| events.list(&all)).await.unwrap();
                let mut values = listed
                    .items
                    .iter()
                    .map(|event| serde_json::to_value(event).unwrap());
                if values.any(|event| event["reason"] == reason && condition(&event)) {
                    return;
                }
            }
        };
        let in_time = tokio::time::timeout(TIMEOUT, found).await.is_ok();
        assert!(in_time, "no Event {reason}\n{}", self.logs());
    }

    async fn get(&self, config_map: &str) -> Value {
        let object = self.config_maps().get(config_map).await;
        serde_json::to_value(object.unwrap()).unwrap()
    }

    /// Returns the last lines of the logs of all instances.
    fn logs(&self) -> String {
        let entries = std::fs::read_dir(&self.folder).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let logs = paths.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
        let tails = logs.map(|path| {
            let log = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
            let lines: Vec<_> = log.lines().collect();
            let tail = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
            format!("== {}\n{tail}", path.display())
        });
        tails.collect::<Vec<_>>().join("\n")
    }
}

async fn create(api: &Api<DynamicObject>, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

async fn merge(api: &Api<DynamicObject>, name: &str, patch: &Value) {
    let patch = Patch::Merge(patch);
    api.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Asserts that the cache got the objects of a path by a watch with initial events, as client-go does by default, and never by a
/// list, to which it falls back.
fn assert_streamed(log: &str, path: &str) {
    let requests = log
        .lines()
        .filter(|line| line.contains("verb=\"GET\"") && line.contains(&format!("{path}?")));
    let requests: Vec<_> = requests.collect();
    let is_streamed =
        |line: &&str| line.contains("sendInitialEvents=true") && line.contains("status=\"200 OK\"");
    assert!(requests.iter().any(is_streamed), "{path}: {requests:#?}");
    assert!(
        requests.iter().all(|line| line.contains("watch=true")),
        "{path}: {requests:#?}"
    );
}

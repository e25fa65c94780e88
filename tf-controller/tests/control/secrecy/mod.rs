//! Values that nobody may read: planted in every way in, and looked for everywhere but in the Secrets that hold them.

mod channels;
mod rendered;

use crate::looks::{condition, pending};
use crate::world::{NAMESPACE, World};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::{Value, json};
use sluice_harness::trial::Trial;
use std::{
    io::Write,
    path::Path,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};
use tracing_subscriber::fmt::MakeWriter;

/// A value for each way in. None is part of another text of the test.
const VARIABLE: &str = "canary-variable-5f1d";
const SECRET_VARIABLE: &str = "canary-secret-variable-9a2c";
const TOKEN: &str = "canary-token-77be";
const PROVIDER: &str = "canary-of-the-provider-c0de";
const CHANGED: &str = "canary-changed-by-hand-1b2c";
const ALL: [&str; 5] = [VARIABLE, SECRET_VARIABLE, TOKEN, PROVIDER, CHANGED];
/// The file of the API's objects, in which stands what the user wrote.
const STORE: &str = "store";

/// What is looked for.
#[derive(Clone, Copy)]
struct Canaries<'a> {
    /// Values that stand in Secrets alone.
    hidden: &'a [&'a str],
    /// Values that the user wrote into a spec in clear, which nobody may carry further.
    in_specs: &'a [&'a str],
}

/// The log of this process, whichever test is the first to ask for it.
fn log() -> Log {
    static LOG: OnceLock<Log> = OnceLock::new();
    let made = LOG.get_or_init(|| {
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt().with_writer(log.clone());
        let subscriber = subscriber.with_max_level(tracing::Level::DEBUG).finish();
        // For the whole process: the controller's work is done on many threads.
        tracing::subscriber::set_global_default(subscriber).unwrap();
        log
    });
    made.clone()
}

/// What everything in this process logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn search(place: &str, text: &[u8], canaries: Canaries<'_>, found: &mut Vec<String>) {
    let wanted = canaries.in_specs.iter().filter(|_| !place.ends_with(STORE));
    for canary in canaries.hidden.iter().chain(wanted) {
        if text
            .windows(canary.len())
            .any(|window| window == canary.as_bytes())
        {
            found.push(format!("{canary} in {place}"));
        }
    }
}

fn search_files(directory: &Path, canaries: Canaries<'_>, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.as_os_str().as_encoded_bytes();
        search("the name of a file", name, canaries, found);
        if path.is_dir() {
            search_files(&path, canaries, found);
        } else if let Ok(text) = std::fs::read(&path) {
            search(&path.display().to_string(), &text, canaries, found);
        }
    }
}

/// Every object of the namespace, without what Secrets are there to hold and without what the user wrote.
async fn search_objects(world: &World, canaries: Canaries<'_>, found: &mut Vec<String>) {
    for (group, version, kind) in [
        ("", "v1", "Event"),
        ("", "v1", "ConfigMap"),
        ("", "v1", "Secret"),
        ("coordination.k8s.io", "v1", "Lease"),
        ("infra.contrib.fluxcd.io", "v1alpha2", "Terraform"),
        ("infra.sluice.dev", "v1alpha1", "TerraformRun"),
    ] {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), NAMESPACE, &resource);
        for object in api.list(&ListParams::default()).await.unwrap().items {
            let place = format!("{kind} {}", object.name_any());
            let mut whole = serde_json::to_value(&object).unwrap();
            if let Some(data) = whole["data"].as_object_mut().filter(|_| kind == "Secret") {
                // The names of what it holds are for anybody who sees its size.
                data.values_mut().for_each(|value| *value = Value::Null);
            }
            if kind == "Terraform" {
                whole["spec"] = Value::Null;
            }
            search(&place, whole.to_string().as_bytes(), canaries, found);
        }
    }
    search_readable_plans(world, canaries, found).await;
}

/// The plan's JSON lies in a Secret, compressed, and is for people to read.
async fn search_readable_plans(world: &World, canaries: Canaries<'_>, found: &mut Vec<String>) {
    let secrets: Api<Secret> = world.api();
    let params = ListParams::default().labels("infra.contrib.fluxcd.io/plan-name=json.json");
    for secret in secrets.list(&params).await.unwrap().items {
        for (key, value) in secret.data.clone().unwrap_or_default() {
            let mut text = Vec::new();
            let mut unpacked = flate2::read::GzDecoder::new(&value.0[..]);
            std::io::Read::read_to_end(&mut unpacked, &mut text).unwrap();
            search(&format!("the readable plan's {key}"), &text, canaries, found);
        }
    }
}

async fn nothing_found(world: &World, canaries: Canaries<'_>, when: &str) {
    let mut found = Vec::new();
    search_objects(world, canaries, &mut found).await;
    search_files(world.dir.path(), canaries, &mut found);
    search("the log", &log().0.lock().unwrap(), canaries, &mut found);
    let metrics = world.metrics.text();
    search("the metrics", metrics.as_bytes(), canaries, &mut found);
    assert!(found.is_empty(), "{when}: {found:#?}");
}

fn module(trial: &Trial) -> String {
    let head = trial.module_head_with("var.token");
    head + r#"
variable "token" { sensitive = true }
variable "hidden" { sensitive = true }
variable "given" {}
resource "trial_thing" "it" {
  name    = "it"
  content = var.given
}
resource "terraform_data" "copy" {
  input = [var.hidden, var.given, trial_thing.it.secret]
}
output "out" {
  value     = "${trial_thing.it.secret} ${var.hidden}"
  sensitive = true
}
"#
}

#[tokio::test(flavor = "multi_thread")]
async fn no_value_that_nobody_may_read_is_written_anywhere_but_into_secrets() {
    log();
    let canaries = Canaries {
        hidden: &ALL,
        in_specs: &[],
    };
    let trial = Trial::create().unwrap();
    let mut world = World::without_controller().await;
    let config = trial.cli_config().display().to_string();
    world.environment.insert("TF_CLI_CONFIG_FILE".to_owned(), config);
    world
        .secret("given", &[("given", SECRET_VARIABLE), ("token", TOKEN)])
        .await;
    trial.order(&json!({ "secret": PROVIDER })).unwrap();
    world.start(2).await;
    world.commit("a", &[("main.tf", &module(&trial))]).await;
    let spec = json!({ "approvePlan": "", "retryInterval": "1h", "writeOutputsToSecret": { "name": "out" },
        "vars": [{ "name": "hidden", "value": VARIABLE }], "varsFrom": [{ "kind": "Secret", "name": "given" }] });
    for form in ["human", "json"] {
        let mut spec = spec.clone();
        spec["storeReadablePlan"] = json!(form);
        // Both stacks would make the same thing: only one of them is ever applied.
        world.stack(form, spec).await;
    }
    let planned = world.ready("human", "Unknown TerraformPlannedWithChanges").await;
    world.ready("json", "Unknown TerraformPlannedWithChanges").await;
    nothing_found(&world, canaries, "planned").await;

    // A provider that tells in its error what it was given, while an apply is made of a stored plan.
    let careless = json!({ "secret": PROVIDER, "steps": { "create": { "fail": "bad token {token}" } } });
    trial.order(&careless).unwrap();
    world
        .edit("human", json!({ "approvePlan": pending(&planned) }))
        .await;
    let failed = world.ready("human", "False TFExecApplyFailed").await;
    assert!(
        condition(&failed, "Ready").contains("bad token (sensitive)"),
        "{}",
        condition(&failed, "Ready")
    );
    nothing_found(&world, canaries, "failed").await;

    trial.order(&json!({ "secret": PROVIDER })).unwrap();
    world.edit("human", json!({ "approvePlan": "auto" })).await;
    world.ready("human", "True TerraformOutputsWritten").await;
    assert_eq!(
        world.value("out", "out").await.unwrap(),
        format!("{PROVIDER} {VARIABLE}")
    );
    nothing_found(&world, canaries, "applied").await;

    // Drift, and an error while it is planned.
    world.edit("human", json!({ "approvePlan": "" })).await;
    trial
        .order(&json!({ "secret": PROVIDER, "steps": { "read": { "fail": "no such {token}" } } }))
        .unwrap();
    world.request("human", "1").await;
    world
        .until("human", "a failed check", |stack| {
            condition(stack, "Ready").contains("no such (sensitive)")
        })
        .await;
    nothing_found(&world, canaries, "failed to read").await;
}

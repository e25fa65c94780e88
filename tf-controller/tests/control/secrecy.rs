//! Values that nobody may read: planted in every way in, and looked for everywhere but in the Secrets that hold them.

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
    sync::{Arc, Mutex, PoisonError},
};
use tracing_subscriber::fmt::MakeWriter;

/// A value for each way in. None is part of another text of the test.
const VARIABLE: &str = "canary-variable-5f1d";
const SECRET_VARIABLE: &str = "canary-secret-variable-9a2c";
const TOKEN: &str = "canary-token-77be";
const PROVIDER: &str = "canary-of-the-provider-c0de";
const CHANGED: &str = "canary-changed-by-hand-1b2c";
const ALL: [&str; 5] = [VARIABLE, SECRET_VARIABLE, TOKEN, PROVIDER, CHANGED];

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

fn search(place: &str, text: &[u8], found: &mut Vec<String>) {
    for canary in ALL {
        if text
            .windows(canary.len())
            .any(|window| window == canary.as_bytes())
        {
            found.push(format!("{canary} in {place}"));
        }
    }
}

fn search_files(directory: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        search("the name of a file", path.as_os_str().as_encoded_bytes(), found);
        if path.is_dir() {
            search_files(&path, found);
        } else if let Ok(text) = std::fs::read(&path) {
            search(&path.display().to_string(), &text, found);
        }
    }
}

/// Every object of the namespace, without what Secrets are there to hold and without what the user wrote.
async fn search_objects(world: &World, found: &mut Vec<String>) {
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
            if kind == "Secret" {
                whole["data"] = Value::Null;
            }
            if kind == "Terraform" {
                whole["spec"] = Value::Null;
            }
            search(&place, whole.to_string().as_bytes(), found);
        }
    }
    search_readable_plans(world, found).await;
}

/// The plan's JSON lies in a Secret, compressed, and is for people to read.
async fn search_readable_plans(world: &World, found: &mut Vec<String>) {
    let secrets: Api<Secret> = world.api();
    let params = ListParams::default().labels("infra.contrib.fluxcd.io/plan-name=json.json");
    for secret in secrets.list(&params).await.unwrap().items {
        for (key, value) in secret.data.clone().unwrap_or_default() {
            let mut text = Vec::new();
            let mut unpacked = flate2::read::GzDecoder::new(&value.0[..]);
            std::io::Read::read_to_end(&mut unpacked, &mut text).unwrap();
            search(&format!("the readable plan's {key}"), &text, found);
        }
    }
}

async fn nothing_found(world: &World, log: &Log, when: &str) {
    let mut found = Vec::new();
    search_objects(world, &mut found).await;
    search_files(world.dir.path(), &mut found);
    search("the log", &log.0.lock().unwrap(), &mut found);
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
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone());
    let subscriber = subscriber.with_max_level(tracing::Level::DEBUG).finish();
    // For the whole process: the controller's work is done on many threads.
    let _ = tracing::subscriber::set_global_default(subscriber);
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
    nothing_found(&world, &log, "planned").await;

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
    nothing_found(&world, &log, "failed").await;

    trial.order(&json!({ "secret": PROVIDER })).unwrap();
    world.edit("human", json!({ "approvePlan": "auto" })).await;
    world.ready("human", "True TerraformOutputsWritten").await;
    assert_eq!(
        world.value("out", "out").await.unwrap(),
        format!("{PROVIDER} {VARIABLE}")
    );
    nothing_found(&world, &log, "applied").await;

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
    nothing_found(&world, &log, "failed to read").await;
}

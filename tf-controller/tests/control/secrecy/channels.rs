//! The other ways in: environment, mapped files, backend arguments, the CLI's configuration, what a provider says at each step,
//! what services answer.

use super::{Canaries, Shipped, nothing_found};
use crate::looks::condition;
use crate::world::World;
use serde_json::{Value, json};
use sluice_harness::trial::Trial;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

const NET: &str = "net-seen-by-anybody-4e19";
const BACKEND_STACK: &str = "backend-seen-by-anybody-4e19";
const ASKING: &str = "asking-seen-by-anybody-4e19";
const FROM_KEY: &str = "canary-of-a-key-3a1e";
const FROM_ALL: &str = "canary-of-all-keys-81fd";
const MACHINE: &str = "canary-of-the-machine-e0c4";
const LITERAL: &str = "canary-in-the-spec-5b77";
const WORKSPACE_FILE: &str = "canary-in-the-workspace-ad19";
const HOME_FILE: &str = "canary-in-the-home-c2f3";
const CLI: &str = "canary-of-the-cli-97d0";
const BACKEND: &str = "canary-of-the-backend-0f6b";
const ANSWER: &str = "canary-of-an-answer-44a8";
const KEY: &str = "canary-as-an-index-6e2d";
const MADE: &str = "canary made by a provider 1c9e";
const HIDDEN: [&str; 10] = [
    FROM_KEY,
    FROM_ALL,
    MACHINE,
    WORKSPACE_FILE,
    HOME_FILE,
    CLI,
    BACKEND,
    ANSWER,
    KEY,
    MADE,
];
const CANARIES: Canaries<'_> = Canaries {
    hidden: &HIDDEN,
    in_specs: &[LITERAL],
};

/// A service that answers everything in this way.
fn service(head: &'static str, body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut asked = vec![0; 65_536];
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            if stream.read(&mut asked).unwrap_or(0) == 0 {
                continue;
            }
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
        }
    });
    address
}

fn module(trial: &Trial) -> String {
    trial.module_head()
        + r#"
variable "key" {}
variable "content" {}
resource "trial_thing" "it" {
  for_each = toset([var.key])
  name     = "it"
  content  = var.content
}
resource "terraform_data" "careless" {
  triggers_replace = var.content
  provisioner "local-exec" {
    command = "echo $FROM_KEY $FROM_ALL $API_TOKEN $MACHINE_PASSWORD; cat mapped.txt $HOME/mapped.txt"
  }
}
output "secret" {
  value     = trial_thing.it[var.key].secret
  sensitive = true
}
"#
}

async fn secrets(world: &World, trial: &Trial) {
    let cli = format!(
        "{}credentials \"example.com\" {{\n  token = \"{CLI}\"\n}}\n",
        trial.cli_config_text()
    );
    let address = format!("http://127.0.0.1:9/{BACKEND}");
    world
        .secret("one", &[("key", FROM_KEY), ("file", WORKSPACE_FILE)])
        .await;
    world.secret("all", &[("FROM_ALL", FROM_ALL)]).await;
    world.secret("home", &[("file", HOME_FILE)]).await;
    world.secret("cli", &[("own.tfrc", cli.as_str())]).await;
    world.secret("place", &[("address", address.as_str())]).await;
    world.secret("index", &[("key", KEY)]).await;
}

fn spec(health: &str) -> Value {
    let env = json!([{ "name": "FROM_KEY", "valueFrom": { "secretKeyRef": { "name": "one", "key": "key" } } },
        { "name": "TRIAL_TOKEN", "valueFrom": { "secretKeyRef": { "name": "one", "key": "key" } } },
        { "name": "API_TOKEN", "value": LITERAL }]);
    json!({ "retryInterval": "1h", "storeReadablePlan": "human", "enableInventory": true,
        "runnerPodTemplate": { "spec": { "env": env, "envFrom": [{ "secretRef": { "name": "all" } }] } },
        "fileMappings": [
            { "location": "workspace", "path": "mapped.txt", "secretRef": { "name": "one", "key": "file" } },
            { "location": "home", "path": "mapped.txt", "secretRef": { "name": "home", "key": "file" } }],
        "cliConfigSecretRef": { "name": "cli" }, "vars": [{ "name": "content", "value": "one" }],
        "varsFrom": [{ "kind": "Secret", "name": "index" }], "writeOutputsToSecret": { "name": "out" },
        "healthChecks": [{ "name": "web", "type": "http", "url": format!("http://{health}/?key=${{{{.secret}}}}"), "timeout": "5s" }] })
}

#[tokio::test(flavor = "multi_thread")]
async fn no_other_way_in_leads_out_either() {
    let trial = Trial::create().unwrap();
    let mut world = World::in_a_file().await;
    let machine = ("MACHINE_PASSWORD".to_owned(), MACHINE.to_owned());
    world.environment.extend([machine]);
    let shipped = Shipped::start(&world).await;
    secrets(&world, &trial).await;
    world.commit("a", &[("main.tf", &module(&trial))]).await;
    let health = service("503 Away", ANSWER);
    Box::pin(before_there_is_a_plan(&world, &shipped, &health)).await;
    Box::pin(while_it_is_made(&world, &shipped, &trial, &health)).await;
    Box::pin(what_the_state_holds(&world, &shipped, &trial)).await;
}

/// What cannot even be initialized, and what a service lets not pass.
async fn before_there_is_a_plan(world: &World, shipped: &Shipped, health: &str) {
    let backend = json!({ "backendConfig": { "customConfiguration": "backend \"http\" {}" }, "retryInterval": "1h",
        "vars": [{ "name": "key", "value": "x" }, { "name": "content", "value": "x" }], "cliConfigSecretRef": { "name": "cli" },
        "backendConfigsFrom": [{ "kind": "Secret", "name": "place" }] });
    world.stack(BACKEND_STACK, backend).await;
    shows(world, BACKEND_STACK, "False TFExec", "(sensitive)").await;
    let hook = service("200 OK", "{\"passed\":\"canary-of-an-answer-44a8\"}");
    let mut asking = spec(health);
    asking["webhooks"] = json!([{ "stage": "post-planning", "url": format!("http://{hook}/?token={LITERAL}"),
        "payloadType": "SpecAndPlan", "testExpression": "${{ .passed }}", "errorMessageTemplate": "no" }]);
    asking["writeOutputsToSecret"] = Value::Null;
    world.stack(ASKING, asking).await;
    world.ready(ASKING, "False PostPlanningWebhookFailed").await;
    nothing_found(world, shipped, CANARIES, &[], "not even planned").await;
}

/// A provider that tells what its environment held, then a service that is not there.
async fn while_it_is_made(world: &World, shipped: &Shipped, trial: &Trial, health: &str) {
    trial
        .order(&json!({ "steps": { "create": { "fail": "refused {environment}" } } }))
        .unwrap();
    world.stack(NET, spec(health)).await;
    shows(world, NET, "False TFExecApplyFailed", "refused (sensitive)").await;
    nothing_found(world, shipped, CANARIES, &[], "failed to apply").await;
    trial.order(&json!({ "secret": MADE })).unwrap();
    world.request(NET, "again").await;
    shows(world, NET, "False HealthChecksFailed", "?key=(sensitive)").await;
    assert_eq!(world.value("out", "secret").await.as_deref(), Some(MADE));
    nothing_found(world, shipped, CANARIES, &[], "applied").await;
}

/// A provider that tells what the state holds: while it reads, plans, updates and deletes.
async fn what_the_state_holds(world: &World, shipped: &Shipped, trial: &Trial) {
    for (step, says) in [
        ("read", "unreadable {secret}"),
        ("plan", "unplannable {secret}"),
        ("update", "unchanged {secret}"),
        ("delete", "undeletable {secret}"),
    ] {
        let fails = json!({ "secret": MADE, "steps": { step: { "fail": says } } });
        trial.order(&fails).unwrap();
        let reason = match step {
            "update" => {
                let other = json!({ "vars": [{ "name": "content", "value": "two" }] });
                world.edit(NET, other).await;
                "False TFExecApplyFailed"
            }
            "delete" => {
                let edit = json!({ "destroyResourcesOnDeletion": true, "healthChecks": null });
                world.edit(NET, edit).await;
                world.delete(NET).await;
                "False "
            }
            _ => {
                world.request(NET, step).await;
                "False "
            }
        };
        let told = says.replace("{secret}", "(sensitive)");
        shows(world, NET, reason, &told).await;
        nothing_found(world, shipped, CANARIES, &[], step).await;
    }
}

/// Waits until `Ready` begins so and contains this.
async fn shows(world: &World, name: &str, beginning: &str, text: &str) {
    world
        .until(name, text, |stack| {
            let ready = condition(stack, "Ready");
            ready.starts_with(beginning) && ready.contains(text)
        })
        .await;
}

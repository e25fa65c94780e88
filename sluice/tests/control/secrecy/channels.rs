//! Further inputs: environment, mapped files, backend arguments, CLI configuration, provider messages of each step, and responses of
//! services.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::{Value, json};
use sluice_harness::trial::TrialProvider;

use super::{Programs, SecretValues, assert_no_leak};
use crate::environment::TestEnvironment;
use crate::observe::condition;

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
const SECRET_VALUES: SecretValues<'_> = SecretValues {
    hidden: &HIDDEN,
    in_specs: &[LITERAL],
};

/// Starts a service that responds to every request like this.
fn service(head: &'static str, body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut request = vec![0; 65_536];
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            if stream.read(&mut request).unwrap_or(0) == 0 {
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

fn module(trial: &TrialProvider) -> String {
    trial.provider_block()
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

async fn secrets(env: &TestEnvironment, trial: &TrialProvider) {
    let cli = format!(
        "{}credentials \"example.com\" {{\n  token = \"{CLI}\"\n}}\n",
        trial.cli_config_text()
    );
    let address = format!("http://127.0.0.1:9/{BACKEND}");
    env.secret("one", &[("key", FROM_KEY), ("file", WORKSPACE_FILE)])
        .await;
    env.secret("all", &[("FROM_ALL", FROM_ALL)]).await;
    env.secret("home", &[("file", HOME_FILE)]).await;
    env.secret("cli", &[("own.tfrc", cli.as_str())]).await;
    env.secret("place", &[("address", address.as_str())]).await;
    env.secret("index", &[("key", KEY)]).await;
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
async fn no_other_input_is_leaked() {
    let trial = TrialProvider::create().unwrap();
    let mut env = TestEnvironment::with_stored_objects().await;
    let machine = ("MACHINE_PASSWORD".to_owned(), MACHINE.to_owned());
    env.environment.extend([machine]);
    let programs = Programs::start(&env).await;
    secrets(&env, &trial).await;
    env.commit("a", &[("main.tf", &module(&trial))]).await;
    let health = service("503 Away", ANSWER);
    Box::pin(check_before_a_plan(&env, &programs, &health)).await;
    Box::pin(check_create(&env, &programs, &trial, &health)).await;
    Box::pin(check_provider_steps(&env, &programs, &trial)).await;
}

/// A failing initialization, and a service that refuses the plan.
async fn check_before_a_plan(env: &TestEnvironment, programs: &Programs, health: &str) {
    let backend = json!({ "backendConfig": { "customConfiguration": "backend \"http\" {}" }, "retryInterval": "1h",
        "vars": [{ "name": "key", "value": "x" }, { "name": "content", "value": "x" }], "cliConfigSecretRef": { "name": "cli" },
        "backendConfigsFrom": [{ "kind": "Secret", "name": "place" }] });
    env.stack(BACKEND_STACK, backend).await;
    wait_for_ready_containing(env, BACKEND_STACK, "False TFExec", "(sensitive)").await;
    let hook = service("200 OK", "{\"passed\":\"canary-of-an-answer-44a8\"}");
    let mut asking = spec(health);
    asking["webhooks"] = json!([{ "stage": "post-planning", "url": format!("http://{hook}/?token={LITERAL}"),
        "payloadType": "SpecAndPlan", "testExpression": "${{ .passed }}", "errorMessageTemplate": "no" }]);
    asking["writeOutputsToSecret"] = Value::Null;
    env.stack(ASKING, asking).await;
    env.wait_ready(ASKING, "False PostPlanningWebhookFailed").await;
    assert_no_leak(env, programs, SECRET_VALUES, &[], "not planned").await;
}

/// A provider that prints its environment, then an unavailable service.
async fn check_create(env: &TestEnvironment, programs: &Programs, trial: &TrialProvider, health: &str) {
    trial
        .set_behaviour(&json!({ "steps": { "create": { "fail": "refused {environment}" } } }))
        .unwrap();
    env.stack(NET, spec(health)).await;
    wait_for_ready_containing(env, NET, "False TFExecApplyFailed", "refused (sensitive)").await;
    assert_no_leak(env, programs, SECRET_VALUES, &[], "failed to apply").await;
    trial.set_behaviour(&json!({ "secret": MADE })).unwrap();
    env.request(NET, "again").await;
    wait_for_ready_containing(env, NET, "False HealthChecksFailed", "?key=(sensitive)").await;
    assert_eq!(env.value("out", "secret").await.as_deref(), Some(MADE));
    assert_no_leak(env, programs, SECRET_VALUES, &[], "applied").await;
}

/// A provider that prints the state: while it reads, plans, updates and deletes.
async fn check_provider_steps(env: &TestEnvironment, programs: &Programs, trial: &TrialProvider) {
    for (step, says) in [
        ("read", "unreadable {secret}"),
        ("plan", "unplannable {secret}"),
        ("update", "unchanged {secret}"),
        ("delete", "undeletable {secret}"),
    ] {
        let fails = json!({ "secret": MADE, "steps": { step: { "fail": says } } });
        trial.set_behaviour(&fails).unwrap();
        let reason = match step {
            "update" => {
                let other = json!({ "vars": [{ "name": "content", "value": "two" }] });
                env.edit(NET, other).await;
                "False TFExecApplyFailed"
            }
            "delete" => {
                let edit = json!({ "destroyResourcesOnDeletion": true, "healthChecks": null });
                env.edit(NET, edit).await;
                env.delete(NET).await;
                "False "
            }
            _ => {
                env.request(NET, step).await;
                "False "
            }
        };
        let expected = says.replace("{secret}", "(sensitive)");
        wait_for_ready_containing(env, NET, reason, &expected).await;
        assert_no_leak(env, programs, SECRET_VALUES, &[], step).await;
    }
}

/// Waits until `Ready` has this beginning and contains this text.
async fn wait_for_ready_containing(env: &TestEnvironment, name: &str, beginning: &str, text: &str) {
    env.wait_for(name, text, |stack| {
        let ready = condition(stack, "Ready");
        ready.starts_with(beginning) && ready.contains(text)
    })
    .await;
}

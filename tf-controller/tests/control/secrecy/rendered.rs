//! What becomes configuration or a variable on a detour: `values` with what they read, `valueFrom`, a module that is rendered of
//! secrets, which the CLI quotes when it does not like it.

use super::{Canaries, Shipped, nothing_found};
use crate::looks::{condition, pending};
use crate::world::World;
use serde_json::{Value, json};

const STACK: &str = "net-seen-by-anybody-4e19";
const READ: &str = "canary-read-by-values-31d7";
const TYPED: &str = "canary-in-a-typed-value-8c40";
const FROM_KEY: &str = "canary-of-value-from-b2f9";
const RENDERED: &str = "canary-in-rendered-code-60ea";
const CANARIES: Canaries<'_> = Canaries {
    hidden: &[READ, TYPED, FROM_KEY, RENDERED],
    in_specs: &[],
};

/// The module; `last` stands behind it and has the secret in it.
fn module(last: &str) -> String {
    format!(
        r#"
variable "values" {{}}
variable "token" {{}}
variable "name" {{}}
resource "terraform_data" "it" {{
  input = [var.values.login, var.values.users, var.token, "{{{{ .name }}}}"]
}}
{last}
"#
    )
}

/// Code that the CLI refuses, with the line in its words, and a template that cannot be rendered.
async fn refused(world: &World, shipped: &Shipped, spec: &Value) {
    for (mark, last, reason) in [
        (
            "a",
            "output \"bad\" { value = no_such_function(\"{{ .name }}\") }",
            "False TFExec",
        ),
        ("b", "output \"bad\" { value = \"{{ .name }} }", "False TFExec"),
        (
            "c",
            "output \"bad\" { value = \"{{ .name | noSuchFunction }}\" }",
            "False TemplateGenerationFailed",
        ),
    ] {
        world.commit(mark, &[("main.tf.tpl", &module(last))]).await;
        if mark == "a" {
            world.stack(STACK, spec.clone()).await;
        }
        let revision = format!("main@sha1:{}", mark.repeat(40));
        world
            .until(STACK, last, |stack| {
                let tried = stack
                    .status
                    .as_ref()
                    .map(|status| status.last_attempted_revision.clone());
                tried.as_ref() == Some(&revision) && condition(stack, "Ready").starts_with(reason)
            })
            .await;
        nothing_found(world, shipped, CANARIES, &[], last).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_rendered_of_secrets_is_not_quoted() {
    let world = World::without_controller().await;
    let shipped = Shipped::start(&world).await;
    let users = format!("[\"{TYPED}\"]");
    let outputs = [
        ("password", READ),
        ("users", users.as_str()),
        ("users__type", "[\"list\",\"string\"]"),
    ];
    world.secret("outputs", &outputs).await;
    world.secret("token", &[("token", FROM_KEY)]).await;
    world.secret("names", &[("name", RENDERED)]).await;
    let key = json!({ "secretKeyRef": { "name": "token", "key": "token" } });
    let spec = json!({ "approvePlan": "", "retryInterval": "1h", "storeReadablePlan": "human",
        "readInputsFromSecrets": [{ "name": "outputs", "as": "net" }],
        "values": { "login": "me:${{ .net.password }}", "users": "${{ range .net.users }}${{ . }}${{ end }}" },
        "vars": [{ "name": "token", "valueFrom": key }], "varsFrom": [{ "kind": "Secret", "name": "names" }] });

    Box::pin(refused(&world, &shipped, &spec)).await;
    world
        .commit("d", &[("main.tf.tpl", &module("output \"none\" { value = 1 }"))])
        .await;
    let waiting = world.ready(STACK, "Unknown TerraformPlannedWithChanges").await;
    nothing_found(&world, &shipped, CANARIES, &[], "planned").await;
    world
        .edit(STACK, json!({ "approvePlan": pending(&waiting) }))
        .await;
    world.ready(STACK, "True TerraformAppliedSucceed").await;
    nothing_found(&world, &shipped, CANARIES, &[], "applied").await;
    let state = world.state(STACK).await;
    assert!(
        CANARIES.hidden.iter().all(|canary| state.contains(canary)),
        "they were given"
    );

    // A value that does not fit into its text.
    world
        .edit(
            STACK,
            json!({ "values": { "login": "${{ index .net.password 99 }}", "users": "" } }),
        )
        .await;
    world.ready(STACK, "False VarsGenerationFailed").await;
    nothing_found(&world, &shipped, CANARIES, &[], "a template that fails").await;
}

//! Values that reach configuration or variables indirectly: `values` with their inputs, `valueFrom`, and a module rendered with
//! secrets, which the CLI quotes in errors.

use serde_json::{Value, json};

use super::{Programs, SecretValues, assert_no_leak};
use crate::environment::TestEnvironment;
use crate::observe::{condition, pending};

const STACK: &str = "net-seen-by-anybody-4e19";
const READ: &str = "canary-read-by-values-31d7";
const TYPED: &str = "canary-in-a-typed-value-8c40";
const FROM_KEY: &str = "canary-of-value-from-b2f9";
const RENDERED: &str = "canary-in-rendered-code-60ea";
const SECRET_VALUES: SecretValues<'_> = SecretValues {
    hidden: &[READ, TYPED, FROM_KEY, RENDERED],
    in_specs: &[],
};

/// Returns the module; `last` is appended to it and contains the secret.
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

/// Code that the CLI refuses and quotes, and a template that cannot be rendered.
async fn assert_rejected(env: &TestEnvironment, programs: &Programs, spec: &Value) {
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
        env.commit(mark, &[("main.tf.tpl", &module(last))]).await;
        if mark == "a" {
            env.stack(STACK, spec.clone()).await;
        }
        let revision = format!("main@sha1:{}", mark.repeat(40));
        env.wait_for(STACK, last, |stack| {
            let tried = stack
                .status
                .as_ref()
                .map(|status| status.last_attempted_revision.clone());
            tried.as_ref() == Some(&revision) && condition(stack, "Ready").starts_with(reason)
        })
        .await;
        assert_no_leak(env, programs, SECRET_VALUES, &[], last).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rendered_secrets_are_not_quoted() {
    let env = TestEnvironment::without_controller().await;
    let programs = Programs::start(&env).await;
    let users = format!("[\"{TYPED}\"]");
    let outputs = [
        ("password", READ),
        ("users", users.as_str()),
        ("users__type", "[\"list\",\"string\"]"),
    ];
    env.secret("outputs", &outputs).await;
    env.secret("token", &[("token", FROM_KEY)]).await;
    env.secret("names", &[("name", RENDERED)]).await;
    let key = json!({ "secretKeyRef": { "name": "token", "key": "token" } });
    let spec = json!({ "approvePlan": "", "retryInterval": "1h", "storeReadablePlan": "human",
        "readInputsFromSecrets": [{ "name": "outputs", "as": "net" }],
        "values": { "login": "me:${{ .net.password }}", "users": "${{ range .net.users }}${{ . }}${{ end }}" },
        "vars": [{ "name": "token", "valueFrom": key }], "varsFrom": [{ "kind": "Secret", "name": "names" }] });

    Box::pin(assert_rejected(&env, &programs, &spec)).await;
    env.commit("d", &[("main.tf.tpl", &module("output \"none\" { value = 1 }"))])
        .await;
    let waiting = env.wait_ready(STACK, "Unknown TerraformPlannedWithChanges").await;
    assert_no_leak(&env, &programs, SECRET_VALUES, &[], "planned").await;
    env.edit(STACK, json!({ "approvePlan": pending(&waiting) })).await;
    env.wait_ready(STACK, "True TerraformAppliedSucceed").await;
    assert_no_leak(&env, &programs, SECRET_VALUES, &[], "applied").await;
    let state = env.state(STACK).await;
    assert!(
        SECRET_VALUES.hidden.iter().all(|canary| state.contains(canary)),
        "the values were used"
    );

    // A value that is invalid in its place.
    env.edit(
        STACK,
        json!({ "values": { "login": "${{ index .net.password 99 }}", "users": "" } }),
    )
    .await;
    env.wait_ready(STACK, "False VarsGenerationFailed").await;
    assert_no_leak(&env, &programs, SECRET_VALUES, &[], "a template that fails").await;
}

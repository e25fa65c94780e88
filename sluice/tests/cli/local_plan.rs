//! `sluice apply --local`: the real CLI plans a directory against the state and the variables of a stack, and changes nothing.

use std::io::Write as _;
use std::path::Path;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::ResourceExt as _;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use sluice_api::run::TerraformRun;
use sluice_api::terraform::Terraform;

use crate::fixture::{TestEnvironment, ready};
use crate::terminal;

const MODULE: &str = r#"
variable "size" {}
resource "terraform_data" "it" { input = var.size }
resource "terraform_data" "new" {}
"#;

/// The state after an apply with the size `one`.
pub(crate) fn applied_state() -> Value {
    let text = |value: &str| json!({ "value": value, "type": "string" });
    json!({ "version": 4, "terraform_version": "1.8.0", "serial": 7, "lineage": "7d0f6a0e-4cf1-5b0e-8a53-1f8b3c6f8d5e",
        "outputs": {}, "resources": [{ "mode": "managed", "type": "terraform_data", "name": "it",
            "provider": "provider[\"terraform.io/builtin/terraform\"]",
            "instances": [{ "schema_version": 0, "sensitive_attributes": [], "attributes": {
                "id": "3f9a0c1b-2d4e-4f6a-8b8c-9d0e1f2a3b4c", "input": text("one"), "output": text("one"), "triggers_replace": null } }] }] })
}

impl TestEnvironment {
    /// Creates a Secret with this value under this key.
    async fn create_secret(&self, name: &str, labels: Value, key: &str, value: Vec<u8>) {
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "labels": labels },
            "data": { key: ByteString(value) } });
        let secrets: Api<Secret> = Api::namespaced(self.client(), "default");
        secrets
            .create(&PostParams::default(), &serde_json::from_value(secret).unwrap())
            .await
            .unwrap();
    }

    /// Stores a state where the generated backend of a stack has it.
    pub(crate) async fn create_state(&self, stack: &str, state: &Value) {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(state.to_string().as_bytes()).unwrap();
        let labels = json!({ "app.kubernetes.io/managed-by": "terraform", "tfstate": "true",
            "tfstateSecretSuffix": stack, "tfstateWorkspace": "default" });
        let name = format!("tfstate-default-{stack}");
        self.create_secret(&name, labels, "tfstate", packed.finish().unwrap())
            .await;
    }

    /// Returns names and versions of all Secrets, stacks and runs.
    async fn versions(&self) -> Vec<(String, Option<String>)> {
        let all = ListParams::default();
        let secrets: Api<Secret> = Api::namespaced(self.client(), "default");
        let stacks: Api<Terraform> = Api::namespaced(self.client(), "default");
        let runs: Api<TerraformRun> = Api::namespaced(self.client(), "default");
        let secrets = secrets.list(&all).await.unwrap().items;
        let stacks = stacks.list(&all).await.unwrap().items;
        let runs = runs.list(&all).await.unwrap().items;
        let mut versions: Vec<_> = secrets.iter().map(version).collect();
        versions.extend(stacks.iter().map(version));
        versions.extend(runs.iter().map(version));
        versions
    }
}

fn version<K: kube::Resource>(object: &K) -> (String, Option<String>) {
    (object.name_any(), object.resource_version())
}

/// Returns the names of the files in a directory.
fn files(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_planned_against_the_state_and_the_variables_of_its_stack() {
    let environment = TestEnvironment::with_stacks().await;
    let spec = json!({ "path": "./infra/net", "varsFrom": [{ "kind": "Secret", "name": "inputs" }] });
    let applied = ready("True", "TerraformAppliedSucceed", "Applied");
    environment.create_stack("local", &spec, &applied).await;
    environment
        .create_secret("inputs", json!({}), "size", b"two".to_vec())
        .await;
    environment.create_state("local", &applied_state()).await;
    let module = environment.directory().join("repository/infra/net");
    std::fs::create_dir_all(&module).unwrap();
    std::fs::write(module.join("main.tf"), MODULE).unwrap();
    let before = environment.versions().await;

    let repository = environment.directory().join("repository");
    for directory in [&repository, &module] {
        let directory = directory.to_str().unwrap();
        let output = environment
            .sluice(&["apply", "local", "--local", directory, "--full"])
            .await;
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        for part in [
            "Plan of default/local",
            "changes   +1 ~1 -0",
            "~ terraform_data.it (update)",
            "+ terraform_data.new (create)",
            "Plan: 1 to add, 1 to change, 0 to destroy.",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let notes = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(notes.contains("Nothing was applied"), "{notes}");
        assert!(notes.contains("infra/net in the repository"), "{notes}");
    }

    assert_eq!(environment.versions().await, before);
    assert_eq!(files(&module), ["main.tf"]);
    check_pictures(&environment, &repository);
}

/// What a user sees of a plan of the repository. A long line is cut by the terminal, so its path is replaced before.
fn check_pictures(environment: &TestEnvironment, repository: &Path) {
    let path = repository.canonicalize().unwrap().display().to_string();
    let tool = regex::Regex::new("(?m)^(terraform|tofu) (init|plan|show) ").unwrap();
    let picture = |columns| {
        let session = terminal::run(
            environment,
            columns,
            &["apply", "local", "--local", &path],
            "",
            "",
        );
        assert_eq!(session.code, 0, "{}", session.text);
        let text = session.text.replace(&path, "/home/anna/infra");
        let seen = terminal::seen(&text, columns);
        tool.replace_all(&seen, "CLI $2 ").into_owned()
    };
    insta::assert_snapshot!(picture(80), @r"
    Planning /home/anna/infra/infra/net in the repository /home/anna/infra.
    CLI init ...
    CLI plan ...
    CLI show ...
    Plan of default/local
      id        -
      revision  /home/anna/infra, not pushed
      changes   +1 ~1 -0

      ~ terraform_data.it (update)
      + terraform_data.new (create)
    Nothing was applied, and no state was written. Push the files to plan and apply
    them.
    ");
    insta::assert_snapshot!(picture(160), @r"
    Planning /home/anna/infra/infra/net in the repository /home/anna/infra.
    CLI init ...
    CLI plan ...
    CLI show ...
    Plan of default/local
      id        -
      revision  /home/anna/infra, not pushed
      changes   +1 ~1 -0

      ~ terraform_data.it (update)
      + terraform_data.new (create)
    Nothing was applied, and no state was written. Push the files to plan and apply them.
    ");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_against_a_local_plan_is_named() {
    let environment = TestEnvironment::with_stacks().await;
    let spec = json!({ "varsFrom": [{ "kind": "Secret", "name": "absent" }] });
    let applied = ready("True", "TerraformAppliedSucceed", "Applied");
    environment.create_stack("lost", &spec, &applied).await;
    let (empty, module) = (
        environment.directory().join("empty"),
        environment.directory().join("module"),
    );
    for directory in [&empty, &module] {
        std::fs::create_dir(directory).unwrap();
    }
    std::fs::write(module.join("main.tf"), MODULE).unwrap();
    let (empty, module) = (empty.to_str().unwrap(), module.to_str().unwrap());
    for (arguments, code, part) in [
        (["apply", "lost"].as_slice(), 2, "next: sluice approve lost"),
        (
            ["apply", "lost", "--local", empty].as_slice(),
            2,
            "has no .tf files",
        ),
        (
            ["apply", "lost", "--local", module].as_slice(),
            1,
            "cannot read Secret absent of varsFrom",
        ),
        // The variable has no value.
        (
            ["apply", "net", "--local", module].as_slice(),
            1,
            "No value for required variable",
        ),
    ] {
        let output = environment.sluice(arguments).await;
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(part), "{part}: {text}");
    }
}

//! Plan, approval, apply, outputs, drift, destroy.

use serde_json::json;
use sluice_harness::cli;

use crate::cli_wrapper::wrap_cli;
use crate::environment::{RunSetup, TestEnvironment, assert_ending, ending, status};

const MODULE: &str = r#"
variable "greeting" { default = "hello" }
variable "secret" {
  default   = "hunter2"
  sensitive = true
}
resource "terraform_data" "one" { input = var.greeting }
resource "terraform_data" "two" { input = var.secret }
output "greeting" { value = terraform_data.one.output }
output "list" { value = ["a", 1] }
output "secret" {
  value     = var.secret
  sensitive = true
}
"#;

fn outputs() -> serde_json::Value {
    json!({ "name": "net-outputs", "outputs": ["greeting", "list:items"], "labels": { "a": "b" } })
}

/// The lifecycle of a stack; later steps use the results of earlier ones.
#[tokio::test(flavor = "multi_thread")]
async fn runs_use_only_the_cli_selected_by_the_suite() {
    let program = cli::terraform().unwrap();
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE)]);
    let tool = status(&env.run(RunSetup::plan()).await).tool.unwrap();
    assert_eq!(tool.name, program.file_name().unwrap().to_str().unwrap());
    assert_eq!(tool.version, cli::version(&program).unwrap());
}

/// OpenTofu prints the warning before the JSON, Terraform to the standard error.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_cli_configuration_does_not_affect_json_output() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("main.tf", MODULE)]);
    let bundle = json!({ "environment": { "TF_CLI_CONFIG_FILE": "/nowhere/cli.tfrc" }, "outputs": outputs(),
        "aftermath": { "inventory": true } });
    let applied = status(&env.run(RunSetup::plan_and_apply().with(bundle)).await);
    assert_eq!(applied.reason, "TerraformOutputsWritten", "{applied:?}");
    assert_eq!(applied.outputs, ["greeting", "list", "secret"]);
    assert_eq!(applied.inventory.unwrap().entries.len(), 2);
    assert_eq!(applied.changes, "+2 ~0 -0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_waits_and_exactly_it_is_applied() {
    let env = TestEnvironment::new("").await;
    env.commit(&[("main.tf", MODULE)]);
    let bundle = json!({ "variables": "{\"greeting\":\"hi\"}", "outputs": outputs() });
    let planned = env.run(RunSetup::plan().with(bundle.clone())).await;
    assert_ending(&planned, "Succeeded TerraformPlannedWithChanges");
    let result = status(&planned);
    assert_eq!(
        (result.changes.as_str(), result.has_changes),
        ("+2 ~0 -0", Some(true))
    );
    assert!(
        result.plan_id.starts_with("plan-main-0123456789-")
            && result.plan_id.ends_with(&result.effect_digest)
    );
    assert_eq!(result.change_entries.len(), 2);
    assert!(result.human_plan.contains("terraform_data.one") && result.human_plan.contains("sensitive"));
    assert!(!serde_json::to_string(&result).unwrap().contains("hunter2"));
    assert!(!result.attempted_apply && result.peak_memory_bytes.unwrap() > 0);
    assert!(!env.work().join("main.tf").exists(), "the directory is emptied");

    let applied = env.run(RunSetup::apply(&planned).with(bundle.clone())).await;
    assert_ending(&applied, "Succeeded TerraformOutputsWritten");
    assert_eq!(status(&applied).outputs, ["greeting", "list", "secret"]);
    assert!(status(&applied).attempted_apply);
    let written = env.secret("net-outputs").await.unwrap();
    // The indentation of the CLI, as tofu-controller stores it.
    assert_eq!(
        (written["greeting"].as_str(), written["items"].as_str()),
        ("hi", "[\n      \"a\",\n      1\n    ]")
    );
    assert_eq!(
        written["items__type"],
        "[\n      \"tuple\",\n      [\n        \"string\",\n        \"number\"\n      ]\n    ]"
    );
    assert!(env.secret("tfstate-default-net").await.is_some());

    let again = env.run(RunSetup::apply(&planned).with(bundle.clone())).await;
    assert_ending(&again, "Failed PlanStale");
    let clean = env.run(RunSetup::plan().with(bundle)).await;
    assert_ending(&clean, "Succeeded TerraformPlannedNoChanges");
    assert_eq!(
        (status(&clean).plan_id.as_str(), status(&clean).has_changes),
        ("", Some(false))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn auto_applies_in_one_run_and_a_destroy_leaves_nothing() {
    let env = TestEnvironment::new("auto").await;
    env.commit(&[("infra/main.tf", MODULE)]);
    let bundle = json!({ "path": "./infra", "outputs": outputs(), "workspace": "blue" });
    let applied = env.run(RunSetup::plan_and_apply().with(bundle.clone())).await;
    assert_ending(&applied, "Succeeded TerraformOutputsWritten");
    assert!(env.secret("tfstate-blue-net").await.is_some());
    let setup = RunSetup {
        destroy: true,
        ..RunSetup::plan_and_apply().with(bundle.clone())
    };
    let destroyed = env.run(setup.clone()).await;
    assert_ending(&destroyed, "Succeeded TerraformAppliedSucceed");
    assert_eq!(status(&destroyed).changes, "+0 ~0 -2");
    assert_eq!(status(&destroyed).message, "Destroy applied successfully");
    let empty = env.run(setup).await;
    assert_ending(&empty, "Succeeded TerraformPlannedNoChanges");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spec_without_approval_keeps_the_plan_pending() {
    let env = TestEnvironment::new("").await;
    env.commit(&[("main.tf", MODULE)]);
    let run = env.run(RunSetup::plan_and_apply()).await;
    assert_eq!(ending(&run), "Succeeded TerraformPlannedWithChanges");
    assert!(status(&run).message.contains("not applied") && !status(&run).attempted_apply);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_effect_has_one_digest_and_another_effect_another() {
    let env = TestEnvironment::new("").await;
    let command = |text: &str| {
        format!(
            "resource \"terraform_data\" \"x\" {{\n  provisioner \"local-exec\" {{ command = \"{text}\" }}\n}}\n"
        )
    };
    let plan = async |module: &str, bundle| {
        env.commit(&[("main.tf", module)]);
        status(&env.run(RunSetup::plan().with(bundle)).await).effect_digest
    };
    let fixed = |last: &str| json!({ "inputsDigest": "sha256:same", "lastApply": last });
    let first = plan(MODULE, fixed("net-1")).await;
    assert_eq!(first.len(), 40);
    assert_eq!(
        plan(MODULE, fixed("net-1")).await,
        first,
        "the same effect from a later plan"
    );
    assert_ne!(plan(MODULE, fixed("net-2")).await, first, "ids are single-use");
    assert_ne!(
        plan(&MODULE.replace("hunter2", "hunter3"), fixed("net-1")).await,
        first,
        "a sensitive value"
    );
    assert_ne!(plan(&MODULE.replace("hello", "bye"), fixed("net-1")).await, first);
    let hidden = plan(&command("echo one"), json!({})).await;
    assert_ne!(
        plan(&command("echo two"), json!({})).await,
        hidden,
        "the plan's JSON does not show provisioners"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn readable_plans_follow_their_setting() {
    let env = TestEnvironment::new("").await;
    env.commit(&[("main.tf", MODULE)]);
    let mut ids = Vec::new();
    for form in ["human", "json", "none"] {
        let run = env
            .run(RunSetup::plan().with(json!({ "readablePlan": form })))
            .await;
        assert_ending(&run, "Succeeded TerraformPlannedWithChanges");
        let mut names = env.stored().await;
        names.retain(|name| name.starts_with("tfplan-"));
        assert_eq!(
            names.iter().filter(|name| name.ends_with("-0")).count(),
            1,
            "only the newest plan: {names:?}"
        );
        names.retain(|name| !name.ends_with("-0"));
        ids.push(names.join(","));
    }
    assert_eq!(ids, ["tfplan-default-net", "tfplan-default-net.json", ""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn generated_files_exist_at_the_apply() {
    let env = TestEnvironment::new("").await;
    // Simulates a provider that writes files during a plan: a wrapper of the CLI creates one first.
    let cli = env.dir.path().join("cli");
    std::fs::create_dir(&cli).unwrap();
    let real = cli::terraform().unwrap();
    let script = |size: u32| {
        let text = format!(
            "#!/bin/sh\n[ \"$1\" = plan ] && head -c {size} /dev/zero > made.bin\nexec {} \"$@\"\n",
            real.display()
        );
        let path = cli.join(real.file_name().unwrap());
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    let copied = env.dir.path().join("copied");
    let module = format!(
        "resource \"terraform_data\" \"use\" {{\n  triggers_replace = timestamp()\n  provisioner \"local-exec\" {{ \
         command = \"cp made.bin {}\" }}\n}}\n",
        copied.display()
    );
    env.commit(&[("main.tf", &module)]);
    // The second exceeds the limit of a stored plan, so it is generated again before the apply.
    for size in [1000, 9_000_000] {
        script(size);
        let planned = env.run_with_path(RunSetup::plan(), &cli).await;
        assert_ending(&planned, "Succeeded TerraformPlannedWithChanges");
        let applied = env.run_with_path(RunSetup::apply(&planned), &cli).await;
        assert_ending(&applied, "Succeeded TerraformAppliedSucceed");
        assert_eq!(std::fs::metadata(&copied).unwrap().len(), u64::from(size));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn regenerated_files_with_another_effect_are_not_applied() {
    let env = TestEnvironment::new("").await;
    let marker = env.dir.path().join("planned");
    // The second plan depends on another value that is not an input, like the configuration of a provider.
    let text = format!(
        "if [ \"$1\" = plan ]; then\n  head -c 9000000 /dev/zero > made.bin\n  [ -e {marker} ] && export TF_VAR_size=two\n  \
         touch {marker}\nfi",
        marker = marker.display()
    );
    let cli = wrap_cli(&env, &text);
    let module =
        "variable \"size\" { default = \"one\" }\nresource \"terraform_data\" \"it\" { input = var.size }\n";
    env.commit(&[("main.tf", module)]);
    let planned = env.run_with_path(RunSetup::plan(), &cli).await;
    assert_eq!(ending(&planned), "Succeeded TerraformPlannedWithChanges");
    let applied = env.run_with_path(RunSetup::apply(&planned), &cli).await;
    let status = applied.status.as_ref().unwrap();
    assert!(!status.attempted_apply, "{status:?}");
    assert!(
        status.message.contains("the new plan has a different effect"),
        "{status:?}"
    );
}

/// No effect shows the values that a command reads from data sources.
#[tokio::test(flavor = "multi_thread")]
async fn regenerated_files_with_other_bytes_are_not_applied() {
    let env = TestEnvironment::new("").await;
    let marker = env.dir.path().join("planned");
    // Above the limit of a stored plan. The second time, one byte differs.
    let text = format!(
        "if [ \"$1\" = plan ]; then\n  head -c 9000000 /dev/zero > made.bin\n  [ -e {marker} ] && printf x >> made.bin \
         || printf y >> made.bin\n  touch {marker}\nfi",
        marker = marker.display()
    );
    let cli = wrap_cli(&env, &text);
    let module = "resource \"terraform_data\" \"it\" {\n  provisioner \"local-exec\" { command = \"tail -c 1 made.bin\" }\n}\n";
    env.commit(&[("main.tf", module)]);
    let planned = env.run_with_path(RunSetup::plan(), &cli).await;
    assert_eq!(ending(&planned), "Succeeded TerraformPlannedWithChanges");
    let applied = env.run_with_path(RunSetup::apply(&planned), &cli).await;
    let result = applied.status.as_ref().unwrap();
    assert!(!result.attempted_apply, "{result:?}");
    assert_eq!(ending(&applied), "Failed TFExecApplyFailed");
    assert!(
        result
            .message
            .contains("the new plan generated a file that differs")
            && result.message.contains("made.bin"),
        "{result:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_names_of_outputs_are_the_same_whether_their_values_are_read_or_not() {
    let env = TestEnvironment::new("auto").await;
    let module = r#"
        resource "terraform_data" "it" { input = "Outputs:\nfake = 1" }
        output "late" { value = terraform_data.it.output }
        output "text" { value = "a\n  b\nmore = 2\nEOT\n\nOutputs:\nfake = 3\n" }
        output "none" { value = terraform_data.it.triggers_replace }
        output "map" { value = { inner = "x = 1", "other key" = [1, 2] } }
        output "long-name_1" { value = [for n in range(3) : { n = n }] }
        output "secret" {
          value     = terraform_data.it.output
          sensitive = true
        }"#;
    env.commit(&[("main.tf", module)]);
    let applied = env.run(RunSetup::plan_and_apply()).await;
    assert_ending(&applied, "Succeeded TerraformAppliedSucceed");
    let names = status(&applied).outputs;
    assert_eq!(names, ["late", "long-name_1", "map", "secret", "text"]);
    let bundle = json!({ "outputs": { "name": "net-outputs" } });
    let read = env.run(RunSetup::plan_and_apply().with(bundle)).await;
    assert_eq!(status(&read).outputs, names, "{:?}", read.status);
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_plans_and_destroy_plans_are_not_interchangeable() {
    let env = TestEnvironment::new("").await;
    env.commit(&[("main.tf", MODULE)]);
    let planned = env.run(RunSetup::plan()).await;
    let other = RunSetup {
        destroy: true,
        ..RunSetup::apply(&planned)
    };
    let refused = env.run(other).await;
    let status = refused.status.as_ref().unwrap();
    assert!(!status.attempted_apply, "{status:?}");
    assert!(status.message.contains("differ in destroy"), "{status:?}");
}

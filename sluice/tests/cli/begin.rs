//! Commands for the first minutes.

use serde_json::{Value, json};

use crate::fixture::{TestEnvironment, stderr_of};

const URL: &str = "--url=https://git.example/infra.git";

#[tokio::test(flavor = "multi_thread")]
async fn a_source_is_created_and_then_changed() {
    let environment = TestEnvironment::start().await;
    let create = |branch: &'static str| ["create", "source", "git", "infra", URL, branch, "--wait=false"];
    let created = environment.sluice(&create("--branch=main")).await;
    assert!(created.status.success(), "{created:?}");
    assert_eq!(
        String::from_utf8(created.stderr).unwrap(),
        "gitrepository default/infra created\n"
    );
    let changed = environment.sluice(&create("--branch=next")).await;
    assert_eq!(
        String::from_utf8(changed.stderr).unwrap(),
        "gitrepository default/infra configured\n"
    );
    let text = environment
        .stdout(&["get", "sources", "infra", "-o", "json"])
        .await;
    let source: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(source["spec"]["ref"], json!({"branch": "next"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exported_manifest_is_what_would_be_created() {
    let environment = TestEnvironment::start().await;
    let arguments = [
        "create",
        "terraform",
        "app",
        "--source=GitRepository/infra",
        "--path=stacks/app",
    ];
    let exported = environment
        .stdout(&[arguments.as_slice(), &["--export"]].concat())
        .await;
    let manifest: Value = serde_yaml_ng::from_str(&exported).unwrap();
    assert_eq!(
        manifest["metadata"],
        json!({"name": "app", "namespace": "default"})
    );
    let absent = environment.sluice(&["get", "terraforms", "app"]).await;
    assert_eq!(absent.status.code(), Some(1), "--export creates nothing");
    let created = environment
        .sluice(&[arguments.as_slice(), &["--wait=false"]].concat())
        .await;
    assert!(created.status.success(), "{created:?}");
    let stack = environment.stack("app").await;
    for (field, value) in manifest["spec"].as_object().unwrap() {
        assert_eq!(&stack["spec"][field], value, "{field}");
    }
    let again = environment
        .sluice(&[arguments.as_slice(), &["--wait=false"]].concat())
        .await;
    assert_eq!(again.status.code(), Some(1), "a stack that exists is not changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_needs_no_cluster() {
    let environment = TestEnvironment::start().await;
    let missing = format!(
        "--kubeconfig={}",
        environment.directory().join("missing").display()
    );
    let arguments = [
        "create",
        "source",
        "git",
        "infra",
        URL,
        "--branch=main",
        "--export",
        missing.as_str(),
    ];
    let manifest: Value = serde_yaml_ng::from_str(&environment.stdout(&arguments).await).unwrap();
    assert_eq!(manifest["metadata"], json!({"name": "infra"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_that_is_not_ready_in_time_is_named_with_its_state() {
    let environment = TestEnvironment::start().await;
    let arguments = [
        "create",
        "terraform",
        "app",
        "--source=GitRepository/infra",
        "--timeout=1s",
    ];
    let late = environment.sluice(&arguments).await;
    assert_eq!(late.status.code(), Some(4), "{late:?}");
    let error = String::from_utf8(late.stderr).unwrap();
    let expected = "terraform default/app was not ready after 1 s: no controller has reconciled it yet\n";
    assert!(error.contains(expected), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_flag_is_reported_before_any_request() {
    let environment = TestEnvironment::start().await;
    let wrong = environment
        .sluice(&[
            "create",
            "source",
            "git",
            "infra",
            "--url=git@git.example:infra.git",
            "--branch=main",
        ])
        .await;
    assert_eq!(wrong.status.code(), Some(2));
    let error = String::from_utf8(wrong.stderr).unwrap();
    assert!(error.contains("write ssh://git@git.example/infra.git"), "{error}");
    let absent = environment.sluice(&["get", "sources", "infra"]).await;
    assert_eq!(absent.status.code(), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_starter_repository_is_written_once() {
    let environment = TestEnvironment::start().await;
    let directory = environment.directory().join("new");
    let path = directory.display().to_string();
    let written = environment
        .stdout(&["init", &path, "--url=https://git.example/a.git"])
        .await;
    for file in written.lines() {
        assert!(std::fs::metadata(file).unwrap().len() > 0, "{file}");
    }
    assert_eq!(written.lines().count(), 5, "{written}");
    let readme = directory.join("README.md");
    std::fs::write(&readme, "mine").unwrap();
    std::fs::remove_dir_all(directory.join("stacks")).unwrap();
    let again = environment.sluice(&["init", &path]).await;
    assert_eq!(again.status.code(), Some(1));
    let error = String::from_utf8(again.stderr).unwrap();
    assert!(
        error.contains("README.md") && error.contains("nothing is overwritten"),
        "{error}"
    );
    assert_eq!(std::fs::read_to_string(&readme).unwrap(), "mine");
    assert!(
        !directory.join("stacks").exists(),
        "a refused command writes nothing"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_starter_manifests_are_accepted_by_the_api() {
    let environment = TestEnvironment::start().await;
    let directory = environment.directory().join("new");
    environment
        .stdout(&["init", &directory.display().to_string()])
        .await;
    let text = std::fs::read_to_string(directory.join("sluice/hello.yaml")).unwrap();
    let stack: Value = serde_yaml_ng::from_str(&text).unwrap();
    environment
        .create_stack("hello", &stack["spec"], &json!({}))
        .await;
    assert_eq!(environment.stack("hello").await["spec"]["path"], "stacks/hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_starter_repository_has_an_address_that_the_api_accepts() {
    let environment = TestEnvironment::start().await;
    let directory = environment.directory().join("new");
    let path = directory.display().to_string();
    let arguments = ["init", path.as_str(), "--url=file:///srv/infra"];
    let (code, text) = stderr_of(&environment.kubeconfig(), &arguments).await;
    assert_eq!(code, 2, "{text}");
    assert_eq!(
        text,
        "sluice: --url \"file:///srv/infra\": the scheme is https, http or ssh\n"
    );
    assert!(!directory.exists(), "nothing is written");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_without_deployments_has_a_version_and_no_controllers() {
    let environment = TestEnvironment::start().await;
    let report: Value = serde_json::from_str(&environment.stdout(&["version", "-o", "json"]).await).unwrap();
    assert_eq!(report["kind"], "VersionReport");
    assert_eq!(report["client"], env!("CARGO_PKG_VERSION"));
    assert!(report["server"].as_str().unwrap().starts_with("v1."), "{report}");
    assert_eq!(report["components"], json!([]));
    let alone = environment.stdout(&["version", "--client"]).await;
    assert!(!alone.contains("API server"), "{alone}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_api_passes_all_checks() {
    let environment = TestEnvironment::with_stacks().await;
    let text = environment.stdout(&["check", "-o", "json"]).await;
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&report["apiVersion"], &report["kind"]),
        (&json!("cli.sluice.dev/v1alpha1"), &json!("CheckReport"))
    );
    let findings = report["items"].as_array().unwrap();
    let result = |check: &str| {
        let found = findings.iter().find(|finding| finding["check"] == check);
        found.map_or("absent", |finding| finding["result"].as_str().unwrap())
    };
    for check in [
        "Kubernetes",
        "definition of Terraform",
        "definition of TerraformRun",
        "definition of GitRepository",
        "Git hosts",
        "artifacts",
    ] {
        assert_eq!(result(check), "Passed", "{check}: {text}");
    }
    assert_eq!(
        result("controllers"),
        "Skipped",
        "there are no Deployments: {text}"
    );
    let table = environment.stdout(&["check", "--pre"]).await;
    assert!(table.contains("may install into sluice-system"), "{table}");
}

#[tokio::test(flavor = "multi_thread")]
async fn root_modules_of_a_repository_become_manifests() {
    let environment = TestEnvironment::start().await;
    let root = environment.directory().join("repository");
    for (name, text) in [
        (
            "live/app/main.tf",
            "terraform {\n  backend \"s3\" {}\n}\nmodule \"net\" {\n  source = \"../../modules/net\"\n}\n",
        ),
        ("modules/net/main.tf", "provider \"aws\" {}\n"),
    ] {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let path = root.display().to_string();
    let output = environment
        .sluice(&["adopt", &path, "--source=GitRepository/infra", "-n", "default"])
        .await;
    assert!(output.status.success(), "{output:?}");
    let stack: Value = serde_yaml_ng::from_slice(&output.stdout).unwrap();
    environment
        .create_stack("live-app", &stack["spec"], &json!({}))
        .await;
    assert_eq!(
        environment.stack("live-app").await["spec"]["backendConfig"],
        json!({"disable": true})
    );
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(
        notes.contains("./live/app calls it") && notes.contains("1 root module."),
        "{notes}"
    );
    let empty = environment
        .sluice(&["adopt", &root.join("modules").display().to_string()])
        .await;
    assert_eq!(
        empty.status.code(),
        Some(0),
        "a module with a provider and no caller is a root: {empty:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_is_described_object_by_object() {
    let environment = TestEnvironment::with_stacks().await;
    let text = environment.stdout(&["migrate"]).await;
    // The fixture has a run of `app`; the status of `net` and `db` has no revision.
    for line in [
        "default/app  has runs of Sluice already",
        "default/db  is planned",
        "default/net  is planned",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let list: Value =
        serde_json::from_str(&environment.stdout(&["migrate", "--dry-run", "-o", "json"]).await).unwrap();
    assert_eq!(list["kind"], "MigrationReport");
    let fates: Vec<_> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["fate"].clone())
        .collect();
    assert_eq!(fates, ["Planned", "Planned", "Migrated"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_is_printed_with_its_images() {
    let environment = TestEnvironment::start().await;
    let missing = format!(
        "--kubeconfig={}",
        environment.directory().join("missing").display()
    );
    let arguments = [
        "install",
        "with-flux",
        "--export",
        "--registry=r.example/sluice",
        missing.as_str(),
    ];
    let text = environment.stdout(&arguments).await;
    assert!(
        text.contains("image: r.example/sluice/tf-controller:") && !text.contains(".invalid"),
        "{text}"
    );
    assert!(
        text.contains("kind: CustomResourceDefinition"),
        "the setup comes first"
    );
    let removed = environment.stdout(&["uninstall", "with-flux", "--export"]).await;
    assert!(removed.contains("kind: Deployment"), "{removed}");
    assert!(!removed.contains("kind: CustomResourceDefinition"), "{removed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_needs_images_and_the_namespace_of_its_overlay() {
    let environment = TestEnvironment::start().await;
    for arguments in [
        ["install"].as_slice(),
        &["install", "--registry=r.example", "-n", "elsewhere"],
        &["uninstall", "-n", "elsewhere", "--yes"],
    ] {
        let output = environment.sluice(arguments).await;
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_uninstalled_while_a_run_is_active() {
    let environment = TestEnvironment::with_stacks().await;
    let idle = environment.sluice(&["uninstall"]).await;
    let text = String::from_utf8(idle.stderr).unwrap();
    assert!(
        text.contains("Add --yes"),
        "no run is active, so the user is asked: {text}"
    );
    let name = environment.stdout(&["get", "runs", "-o", "name"]).await;
    let name = name.trim().rsplit('/').next().unwrap().to_owned();
    environment.set_phase(&name, "Applying").await;
    let refused = environment.sluice(&["uninstall", "--yes"]).await;
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(
        text.contains("1 active run:") && text.contains("cannot write their state"),
        "{text}"
    );
}

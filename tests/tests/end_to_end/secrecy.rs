//! Secret values, one for each input of `sluice up` as users start it, must not occur in any output: log, progress, logs of runs,
//! objects except Secret data, and files. Each search must find a public marker, which proves that it searched the right data.

use std::path::Path;

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_harness::directory::TestDirectory;
use sluice_harness::git::{GitServer, Repository};
use sluice_harness::leaks::{FILE_NAME, LeakSearch};
use sluice_harness::trial::TrialProvider;
use sluice_tests::program::{Program, Setup};
use sluice_tests::scenario::{NAMESPACE, Scenario, wait_for};

use crate::environment::ready;
use crate::with_timeout;

/// One value per input. None is part of another text of the test.
const PASSWORD: &str = "canary-password-of-git-41d7";
const VARIABLE: &str = "canary-variable-5f1d";
const SECRET_VARIABLE: &str = "canary-secret-variable-9a2c";
const TOKEN: &str = "canary-token-77be";
const PROVIDER: &str = "canary-of-the-provider-c0de";
const CANARIES: [&str; 5] = [PASSWORD, VARIABLE, SECRET_VARIABLE, TOKEN, PROVIDER];
/// The public name of source and stack, which each search must find.
const MARKER: &str = "seen-by-anybody-4e19";

const LOG: &str = "the log";
const PROGRESS: &str = "the progress";
const RUNS: &str = "a runner's log";
const FILES: &str = "a file";
/// Where the marker must be found.
const REQUIRED: [&str; 8] = [
    LOG,
    PROGRESS,
    FILE_NAME,
    FILES,
    "Event",
    "GitRepository",
    "Terraform",
    "TerraformRun",
];

fn module(trial: &TrialProvider) -> String {
    trial.provider_block_with_token("var.token")
        + r#"
variable "token" { sensitive = true }
variable "hidden" { sensitive = true }
variable "given" { sensitive = true }
resource "trial_thing" "it" {
  name    = "seen-by-anybody-4e19"
  content = var.given
}
output "out" {
  value     = "${trial_thing.it.secret} ${var.hidden}"
  sensitive = true
}
"#
}

/// Returns the kind of a file in the state directory; `None` for the store of the objects with the Secrets, for the credentials
/// themselves, and for unpacked providers.
fn file_kind(path: &Path) -> Option<&'static str> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_in = |folder: &str| path.components().any(|part| part.as_os_str() == folder);
    if name.starts_with("objects.redb") || name == "artifacts.token" || is_in("api") || is_in("providers") {
        return None;
    }
    let is_log = path.extension().is_some_and(|extension| extension == "log");
    Some(if is_log { RUNS } else { FILES })
}

/// Fails if a secret is found, or if a search did not find the marker.
async fn assert_no_leak(program: &Program, setup: &Setup, step: &str) {
    let state = setup.state_folder();
    let read = |file: &str| std::fs::read_to_string(state.join(file)).unwrap();
    let (api, artifacts) = (read("api/token"), read("artifacts.token"));
    let mut search = LeakSearch::new(CANARIES.to_vec(), MARKER);
    // Readers of these kinds may know the URLs of artifacts, which contain a token.
    let kinds = [
        ("source.toolkit.fluxcd.io", "v1", "GitRepository"),
        ("infra.sluice.dev", "v1alpha1", "TerraformRun"),
    ];
    let client = program.client();
    search.search_objects(&client, NAMESPACE, &kinds).await.unwrap();
    search.values.extend([api.trim(), artifacts.trim()]);
    let kinds = [
        ("", "v1", "Event"),
        ("", "v1", "ConfigMap"),
        ("", "v1", "Secret"),
        ("coordination.k8s.io", "v1", "Lease"),
        ("infra.contrib.fluxcd.io", "v1alpha2", "Terraform"),
    ];
    search.search_objects(&client, NAMESPACE, &kinds).await.unwrap();
    search.search_files(&state, &file_kind).unwrap();
    let output = setup.log();
    let (log, progress): (Vec<_>, Vec<_>) = output.lines().partition(|line| line.starts_with('{'));
    search.search(LOG, LOG, log.join("\n").as_bytes());
    search.search(PROGRESS, PROGRESS, progress.join("\n").as_bytes());
    search.assert_clean(step, &REQUIRED);
}

async fn create(program: &Program, group: &str, version: &str, kind: &str, body: Value) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = Api::namespaced_with(program.client(), NAMESPACE, &resource);
    let mut object = body;
    object["apiVersion"] = resource.api_version.clone().into();
    object["kind"] = kind.into();
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

async fn create_objects(program: &Program, url: &str, trial: &TrialProvider) {
    for (name, values) in [
        ("git", json!({ "username": "reader", "password": PASSWORD })),
        ("given", json!({ "given": SECRET_VARIABLE, "token": TOKEN })),
        ("cli", json!({ "own.tfrc": trial.cli_config_text() })),
    ] {
        let secret = json!({ "metadata": { "name": name }, "stringData": values });
        create(program, "", "v1", "Secret", secret).await;
    }
    let source = json!({ "metadata": { "name": MARKER },
        "spec": { "url": url, "interval": "2s", "ref": { "branch": "main" }, "secretRef": { "name": "git" } } });
    create(program, "source.toolkit.fluxcd.io", "v1", "GitRepository", source).await;
    let stack = json!({ "metadata": { "name": MARKER }, "spec": { "approvePlan": "", "interval": "1h", "retryInterval": "1h",
        "sourceRef": { "kind": "GitRepository", "name": MARKER }, "writeOutputsToSecret": { "name": "out" },
        "storeReadablePlan": "human", "cliConfigSecretRef": { "name": "cli" },
        "vars": [{ "name": "hidden", "value": VARIABLE }], "varsFrom": [{ "kind": "Secret", "name": "given" }] } });
    create(program, "infra.contrib.fluxcd.io", "v1alpha2", "Terraform", stack).await;
}

#[test]
fn no_secret_value_leaves_sluice_up() {
    with_timeout(async {
        let trial = TrialProvider::create().unwrap();
        trial.set_behaviour(&json!({ "secret": PROVIDER })).unwrap();
        let repository = Repository::create().unwrap();
        repository
            .commit_files(&[("main.tf", module(&trial))], "A stack")
            .unwrap();
        let server = GitServer::start().await.unwrap();
        server.require_basic("reader", PASSWORD);
        let url = server.serve("shop", &repository);
        let folder = TestDirectory::create().unwrap();
        let setup = Setup::new(folder.path()).with_progress();
        setup.write(&[]).unwrap();
        let program = Program::start(setup.clone()).await.unwrap();
        create_objects(&program, &url, &trial).await;
        let stacks = Scenario::new(program.client()).stacks();
        let wait_for_ready = async |text: &'static str| {
            let found = wait_for(&stacks, MARKER, text, |stack| ready(stack).contains(text)).await;
            found.unwrap_or_else(|error| panic!("{error}\n{}", program.log_tail()))
        };
        let edit = async |spec: Value| {
            let patch = Patch::Merge(json!({ "spec": spec }));
            stacks
                .patch(MARKER, &PatchParams::default(), &patch)
                .await
                .unwrap();
        };
        let planned = wait_for_ready("TerraformPlannedWithChanges").await;
        assert_no_leak(&program, &setup, "planned").await;

        // The provider prints its token in an error.
        let with_failure =
            json!({ "secret": PROVIDER, "steps": { "create": { "fail": "bad token {token}" } } });
        trial.set_behaviour(&with_failure).unwrap();
        edit(json!({ "approvePlan": planned["status"]["plan"]["pending"] })).await;
        let failed = wait_for_ready("TFExecApplyFailed").await;
        assert!(
            ready(&failed).contains("bad token (sensitive)"),
            "{}",
            ready(&failed)
        );
        assert_no_leak(&program, &setup, "failed").await;

        trial.set_behaviour(&json!({ "secret": PROVIDER })).unwrap();
        edit(json!({ "approvePlan": "auto" })).await;
        wait_for_ready("TerraformOutputsWritten").await;
        assert_no_leak(&program, &setup, "applied").await;
        program.end().await.unwrap();
    });
}

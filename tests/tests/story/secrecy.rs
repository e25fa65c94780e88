//! Values that nobody may read, planted in every way into `sluice up` as users start it, and looked for in all that it says and
//! leaves: its log, its story, the logs of runs, objects without what Secrets hold, and its files. Each search must find a text that may
//! be seen, or it looked at nothing.

use std::{collections::BTreeSet, path::Path};

use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use sluice_harness::{
    canary,
    git::{GitServer, Repository},
    trial::Trial,
};
use sluice_tests::{
    program::{Program, Setup},
    story::{NAMESPACE, Story, until},
};

use crate::{within_deadline, world::ready};

/// A value for each way in. None is part of another text of the test.
const PASSWORD: &str = "canary-password-of-git-41d7";
const VARIABLE: &str = "canary-variable-5f1d";
const SECRET_VARIABLE: &str = "canary-secret-variable-9a2c";
const TOKEN: &str = "canary-token-77be";
const PROVIDER: &str = "canary-of-the-provider-c0de";
const CANARIES: [&str; 5] = [PASSWORD, VARIABLE, SECRET_VARIABLE, TOKEN, PROVIDER];
/// The name of source and stack: what anybody may see, and what each search must find.
const SEEN: &str = "seen-by-anybody-4e19";

const LOG: &str = "the log";
const STORY: &str = "the story";
const RUNS: &str = "a runner's log";
const FILES: &str = "a file";
/// Where the text that may be seen is.
const ALWAYS: [&str; 8] = [
    LOG,
    STORY,
    RUNS,
    FILES,
    "Event",
    "GitRepository",
    "Terraform",
    "TerraformRun",
];

fn module(trial: &Trial) -> String {
    trial.module_head_with("var.token")
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

struct Search {
    /// What was found, and where.
    found: Vec<String>,
    /// The kinds of places where the text that may be seen was found.
    seen: BTreeSet<&'static str>,
}

impl Search {
    fn look(&mut self, kind: &'static str, place: &str, bytes: &[u8], hidden: &[&str]) {
        let wanted: Vec<&str> = hidden.iter().copied().chain([SEEN]).collect();
        for text in canary::found(bytes, &wanted) {
            if text == SEEN {
                self.seen.insert(kind);
            } else {
                self.found.push(format!("{text} in {place}"));
            }
        }
    }

    /// Every file but that of the objects, which holds the Secrets, those of the credentials themselves, and providers as they came.
    fn look_at_files(&mut self, folder: &Path, hidden: &[&str]) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_symlink() || name.starts_with("objects.redb") || name == "artifacts.token" {
                continue;
            }
            if path.is_dir() && !matches!(name.as_str(), "api" | "providers") {
                self.look_at_files(&path, hidden);
            } else if path.is_file() {
                let is_log = path.extension().is_some_and(|extension| extension == "log");
                // Names are searched as well. The log of a run is named like the run, and says little where nothing goes wrong.
                let content = std::fs::read(&path).unwrap_or_default();
                let bytes = [name.as_bytes(), b"\n", &content].concat();
                let kind = if is_log { RUNS } else { FILES };
                self.look(kind, &path.display().to_string(), &bytes, hidden);
            }
        }
    }

    /// Every object, without what Secrets are there to hold and without what the user wrote.
    async fn look_at_objects(&mut self, program: &Program, credentials: &[&str]) {
        for (group, version, kind) in [
            ("", "v1", "Event"),
            ("", "v1", "ConfigMap"),
            ("", "v1", "Secret"),
            ("coordination.k8s.io", "v1", "Lease"),
            ("source.toolkit.fluxcd.io", "v1", "GitRepository"),
            ("infra.contrib.fluxcd.io", "v1alpha2", "Terraform"),
            ("infra.sluice.dev", "v1alpha1", "TerraformRun"),
        ] {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let api: Api<DynamicObject> = Api::namespaced_with(program.client(), NAMESPACE, &resource);
            for object in api.list(&ListParams::default()).await.unwrap().items {
                let place = format!("{kind} {}", object.name_any());
                let mut whole = serde_json::to_value(&object).unwrap();
                if let Some(data) = whole["data"].as_object_mut().filter(|_| kind == "Secret") {
                    data.values_mut().for_each(|value| *value = Value::Null);
                }
                if kind == "Terraform" {
                    whole["spec"] = Value::Null;
                }
                // The address of an artifact is for those who may read these.
                let told = matches!(kind, "GitRepository" | "TerraformRun");
                let more = if told { &[][..] } else { credentials };
                let hidden = [&CANARIES[..], more].concat();
                self.look(kind, &place, whole.to_string().as_bytes(), &hidden);
            }
        }
    }
}

/// Fails where something is found, and where the search found nothing of what may be seen.
async fn nothing_found(program: &Program, setup: &Setup, when: &str) {
    let state = setup.state_folder();
    let read = |file: &str| {
        std::fs::read_to_string(state.join(file))
            .unwrap()
            .trim()
            .to_owned()
    };
    let (api, artifacts) = (read("api/token"), read("artifacts.token"));
    let credentials = [api.as_str(), artifacts.as_str()];
    let hidden = [&CANARIES[..], &credentials].concat();
    let mut search = Search {
        found: Vec::new(),
        seen: BTreeSet::new(),
    };
    search.look_at_objects(program, &credentials).await;
    search.look_at_files(&state, &hidden);
    let said = setup.log();
    let (log, story): (Vec<_>, Vec<_>) = said.lines().partition(|line| line.starts_with('{'));
    search.look(LOG, LOG, log.join("\n").as_bytes(), &hidden);
    search.look(STORY, STORY, story.join("\n").as_bytes(), &hidden);
    assert!(search.found.is_empty(), "{when}: {:#?}", search.found);
    let blind: Vec<_> = ALWAYS
        .iter()
        .filter(|kind| !search.seen.contains(*kind))
        .collect();
    assert!(
        blind.is_empty(),
        "{when}: {SEEN} was not found in {blind:?}, so the search looked at nothing there\n{said}"
    );
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

async fn make(program: &Program, url: &str, trial: &Trial) {
    for (name, values) in [
        ("git", json!({ "username": "reader", "password": PASSWORD })),
        ("given", json!({ "given": SECRET_VARIABLE, "token": TOKEN })),
        ("cli", json!({ "own.tfrc": trial.cli_config_text() })),
    ] {
        let secret = json!({ "metadata": { "name": name }, "stringData": values });
        create(program, "", "v1", "Secret", secret).await;
    }
    let source = json!({ "metadata": { "name": SEEN },
        "spec": { "url": url, "interval": "2s", "ref": { "branch": "main" }, "secretRef": { "name": "git" } } });
    create(program, "source.toolkit.fluxcd.io", "v1", "GitRepository", source).await;
    let stack = json!({ "metadata": { "name": SEEN }, "spec": { "approvePlan": "", "interval": "1h", "retryInterval": "1h",
        "sourceRef": { "kind": "GitRepository", "name": SEEN }, "writeOutputsToSecret": { "name": "out" },
        "storeReadablePlan": "human", "cliConfigSecretRef": { "name": "cli" },
        "vars": [{ "name": "hidden", "value": VARIABLE }], "varsFrom": [{ "kind": "Secret", "name": "given" }] } });
    create(program, "infra.contrib.fluxcd.io", "v1alpha2", "Terraform", stack).await;
}

#[test]
fn no_value_that_nobody_may_read_leaves_sluice_up() {
    within_deadline(async {
        let trial = Trial::create().unwrap();
        trial.order(&json!({ "secret": PROVIDER })).unwrap();
        let repository = Repository::create().unwrap();
        repository
            .commit_files(&[("main.tf", module(&trial))], "A stack")
            .unwrap();
        let server = GitServer::start().await.unwrap();
        server.require_basic("reader", PASSWORD);
        let url = server.serve("shop", &repository);
        let folder = tempfile::tempdir().unwrap();
        let setup = Setup::new(folder.path()).telling();
        setup.write(&[]).unwrap();
        let program = Program::start(setup.clone()).await.unwrap();
        make(&program, &url, &trial).await;
        let stacks = Story::new(program.client()).stacks();
        let shows = async |text: &'static str| {
            let seen = until(&stacks, SEEN, text, |stack| ready(stack).contains(text)).await;
            seen.unwrap_or_else(|error| panic!("{error}\n{}", program.log_tail()))
        };
        let edit = async |spec: Value| {
            let patch = Patch::Merge(json!({ "spec": spec }));
            stacks.patch(SEEN, &PatchParams::default(), &patch).await.unwrap();
        };
        let planned = shows("TerraformPlannedWithChanges").await;
        nothing_found(&program, &setup, "planned").await;

        // A provider that tells in its error what it was given.
        let careless = json!({ "secret": PROVIDER, "steps": { "create": { "fail": "bad token {token}" } } });
        trial.order(&careless).unwrap();
        edit(json!({ "approvePlan": planned["status"]["plan"]["pending"] })).await;
        let failed = shows("TFExecApplyFailed").await;
        assert!(
            ready(&failed).contains("bad token (sensitive)"),
            "{}",
            ready(&failed)
        );
        nothing_found(&program, &setup, "failed").await;

        trial.order(&json!({ "secret": PROVIDER })).unwrap();
        edit(json!({ "approvePlan": "auto" })).await;
        shows("TerraformOutputsWritten").await;
        nothing_found(&program, &setup, "applied").await;
        program.end().await.unwrap();
    });
}

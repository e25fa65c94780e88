//! `sluice up`: the scenario with `--state`, bad manifests, and access to its API and state.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use sluice_harness::directory::TestDirectory;
use sluice_tests::program::{Program, Setup};
use sluice_tests::scenario::{NAME, Scenario, manifests, wait_for};

use crate::environment::{Origin, remaining_processes};
use crate::walkthrough::{self, ConditionTrace};
use crate::with_timeout;

const BAD: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: good-before}
---
apiVersion: [
---
apiVersion: v1
metadata: {name: no-kind}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: bad-interval}
spec: {url: 'https://example.com/shop', interval: soon}
---
apiVersion: example.com/v1
kind: Unheard
metadata: {name: of}
---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: misspelt}
spec: {interval: 1m, sourceRef: {kind: GitRepository, name: shop}, approvePlan: auto, autoApply: {holds: [delete]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: good-after}
";

#[test]
fn the_scenario_on_sluice_up() {
    with_timeout(async {
        let origin = Origin::start().await;
        let folder = TestDirectory::create().unwrap();
        let setup = Setup::new(folder.path());
        setup.write(&[]).unwrap();
        let program = Program::start(setup.clone()).await.unwrap();
        let client = program.client();
        let trace = ConditionTrace::follow(client.clone());
        let scenario = Scenario::new(client.clone());
        scenario.create(&manifests(&origin.url)).await.unwrap();

        let result = walkthrough::run(&scenario, &origin.repository).await;
        let result = result.unwrap_or_else(|error| panic!("{error}\n{}", program.log_tail()));
        walkthrough::assert_applied_once(&scenario).await.unwrap();
        walkthrough::assert_field_managers(&scenario).await.unwrap();
        let text = walkthrough::wait_for_event(&client, "NoRelevantChange")
            .await
            .unwrap();
        assert!(text.starts_with(&result.revisions[2]), "{text}");
        assert_eq!(refusals(folder.path()), Vec::<String>::new());
        let deleted = walkthrough::delete_all(&scenario).await;
        deleted.unwrap_or_else(|error| panic!("{error}\n{}", program.log_tail()));
        trace.check(&walkthrough::expected_conditions(&result));

        program.end().await.unwrap();
        assert_eq!(remaining_processes(folder.path()), Vec::<String>::new());
    });
}

/// Returns the lines of run logs that report missing permissions.
fn refusals(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder.join("state/runs/runs")).unwrap();
    let logs: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "log"))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    assert!(logs.iter().any(|log| !log.is_empty()), "runs have logs");
    let lines = logs.iter().flat_map(|log| log.lines());
    lines
        .filter(|line| line.contains("forbidden"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn bad_manifests_are_reported_and_the_others_applied() {
    with_timeout(async {
        let origin = Origin::start().await;
        let folder = TestDirectory::create().unwrap();
        let setup = Setup::new(folder.path()).without_state();
        let [source, stack] = manifests(&origin.url);
        setup
            .write(&[("source.yaml", source), ("stack.yaml", stack)])
            .unwrap();
        std::fs::write(setup.manifests().join("bad.yaml"), BAD).unwrap();
        let program = Program::start(setup.clone()).await.unwrap();
        // The last file in name order has a plan: all others have been applied.
        let scenario = Scenario::new(program.client());
        scenario.wait_for_plan(None).await.unwrap();
        let log = setup.log();
        let expected = [
            "Bad manifest: bad.yaml, document 2: invalid YAML",
            "Bad manifest: bad.yaml, document 3: kind: ",
            "Bad manifest: bad.yaml, document 4: ",
            "spec.interval",
            "Bad manifest: bad.yaml, document 5: kind: ",
            "Bad manifest: bad.yaml, document 6: ",
            "unknown field \"spec.autoApply.holds\"",
            "Warning: without --state",
        ];
        for part in expected {
            assert!(log.contains(part), "{part:?} is missing in\n{log}");
        }
        assert_eq!(log.matches("Bad manifest:").count(), 5, "{log}");
        let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
            kube::Api::namespaced(program.client(), "default");
        for name in ["good-before", "good-after"] {
            maps.get(name).await.unwrap();
        }
        assert!(scenario.stacks().get_opt("misspelt").await.unwrap().is_none());
        program.end().await.unwrap();
        assert_eq!(remaining_processes(folder.path()), Vec::<String>::new());
    });
}

#[test]
fn a_repo_is_served_after_a_restart_without_its_manifest() {
    with_timeout(async {
        let folder = TestDirectory::create().unwrap();
        let setup = Setup::new(folder.path());
        let repo = json!({ "apiVersion": "terraform.gitops.k8s.io/v1alpha1", "kind": "Repo", "metadata": { "name": "app" },
            "spec": { "url": "http://127.0.0.1:1/nothing.git" } });
        setup.write(&[("repo.yaml", repo)]).unwrap();
        let program = Program::start(setup.clone()).await.unwrap();
        let sources = |program: &Program| Scenario::new(program.client()).sources();
        wait_for(&sources(&program), "app", "the source", |_| true)
            .await
            .unwrap();
        program.end().await.unwrap();

        std::fs::remove_file(setup.manifests().join("repo.yaml")).unwrap();
        let program = Program::start(setup.clone()).await.unwrap();
        let kind = GroupVersionKind::gvk("terraform.gitops.k8s.io", "v1alpha1", "Repo");
        let repos: Api<DynamicObject> =
            Api::default_namespaced_with(program.client(), &ApiResource::from_gvk(&kind));
        let edit: Patch<Value> = Patch::Merge(json!({ "spec": { "branch": "main" } }));
        repos.patch("app", &PatchParams::default(), &edit).await.unwrap();
        let is_edited = |source: &Value| source["spec"]["ref"]["branch"] == "main";
        wait_for(&sources(&program), "app", "the edit", is_edited)
            .await
            .unwrap_or_else(|error| panic!("{error}\n{}", program.log_tail()));
        program.end().await.unwrap();
    });
}

#[test]
fn only_its_user_may_use_the_api_of_sluice_up_and_one_program_its_state() {
    with_timeout(async {
        let folder = TestDirectory::create().unwrap();
        let setup = Setup::new(folder.path());
        let [source, _] = manifests("http://127.0.0.1:1/nothing.git");
        setup.write(&[("source.yaml", source)]).unwrap();
        let program = Program::start(setup.clone()).await.unwrap();
        let scenario = Scenario::new(program.client());
        wait_for(&scenario.sources(), NAME, "the source", |_| true)
            .await
            .unwrap();
        assert!(
            !setup.log().contains("Warning: without --state"),
            "{}",
            setup.log()
        );

        let mode = std::fs::metadata(program.kubeconfig())
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = Kubeconfig::read_from(program.kubeconfig()).unwrap();
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(read, &options).await.unwrap();
        config.auth_info = AuthInfo::default();
        let stranger = Client::try_from(config).unwrap();
        let refused = stranger.list_api_groups().await.unwrap_err();
        assert!(
            matches!(&refused, kube::Error::Api(status) if status.code == 401),
            "{refused:?}"
        );

        let mut second = setup.spawn().unwrap();
        let status = tokio::time::timeout(Duration::from_secs(30), second.wait()).await;
        assert!(!status.unwrap().unwrap().success());
        assert!(
            setup.log().contains("is in use by another sluice up"),
            "{}",
            setup.log()
        );
        // The first program is not affected.
        wait_for(&scenario.sources(), NAME, "the source", |_| true)
            .await
            .unwrap();
        program.end().await.unwrap();
        assert_eq!(remaining_processes(folder.path()), Vec::<String>::new());
    });
}

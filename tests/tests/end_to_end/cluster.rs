//! The scenario on a real etcd and kube-apiserver with RBAC, also with an outage of the API server.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use sluice_tests::scenario::{Commit, manifests, manifests_with_fast_retry};

use crate::audit::assert_only_definitions_are_refused;
use crate::environment::{
    CONTROLLERS, Origin, TestEnvironment, assert_no_refusal, config, kubectl, remaining_processes,
};
use crate::walkthrough::{self, ConditionTrace};
use crate::{with_timeout, without_cluster};

#[test]
fn the_scenario_on_a_real_api_server() {
    if without_cluster() {
        return;
    }
    with_timeout(async {
        let origin = Origin::start().await;
        let mut env = TestEnvironment::start().await;
        // Before the controllers start: the samples refer to a repository on the internet.
        for verb in ["apply", "delete"] {
            kubectl(env.folder.path(), &[verb, "-k", &config("samples")]).await;
        }
        env.elect_leaders();
        env.start_controllers();
        let client = env.plane.client().await.unwrap();
        let trace = ConditionTrace::follow(client.clone());
        let scenario = env.scenario().await;
        scenario.create(&manifests(&origin.url)).await.unwrap();

        let result = walkthrough::run(&scenario, &origin.repository).await;
        let result = result.unwrap_or_else(|error| panic!("{error}\n{}", env.logs()));
        walkthrough::assert_applied_once(&scenario).await.unwrap();
        walkthrough::assert_field_managers(&scenario).await.unwrap();
        let text = walkthrough::wait_for_event(&client, "NoRelevantChange")
            .await
            .unwrap();
        assert!(text.starts_with(&result.revisions[2]), "{text}");
        assert_no_refusal_of_runs(&env);
        let deleted = walkthrough::delete_all(&scenario).await;
        deleted.unwrap_or_else(|error| panic!("{error}\n{}", env.logs()));
        trace.check(&walkthrough::expected_conditions(&result));

        for controller in [&mut env.source_controller, &mut env.tf_controller] {
            controller.end_without_refusal().await;
        }
        // Both were leaders and released their Leases.
        let leases: Api<Lease> = Api::namespaced(client, CONTROLLERS);
        for name in ["source-controller-leader-election", "1953de50.contrib.fluxcd.io"] {
            let spec = leases.get(name).await.unwrap().spec.unwrap();
            assert_eq!(
                (spec.holder_identity.as_deref(), spec.lease_duration_seconds),
                (Some(""), Some(1)),
                "{name}"
            );
        }
        assert_eq!(
            remaining_processes(&env.folder.path().join("work")),
            Vec::<String>::new()
        );
    });
}

/// Asserts that the API server refused no request of the runs that still have a log.
fn assert_no_refusal_of_runs(env: &TestEnvironment) {
    let files = std::fs::read_dir(env.folder.path().join("work/runs")).unwrap();
    let logs = files
        .flatten()
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    let mut count = 0;
    for log in logs {
        assert_no_refusal(&std::fs::read_to_string(log).unwrap());
        count += 1;
    }
    assert!(count > 0, "a run has a log");
}

/// Without any cluster-wide permission, so that the definitions are checked in the `OpenAPI` document.
#[test]
fn the_scenario_with_the_permissions_of_one_namespace() {
    if without_cluster() {
        return;
    }
    with_timeout(async {
        let origin = Origin::start().await;
        let mut env = TestEnvironment::start_in_single_namespace().await;
        env.elect_leaders();
        env.start_controllers();
        let scenario = env.scenario().await;
        scenario.create(&manifests(&origin.url)).await.unwrap();
        let result = walkthrough::run(&scenario, &origin.repository).await;
        result.unwrap_or_else(|error| panic!("{error}\n{}", env.logs()));
        walkthrough::assert_applied_once(&scenario).await.unwrap();
        assert_no_refusal_of_runs(&env);
        let deleted = walkthrough::delete_all(&scenario).await;
        deleted.unwrap_or_else(|error| panic!("{error}\n{}", env.logs()));
        assert_only_definitions_are_refused(&env);
        for controller in [&mut env.source_controller, &mut env.tf_controller] {
            controller.end_without_refusal().await;
        }
    });
}

/// Duration of the outage.
const OUTAGE: Duration = Duration::from_secs(30);

#[test]
fn an_outage_of_the_api_server_only_delays_the_scenario() {
    if without_cluster() {
        return;
    }
    with_timeout(async {
        let origin = Origin::start().await;
        let mut env = TestEnvironment::start().await;
        env.start_controllers();
        let scenario = env.scenario().await;
        scenario
            .create(&manifests_with_fast_retry(&origin.url))
            .await
            .unwrap();
        let one = scenario.wait_for_plan(None).await.unwrap();

        // Half of the time it does not respond, half of the time its port is closed; a commit is pushed meanwhile.
        scenario.approve(&one).await.unwrap();
        env.plane.pause_api().unwrap();
        let second = Commit::NewVersion.create(&origin.repository).unwrap();
        tokio::time::sleep(OUTAGE / 2).await;
        env.plane.kill_api();
        tokio::time::sleep(OUTAGE / 2).await;
        env.plane.start_api().await.unwrap();

        let revision = format!("main@sha1:{second}");
        let applied = scenario.approve_until_applied(&revision).await;
        applied.unwrap_or_else(|error| panic!("{error}\n{}", env.logs()));
        walkthrough::assert_outputs(&scenario, "1.1.0").await.unwrap();
        walkthrough::assert_applied_once(&scenario).await.unwrap();
        let deleted = walkthrough::delete_all(&scenario).await;
        deleted.unwrap_or_else(|error| panic!("{error}\n{}", env.logs()));
        for controller in [&mut env.source_controller, &mut env.tf_controller] {
            controller.end().await.unwrap();
        }
    });
}

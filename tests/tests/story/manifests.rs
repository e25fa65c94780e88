//! `sluice up` on manifests with faults, and who may use what it serves.

use crate::{
    within_deadline,
    world::{Origin, leftovers},
};
use kube::{
    Client, Config,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use sluice_tests::{
    program::{Program, Setup},
    story::{NAME, Story, manifests, until},
};
use std::{os::unix::fs::PermissionsExt, time::Duration};

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
fn bad_manifests_are_named_and_the_others_go_on() {
    within_deadline(async {
        let origin = Origin::start().await;
        let folder = tempfile::tempdir().unwrap();
        let setup = Setup::new(folder.path()).forgetful();
        let [source, stack] = manifests(&origin.url);
        setup
            .write(&[("source.yaml", source), ("stack.yaml", stack)])
            .unwrap();
        std::fs::write(setup.manifests().join("bad.yaml"), BAD).unwrap();
        let program = Program::start(setup.clone()).await.unwrap();
        // The last file in the order of names got as far as its plan: all the others were judged before.
        let story = Story::new(program.client());
        story.pending_plan(None).await.unwrap();
        let log = setup.log();
        let expected = [
            "Bad manifest: bad.yaml, document 2: is no YAML",
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
        assert!(story.stacks().get_opt("misspelt").await.unwrap().is_none());
        program.end().await.unwrap();
        assert_eq!(leftovers(folder.path()), Vec::<String>::new());
    });
}

#[test]
fn what_sluice_up_serves_is_for_its_user_and_its_state_for_one_program() {
    within_deadline(async {
        let folder = tempfile::tempdir().unwrap();
        let setup = Setup::new(folder.path());
        let [source, _] = manifests("http://127.0.0.1:1/nothing.git");
        setup.write(&[("source.yaml", source)]).unwrap();
        let program = Program::start(setup.clone()).await.unwrap();
        let story = Story::new(program.client());
        until(&story.sources(), NAME, "it is there", |_| true)
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
        // The first one goes on.
        until(&story.sources(), NAME, "it is there", |_| true)
            .await
            .unwrap();
        program.end().await.unwrap();
        assert_eq!(leftovers(folder.path()), Vec::<String>::new());
    });
}

//! The story on a real etcd and kube-apiserver, RBAC on.

use crate::{
    telling::{self, Trace},
    within_deadline, without_cluster,
    world::{Origin, World, config, kubectl, leftovers},
};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use sluice_tests::story::manifests;

#[test]
fn the_story_on_a_real_api_server() {
    if without_cluster() {
        return;
    }
    within_deadline(async {
        let origin = Origin::start().await;
        let mut world = World::start().await;
        // Before the controllers run: the samples name a repository on the internet.
        for verb in ["apply", "delete"] {
            kubectl(world.folder.path(), &[verb, "-k", &config("samples")]).await;
        }
        world.elect_leaders();
        world.start_controllers();
        let client = world.plane.client().await.unwrap();
        let trace = Trace::follow(client.clone());
        let story = world.story().await;
        story.make(&manifests(&origin.url)).await.unwrap();

        let told = telling::tell(&story, &origin.repository).await;
        let told = told.unwrap_or_else(|error| panic!("{error}\n{}", world.logs()));
        telling::assert_applied_once(&story).await.unwrap();
        let text = telling::event(&client, "NoRelevantChange").await.unwrap();
        assert!(text.starts_with(&told.revisions[2]), "{text}");
        let ended = telling::end(&story).await;
        ended.unwrap_or_else(|error| panic!("{error}\n{}", world.logs()));
        trace.check(&telling::golden(&told));

        for controller in [&mut world.sources, &mut world.stacks] {
            controller.end().await.unwrap();
            let log = controller.log();
            let refused: Vec<_> = log.lines().filter(|line| line.contains("forbidden")).collect();
            assert!(
                refused.is_empty(),
                "the roles in config are too narrow: {refused:#?}"
            );
        }
        // Both led, and gave their Leases up.
        let leases: Api<Lease> = Api::namespaced(client, "flux-system");
        for name in ["source-controller-leader-election", "1953de50.contrib.fluxcd.io"] {
            let spec = leases.get(name).await.unwrap().spec.unwrap();
            assert_eq!(
                (spec.holder_identity.as_deref(), spec.lease_duration_seconds),
                (Some(""), Some(1)),
                "{name}"
            );
        }
        assert_eq!(leftovers(&world.folder.path().join("work")), Vec::<String>::new());
    });
}

//! The images of the controllers and of runs, packed from the programs of this build, as `make images` packs those of a release.

use std::sync::OnceLock;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{LogParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::json;
use sluice_harness::git::{GitServer, Repository};
use sluice_harness::node::Node;
use sluice_harness::skip::without_cluster;
use sluice_harness::{cli, gobuild};
use sluice_images::pack::{Options, cli_program, pack};
use sluice_tests::binary;
use sluice_tests::scenario::{Commit, TIMEOUT};

/// The image of runs under its name in `config`.
pub(crate) const RUNNER: &str = "sluice.invalid/tf-runner:0.1.0";

/// The digests of the first images that a test has packed.
static FIRST_DIGESTS: OnceLock<Vec<String>> = OnceLock::new();

/// Imports the images under the names of `config`. They have the newest packages of Debian, not the locked ones: Debian's archive
/// serves no others. The same files give the same images each time.
pub(crate) async fn import(node: &Node) {
    // Removed at the end: the archives have more than a gigabyte, and the folder of the shared installation is never dropped.
    let folder = tempfile::tempdir().unwrap();
    let clis = [cli_program(&cli::tofu().unwrap(), true).unwrap()];
    let packed = pack(&Options {
        program: &binary("sluice").unwrap(),
        clis: &clis,
        registry: "sluice.invalid",
        tag: "0.1.0",
        lock: None,
        cache: &gobuild::tools_dir().join("image-packages"),
        output: folder.path(),
        created: Timestamp::UNIX_EPOCH,
        // The program of a test build is larger.
        controller_limit: None,
    });
    let images: Vec<_> = packed.unwrap().into_iter().map(|packed| packed.image).collect();
    assert!(images.iter().any(|image| image.reference.to_string() == RUNNER));
    // The tests of one process pack the same files, each in a folder of its own.
    let digests: Vec<_> = images.iter().map(|image| image.digest.clone()).collect();
    let first = FIRST_DIGESTS.get_or_init(|| digests.clone());
    assert_eq!(*first, digests, "the same files give other images");
    for image in &images {
        node.import(&image.archive).await.unwrap();
    }
}

/// What `tofu init` runs for a module with submodules, and what modules call.
const COMMANDS: &str = "set -e; id -u; git clone -q $URL /tmp/module; cd /tmp/module; git submodule update --init --recursive; \
     git log -1 --format=%H; ssh -V 2>&1; gpg --version | head -1; tofu version | head -1; tf-runner --version";

#[tokio::test(flavor = "multi_thread")]
async fn the_image_of_runs_clones_modules_as_an_unprivileged_user_on_a_read_only_root() {
    if without_cluster().unwrap() {
        return;
    }
    let node = Node::shared().await.unwrap();
    import(node).await;
    let repository = Repository::create().unwrap();
    let commit = Commit::First.create(&repository).unwrap();
    let server = GitServer::start().await.unwrap();
    let url = server.serve("module", &repository);
    let (address, path) = url.trim_start_matches("http://").split_once('/').unwrap();
    let exposed = node.expose(address.parse().unwrap()).unwrap();
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": "image-of-runs" },
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "volumes": [{ "name": "tmp", "emptyDir": {} }],
            "containers": [{
                "name": "tf-runner",
                "image": RUNNER,
                "command": ["sh", "-c", COMMANDS],
                "env": [{ "name": "URL", "value": format!("http://{exposed}/{path}") }],
                "volumeMounts": [{ "name": "tmp", "mountPath": "/tmp" }],
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "runAsNonRoot": true,
                    "capabilities": { "drop": ["ALL"] },
                    "seccompProfile": { "type": "RuntimeDefault" },
                },
            }],
        },
    }))
    .unwrap();
    let pods: Api<Pod> = Api::namespaced(node.client().await.unwrap(), "default");
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let is_over = |pod: Option<&Pod>| {
        let phase = pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    let ended = tokio::time::timeout(TIMEOUT, await_condition(pods.clone(), "image-of-runs", is_over)).await;
    let pod = ended.unwrap().unwrap().unwrap();
    let log = pods.logs("image-of-runs", &LogParams::default()).await.unwrap();
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Succeeded"), "{log}");
    let parts = [
        "65532\n",
        &commit,
        "OpenSSH_",
        "gpg (GnuPG)",
        "OpenTofu v",
        "tf-runner",
    ];
    for part in parts {
        assert!(log.contains(part), "{part}: {log}");
    }
}

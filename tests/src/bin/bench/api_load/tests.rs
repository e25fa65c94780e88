//! A small load on an API in this process: what does not depend on the machine.

use std::net::{Ipv4Addr, SocketAddr};

use kube::Config;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use sluice_embedded::{ApiServer, Store, TlsServer};
use tempfile::TempDir;

use super::*;

/// A load of a second.
const SMALL: Size = Size {
    objects: 300,
    serial: 20,
    page: 50,
    watches: 10,
    changes: 20,
};
/// Timeout of a test.
const LIMIT: Duration = Duration::from_mins(2);

/// An API on a socket, with a store in a file.
struct TestServer {
    client: Client,
    _served: TlsServer,
    _folder: TempDir,
}

impl TestServer {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::file(folder.path().join("objects.redb")).unwrap();
        let api = ApiServer::builder().store(store).build().unwrap();
        let credentials = folder.path().join("api");
        std::fs::create_dir(&credentials).unwrap();
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let served = api.serve(anywhere, &credentials).await.unwrap();
        let kubeconfig = Kubeconfig::read_from(&served.kubeconfig_path).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let mut config = config.unwrap();
        // A proxy of the machine must not be used for loopback.
        config.proxy_url = None;
        Self {
            client: Client::try_from(config).unwrap(),
            _served: served,
            _folder: folder,
        }
    }
}

/// Creates objects by concurrent writers while they are watched, and compares what each watch receives with what is stored.
async fn compare_events(client: &Client, kind: Kind) {
    let objects = Objects::prepare(client, kind).await.unwrap();
    let mut watches = Watches::open(objects.api(), SMALL.watches).await.unwrap();
    objects.create(0..SMALL.objects, WRITERS).await.unwrap();
    let mut received = vec![Vec::new(); SMALL.watches];
    for _ in 0..SMALL.watches * SMALL.objects {
        let event = watches.next().await.unwrap();
        received[event.watch].push(event.version.parse::<u64>().unwrap());
    }
    let stored = objects.api().list(&ListParams::default()).await.unwrap().items;
    let versions = stored
        .iter()
        .map(|object| object.metadata.resource_version.as_deref().unwrap());
    let mut created: Vec<u64> = versions.map(|version| version.parse().unwrap()).collect();
    created.sort_unstable();
    assert_eq!(created.len(), SMALL.objects);
    for (watch, versions) in received.iter().enumerate() {
        assert_eq!(versions, &created, "watch {watch} of {kind:?}");
    }
    // The next event of each watch is that of the next change, so none was repeated.
    let version = objects.change_one(0).await.unwrap();
    watches.wait_for(&version).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_watch_receives_each_change_once_and_in_order() {
    for kind in Kind::ALL {
        let server = TestServer::start().await;
        let compared = Box::pin(compare_events(&server.client, kind));
        tokio::time::timeout(LIMIT, compared).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_load_is_measured() {
    for kind in Kind::ALL {
        let server = TestServer::start().await;
        let processes = [std::process::id()];
        let measuring = Box::pin(measure_server(&server.client, &processes, kind, SMALL));
        let round = tokio::time::timeout(LIMIT, measuring).await.unwrap().unwrap();
        assert!(round.serial_rate > 0.0 && round.concurrent_rate > 0.0);
        assert_eq!((round.lists.len(), round.pages.len()), (LISTS, 6));
        assert_eq!(round.changes.len(), SMALL.changes);
        assert!(round.memory > 0);
    }
}

//! Three replicas with disks of their own and one bucket.

use std::sync::Arc;

use object_store::memory::InMemory;
use sluice_api::annotation::REQUESTED_AT;
use sluice_harness::git::Step;

use super::*;

/// A leader election in which a slow machine loses no lease. One that is released is taken at the next try.
const STEADY: [&str; 4] = [
    "--enable-leader-election",
    "--leader-election-lease-duration=50s",
    "--leader-election-renew-deadline=40s",
    "--leader-election-retry-period=100ms",
];

/// Returns the path of the artifact of an object, when it is another one than `before`.
async fn artifact_path(client: &Client, name: &str, before: &str) -> String {
    let objects: Api<GitRepository> = Api::namespaced(client.clone(), "default");
    let path = |object: &GitRepository| Some(object.status.as_ref()?.artifact.as_ref()?.path.clone());
    let is_next = |object: Option<&GitRepository>| object.and_then(path).is_some_and(|path| path != before);
    let object = soon(await_condition(objects, name, is_next)).await.unwrap();
    path(&object.unwrap()).unwrap()
}

/// Waits until a file server answers.
async fn answers(address: &str) {
    soon(async {
        while status(address, "").await != Some(200) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Downloads from these addresses in turn until `done`. Returns how many downloads there were, and the statuses of those that failed.
async fn download(addresses: Vec<String>, path: String, done: Token) -> (usize, Vec<Option<u16>>) {
    let (mut count, mut failed) = (0, Vec::new());
    for address in addresses.iter().cycle() {
        if done.is_cancelled() {
            break;
        }
        let status = status(address, &path).await;
        count += 1;
        failed.extend((status != Some(200)).then_some(status));
        tokio::task::yield_now().await;
    }
    (count, failed)
}

/// Starts three replicas with one bucket; the first one leads. Returns them with the addresses of their file servers.
async fn start_replicas(client: &Client) -> (Vec<Instance>, [String; 3]) {
    let bucket = Bucket::new(Arc::new(InMemory::new()), "memory", "");
    let addresses = [free_address(), free_address(), free_address()];
    let mut instances = Vec::new();
    for address in &addresses {
        let flag = format!("--storage-addr={address}");
        let flags: Vec<&str> = STEADY.into_iter().chain([&*flag]).collect();
        let instance = start_with(client, &flags, Some(bucket.clone()));
        answers(address).await;
        if instances.is_empty() {
            soon(async {
                while !instance.started.is_finished() {
                    tokio::task::yield_now().await;
                }
            })
            .await;
        }
        instances.push(instance);
    }
    (instances, addresses)
}

/// Requests a reconciliation, and waits until it has ended.
async fn reconcile(client: &Client, name: &str, token: &str) {
    let objects: Api<GitRepository> = Api::namespaced(client.clone(), "default");
    let patch = json!({ "metadata": { "annotations": { REQUESTED_AT: token } } });
    let patch = Patch::Merge(patch);
    objects
        .patch(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
    let is_handled = |object: Option<&GitRepository>| {
        let status = object.and_then(|object| object.status.as_ref());
        status.is_some_and(|status| status.last_handled_reconcile_at.as_deref() == Some(token))
    };
    soon(await_condition(objects, name, is_handled)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_replica_of_a_bucket_serves_while_the_leader_changes() {
    let api = api();
    let client = api.client();
    let (mut instances, addresses) = start_replicas(&client).await;
    let (server, repository) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
    repository.commit_files(&[("main.tf", "")], "first").unwrap();
    create(&client, "app", json!({}), &server.serve("app", &repository)).await;
    let first = artifact_path(&client, "app", "").await;
    for address in &addresses {
        assert_eq!(status(address, &first).await, Some(200), "{address}");
    }

    let (others, done) = (addresses[1..].to_vec(), Token::new());
    let downloads = tokio::spawn(download(others, first.clone(), done.clone()));
    let mut leader = instances.remove(0);
    let running = leader.running().await;
    leader.stop.cancel();
    assert_eq!(soon(running.wait()).await, LeadershipEnd::Released);
    // The disk of the next leader is empty, and it fetches nothing that is stored.
    let fetched = server.count(Step::Fetch);
    reconcile(&client, "app", "unchanged").await;
    assert_eq!(artifact_path(&client, "app", "").await, first);
    assert_eq!(server.count(Step::Fetch), fetched);
    repository.commit_files(&[("main.tf", "# next")], "next").unwrap();
    reconcile(&client, "app", "changed").await;
    let next = artifact_path(&client, "app", &first).await;
    done.cancel();
    let (count, failed) = soon(downloads).await.unwrap();
    assert!(count > 0 && failed.is_empty(), "{count}: {failed:?}");
    for address in &addresses[1..] {
        assert_eq!(status(address, &next).await, Some(200), "{address}");
    }

    for instance in &instances {
        instance.stop.cancel();
    }
    for instance in instances {
        match soon(instance.started).await.unwrap() {
            Ok(running) => assert_eq!(soon(running.wait()).await, LeadershipEnd::Released),
            Err(error) => assert!(matches!(error, StartError::Stopped), "{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_never_led_stops_its_file_server_with_its_work() {
    let api = api();
    let client = api.client();
    let bucket = Bucket::new(Arc::new(InMemory::new()), "memory", "");
    let mut leader = start_with(&client, &STEADY, Some(bucket.clone()));
    let running = leader.running().await;
    let address = free_address();
    let flag = format!("--storage-addr={address}");
    let flags: Vec<&str> = STEADY.into_iter().chain([&*flag]).collect();
    let stop = Stop {
        work: Token::new(),
        server: Token::new(),
    };
    let replica = start_until(&client, &flags, Some(bucket), stop.clone());
    answers(&address).await;
    stop.work.cancel();
    let ended = soon(replica.started).await.unwrap();
    assert!(matches!(ended, Err(StartError::Stopped)));
    assert_eq!(status(&address, "").await, None, "nothing listens");

    leader.stop.cancel();
    assert_eq!(soon(running.wait()).await, LeadershipEnd::Released);
}

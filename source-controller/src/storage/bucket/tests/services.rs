//! The same scenarios on a bucket of each service: publication, replicas, conditional writes, and deletions. The URLs of Google's and Azure's
//! servers end with a slash, as users may write them.

use super::azure::AzureServer;
use super::gcs::GcsServer;
use super::server::Fault;
use super::*;

/// Runs every scenario on an empty bucket.
async fn check_all(bucket: &Bucket) {
    publish_and_serve(bucket).await;
    publish_in_parts(bucket).await;
    write_pointers_under_conditions(bucket).await;
    publish_with_two_leaders(bucket).await;
    collect_and_remove(bucket).await;
}

async fn publish_and_serve(bucket: &Bucket) {
    let (leader, follower) = (Replica::new(bucket), Replica::new(bucket));
    assert!(!follower.provide("aa").await.unwrap());
    let digest = leader.publish("aa", b"content").await.unwrap();
    follower.expire();
    assert!(follower.provide("aa").await.unwrap());
    assert_eq!(std::fs::read(follower.file("aa")).unwrap(), b"content");
    // A restart on an empty disk.
    let next = Replica::new(bucket);
    assert_eq!(next.verify("aa", &digest).await.unwrap(), FileState::Intact);
    assert!(!next.file("aa").exists(), "nothing is downloaded for that");
    let index = next.call(|storage| storage.index(&path("aa")).unwrap()).await;
    assert_eq!(index.as_deref(), Some(&b"index"[..]));
}

/// A content of two parts, and the same one again in place of the first.
async fn publish_in_parts(bucket: &Bucket) {
    let content = vec![7_u8; 9 << 20];
    Replica::new(bucket).publish("bb", &content).await.unwrap();
    let follower = Replica::new(bucket);
    assert!(follower.provide("bb").await.unwrap());
    assert!(std::fs::read(follower.file("bb")).unwrap() == content);
    let file = std::fs::File::open(follower.file("bb")).unwrap();
    let digest = digest(&content);
    bucket.put_content(&path("bb"), &digest, file).await.unwrap();
    let next = Replica::new(bucket);
    assert_eq!(next.verify("bb", &digest).await.unwrap(), FileState::Intact);
}

/// A pointer is created only where there is none, and replaced only in the version that was read.
async fn write_pointers_under_conditions(bucket: &Bucket) {
    let path = path("cc");
    let pointer = |size: u64| Pointer {
        digest: digest(b"content"),
        size,
        is_damaged: false,
    };
    let stored = async || bucket.pointer(&path).await.unwrap().unwrap();
    bucket.put_pointer(&path, &pointer(1), None).await.unwrap();
    let refused = bucket.put_pointer(&path, &pointer(2), None).await.unwrap_err();
    assert_eq!(refused.problem(), &Problem::Changed);
    // As after a lost answer to the same write.
    bucket.put_pointer(&path, &pointer(1), None).await.unwrap();
    let (first, same) = (stored().await, stored().await);
    bucket.put_pointer(&path, &pointer(3), Some(first)).await.unwrap();
    let refused = bucket.put_pointer(&path, &pointer(4), Some(same)).await;
    assert_eq!(refused.unwrap_err().problem(), &Problem::Changed);
    assert_eq!(stored().await.pointer, Some(pointer(3)));
    let last = stored().await;
    bucket.put_pointer(&path, &pointer(5), Some(last)).await.unwrap();
    assert_eq!(stored().await.pointer, Some(pointer(5)));
}

/// The status names the content of one of them, whichever pointer was written.
async fn publish_with_two_leaders(bucket: &Bucket) {
    let (one, other) = (Replica::new(bucket), Replica::new(bucket));
    let (first, second) = tokio::join!(one.publish("dd", b"one"), other.publish("dd", b"other"));
    assert!(first.is_ok() || second.is_ok(), "{first:?}, {second:?}");
    one.expire();
    let digest = digest(b"one");
    assert_eq!(one.verify("dd", &digest).await.unwrap(), FileState::Intact);
    let follower = Replica::new(bucket);
    assert!(follower.provide("dd").await.unwrap());
    assert_eq!(std::fs::read(follower.file("dd")).unwrap(), b"one");
}

async fn collect_and_remove(bucket: &Bucket) {
    let leader = Replica::new(bucket);
    let now = Timestamp::now();
    leader.publish("ee", b"old").await.unwrap();
    leader
        .call(move |storage| storage.supersede(&path("ee"), now).unwrap())
        .await;
    leader.publish("ff", b"new").await.unwrap();
    let collect = move |storage: &BucketStorage| {
        let later = now + Duration::from_secs(61);
        storage
            .collect(&directory(), Some(&path("ff")), MINUTE, later)
            .unwrap()
    };
    assert_eq!(leader.call(collect).await, 1);
    assert!(!Replica::new(bucket).provide("ee").await.unwrap());
    assert!(Replica::new(bucket).provide("ff").await.unwrap());
    // A missing object is no error.
    let pointer = bucket.pointer_key(&path("ee"));
    bucket.delete(&pointer).await.unwrap();
    let next = Replica::new(bucket);
    let found = next.call(|storage| storage.directories().unwrap()).await;
    assert_eq!(found, [directory()]);
    assert!(next.call(|storage| storage.remove(&directory()).unwrap()).await);
    assert!(bucket.list(None).await.unwrap().is_empty());
}

/// Returns the problem of a listing, which is the first operation of a leader.
async fn problem_of_listing(bucket: &Bucket) -> Problem {
    let error = bucket.list(None).await.unwrap_err();
    let text = error.to_string();
    assert!(!text.contains("Signature") && !text.contains("token"), "{text}");
    error.problem
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scenarios_hold_on_s3() {
    let server = S3Server::start().await;
    check_all(&server.bucket()).await;
    server.fail("GET", "list-type", 1, Fault::Answer(404, "NoSuchBucket"));
    assert_eq!(problem_of_listing(&server.bucket()).await, Problem::NoBucket);
    server.fail("GET", "list-type", 1, Fault::Answer(400, "ExpiredToken"));
    let expired = Problem::Denied("ExpiredToken".to_owned());
    assert_eq!(problem_of_listing(&server.bucket()).await, expired);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scenarios_hold_on_google_cloud_storage() {
    let server = GcsServer::start().await;
    check_all(&server.bucket()).await;
    let wrong = server.bucket_with("another-token");
    let denied = Problem::Denied("AuthenticationRequired".to_owned());
    assert_eq!(problem_of_listing(&wrong).await, denied);
    let error = wrong.pointer(&path("aa")).await.map(drop).unwrap_err();
    assert_eq!(error.problem(), &denied);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "Azurite needs Node.js, which no other test does: make nightly runs it"]
async fn the_scenarios_hold_on_azure() {
    let server = AzureServer::start().await;
    check_all(&server.bucket()).await;
    let missing = server.missing_bucket();
    assert_eq!(problem_of_listing(&missing).await, Problem::NoBucket);
    let error = missing.pointer(&path("aa")).await.map(drop).unwrap_err();
    assert_eq!(error.problem(), &Problem::NoBucket);
    let wrong = server.bucket_with_wrong_key();
    let denied = Problem::Denied("AuthorizationFailure".to_owned());
    assert_eq!(problem_of_listing(&wrong).await, denied);
    let error = wrong.pointer(&path("aa")).await.map(drop).unwrap_err();
    assert_eq!(error.problem(), &denied);
}

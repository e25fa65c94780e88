//! What is wrong in the bucket is not served, and the leader replaces it.

use super::server::Fault;
use super::*;

/// Larger than any pointer.
static LONG: [u8; 2000] = [b'x'; 2000];

#[tokio::test(flavor = "multi_thread")]
async fn a_content_of_another_size_is_replaced() {
    let server = S3Server::start().await;
    let bucket = server.bucket();
    let key = bucket.content_key(&path("aa"), &digest(b"content"));
    bucket.overwrite(&key, b"con").await;
    Replica::new(&bucket).publish("aa", b"content").await.unwrap();
    assert!(Replica::new(&bucket).provide("aa").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_content_is_not_served_and_the_leader_stores_it_again() {
    let server = S3Server::start().await;
    let bucket = server.bucket();
    let leader = Replica::new(&bucket);
    let digest = leader.publish("aa", b"content").await.unwrap();
    let key = bucket.content_key(&path("aa"), &digest);
    for damaged in [b"CONTENT".as_slice(), b"con".as_slice()] {
        bucket.overwrite(&key, damaged).await;
        let follower = Replica::new(&bucket);
        let error = follower.provide("aa").await.unwrap_err();
        assert_eq!(problem(&error), &Problem::Damaged);
        assert!(!follower.file("aa").exists());
        // The pointer says so, and no replica downloads it again.
        let downloads = server.count("GET", "aa.tar.gz.sha256-");
        let error = Replica::new(&bucket).provide("aa").await.unwrap_err();
        assert_eq!(problem(&error), &Problem::Damaged);
        assert_eq!(server.count("GET", "aa.tar.gz.sha256-"), downloads);
        // The leader looks again after its time, and serves its own file.
        leader.expire();
        assert!(leader.provide("aa").await.unwrap());
        assert_eq!(leader.verify("aa", &digest).await.unwrap(), FileState::Intact);
        assert!(Replica::new(&bucket).provide("aa").await.unwrap());
    }
}

/// A slow download of the damaged content ends after the leader has stored the content again.
#[tokio::test(flavor = "multi_thread")]
async fn a_content_that_was_replaced_during_the_download_is_not_marked() {
    let bucket = Bucket::new(Arc::new(InMemory::new()), "memory", "");
    let digest = Replica::new(&bucket).publish("aa", b"content").await.unwrap();
    let key = bucket.content_key(&path("aa"), &digest);
    let pointer = Pointer {
        digest: digest.clone(),
        size: 7,
        is_damaged: false,
    };
    bucket.overwrite(&key, b"CONTENT").await;
    let read = bucket.open(&key).await.unwrap().meta;
    bucket.overwrite(&key, b"content").await;
    let marked = bucket.mark_damaged(&path("aa"), &pointer, &read).await;
    assert!(!marked.unwrap(), "the content is another one");
    assert!(Replica::new(&bucket).provide("aa").await.unwrap());
    let read = bucket.open(&key).await.unwrap().meta;
    let marked = bucket.mark_damaged(&path("aa"), &pointer, &read).await;
    assert!(marked.unwrap(), "the content is the one that was read");
}

/// A replica has read the content that the leader is replacing.
#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_is_written_during_an_upload_is_removed() {
    let server = S3Server::start().await;
    let bucket = server.bucket();
    let leader = Replica::new(&bucket);
    let digest = leader.publish("aa", b"content").await.unwrap();
    let key = bucket.content_key(&path("aa"), &digest);
    bucket.overwrite(&key, b"con").await;
    leader.expire();
    let (text, permits) = ("aa.tar.gz.sha256-", Arc::new(Semaphore::new(0)));
    server.fail("PUT", text, 1, Fault::Wait(Arc::clone(&permits)));
    let before = server.count("PUT", text);
    let mark = async {
        server.received_after("PUT", text, before).await;
        let artifact = path("aa");
        let stored = bucket.pointer(&artifact).await.unwrap();
        let damaged = Pointer {
            digest: digest.clone(),
            size: 7,
            is_damaged: true,
        };
        let put = bucket.put_pointer(&artifact, &damaged, stored);
        put.await.unwrap();
        permits.add_permits(1);
    };
    let (verified, ()) = tokio::join!(leader.verify("aa", &digest), mark);
    assert_eq!(verified.unwrap(), FileState::Intact);
    assert!(Replica::new(&bucket).provide("aa").await.unwrap());
}

/// No reconciliation checks the artifact of a suspended object.
#[tokio::test(flavor = "multi_thread")]
async fn a_listing_stores_a_marked_content_again() {
    let bucket = Bucket::new(Arc::new(InMemory::new()), "memory", "");
    let leader = Replica::new(&bucket);
    let digest = leader.publish("aa", b"content").await.unwrap();
    let key = bucket.content_key(&path("aa"), &digest);
    bucket.overwrite(&key, b"CONTENT").await;
    let error = Replica::new(&bucket).provide("aa").await.unwrap_err();
    assert_eq!(problem(&error), &Problem::Damaged);
    // The next leader lacks the file.
    let next = Replica::new(&bucket);
    next.call(|storage| storage.directories().unwrap()).await;
    assert!(Replica::new(&bucket).provide("aa").await.is_err());
    let found = leader.call(|storage| storage.directories().unwrap()).await;
    assert_eq!(found, [directory()]);
    assert!(Replica::new(&bucket).provide("aa").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_content_that_the_disk_lacks_is_built_again() {
    let bucket = Bucket::new(Arc::new(InMemory::new()), "memory", "");
    let digest = Replica::new(&bucket).publish("aa", b"content").await.unwrap();
    let key = bucket.content_key(&path("aa"), &digest);
    bucket.overwrite(&key, b"CONTENT").await;
    let next = Replica::new(&bucket);
    assert_eq!(next.verify("aa", &digest).await.unwrap(), FileState::Intact);
    let opened = next.call(|storage| storage.open(&path("aa")).map(drop)).await;
    assert_eq!(problem(&opened.unwrap_err()), &Problem::Damaged);
    assert_eq!(next.verify("aa", &digest).await.unwrap(), FileState::Missing);
    next.publish("aa", b"content").await.unwrap();
    assert!(Replica::new(&bucket).provide("aa").await.unwrap());
    assert_eq!(next.verify("aa", &digest).await.unwrap(), FileState::Intact);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_no_pointer_is_replaced() {
    let server = S3Server::start().await;
    let bucket = server.bucket();
    let leader = Replica::new(&bucket);
    let digest = leader.publish("aa", b"content").await.unwrap();
    let key = bucket.pointer_key(&path("aa"));
    for foreign in [b"no pointer".as_slice(), LONG.as_slice()] {
        bucket.overwrite(&key, foreign).await;
        let error = Replica::new(&bucket).provide("aa").await.unwrap_err();
        assert_eq!(problem(&error), &Problem::InvalidPointer);
        leader.expire();
        assert!(leader.provide("aa").await.unwrap(), "a verified copy is served");
        leader.expire();
        assert_eq!(leader.verify("aa", &digest).await.unwrap(), FileState::Intact);
        assert!(Replica::new(&bucket).provide("aa").await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_content_is_collected_without_the_pointer_of_the_current_artifact() {
    let bucket = Bucket::new(Arc::new(InMemory::new()), "memory", "");
    let leader = Replica::new(&bucket);
    let digest = leader.publish("aa", b"content").await.unwrap();
    // The listing records all keys.
    leader.call(|storage| storage.directories().unwrap()).await;
    bucket.delete(&bucket.pointer_key(&path("aa"))).await.unwrap();
    leader.expire();
    let later = Timestamp::now() + Duration::from_hours(1);
    let collect =
        move |storage: &BucketStorage| storage.collect(&directory(), Some(&path("aa")), MINUTE, later);
    assert_eq!(leader.call(collect).await.unwrap(), 0);
    let pointer = Pointer {
        digest: digest.clone(),
        size: 7,
        is_damaged: false,
    };
    assert!(bucket.has_content(&path("aa"), &pointer).await.unwrap());
    assert_eq!(leader.verify("aa", &digest).await.unwrap(), FileState::Intact);
    assert_eq!(leader.call(collect).await.unwrap(), 0);
    assert!(Replica::new(&bucket).provide("aa").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_retention_time_does_not_count_from_a_listing_before_the_supersession() {
    let bucket = Bucket::new(Arc::new(InMemory::new()), "memory", "");
    let leader = Replica::new(&bucket);
    leader.publish("aa", b"old").await.unwrap();
    leader.call(|storage| storage.directories().unwrap()).await;
    let superseded_at = Timestamp::now() + Duration::from_hours(1);
    let supersede = move |storage: &BucketStorage| storage.supersede(&path("aa"), superseded_at);
    leader.call(supersede).await.unwrap();
    leader.publish("bb", b"new").await.unwrap();
    for (seconds, collected) in [(59, 0), (61, 1)] {
        let now = superseded_at + Duration::from_secs(seconds);
        let collect = move |storage: &BucketStorage| {
            let current = path("bb");
            storage.collect(&directory(), Some(&current), MINUTE, now)
        };
        assert_eq!(
            leader.call(collect).await.unwrap(),
            collected,
            "after {seconds} s"
        );
    }
}

//! Faults of the server: no partial artifact is served, nothing is published that is not stored, and messages say what to do.

use super::server::Fault;
use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn short_faults_are_retried() {
    let server = S3Server::start().await;
    let (leader, follower) = (Replica::new(&server.bucket()), Replica::new(&server.bucket()));
    server.fail("PUT", "tar.gz.sha256-", 1, Fault::Answer(500, "InternalError"));
    server.fail("PUT", "tar.gz.digest", 1, Fault::Answer(503, "SlowDown"));
    server.fail("GET", "tar.gz.sha256-", 1, Fault::Reset);
    let digest = leader.publish("aa", b"content").await.unwrap();
    assert!(follower.provide("aa").await.unwrap());
    assert_eq!(server.pending(), 0);
    assert_eq!(
        super::digest(&std::fs::read(follower.file("aa")).unwrap()),
        digest
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_upload_publishes_nothing_and_the_next_one_completes_it() {
    let server = S3Server::start().await;
    let (leader, follower) = (Replica::new(&server.bucket()), Replica::new(&server.bucket()));
    let content = vec![7_u8; 9 << 20];
    server.fail("PUT", "partNumber=2", MANY, Fault::Reset);
    leader.publish("aa", &content).await.unwrap_err();
    assert!(server.pending() < MANY);
    server.received("DELETE", "uploadId=").await;
    assert!(!follower.provide("aa").await.unwrap());
    server.heal();
    leader.publish("aa", &content).await.unwrap();
    follower.expire();
    assert!(follower.provide("aa").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_and_a_full_bucket_are_named_without_secrets() {
    let server = S3Server::start().await;
    let wrong = Replica::new(&server.bucket_with("another-secret"));
    let denied = wrong.publish("aa", b"content").await.unwrap_err();
    assert!(matches!(problem(&denied), Problem::Denied(_)), "{denied}");
    let leader = Replica::new(&server.bucket());
    server.fail("PUT", "tar.gz.sha256-", MANY, Fault::Answer(403, "QuotaExceeded"));
    let full = leader.publish("bb", b"content").await.unwrap_err();
    assert_eq!(problem(&full), &Problem::Full("QuotaExceeded".to_owned()));
    for text in [denied.to_string(), full.to_string()] {
        assert!(
            text.contains("\"artifacts\"") && text.contains("below/this/gitrepository/ns/n/"),
            "{text}"
        );
        assert!(!text.contains("secret") && !text.contains("AKID"), "{text}");
    }
    assert!(!leader.provide("bb").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_space_is_told_by_its_status() {
    let server = S3Server::start().await;
    let leader = Replica::new(&server.bucket());
    let fault = Fault::Answer(507, "Storage");
    server.fail("PUT", "tar.gz.sha256-", MANY, fault);
    let full = leader.publish("aa", b"content").await.unwrap_err();
    assert_eq!(
        problem(&full),
        &Problem::Full("507 Insufficient Storage".to_owned())
    );
    assert_eq!(server.count("PUT", "tar.gz.sha256-"), 1, "it is not tried again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_served_while_the_bucket_fails_and_a_missing_one_is_no_empty_file() {
    let server = S3Server::start().await;
    let (leader, follower) = (Replica::new(&server.bucket()), Replica::new(&server.bucket()));
    leader.publish("aa", b"content").await.unwrap();
    assert!(follower.provide("aa").await.unwrap());
    // As after its time has passed.
    follower.expire();
    server.fail("GET", ".digest", MANY, Fault::Answer(403, "AccessDenied"));
    assert!(follower.provide("aa").await.unwrap());
    server.heal();
    server.fail("GET", ".digest", MANY, Fault::hang());
    follower.expire();
    assert!(
        follower.provide("aa").await.unwrap(),
        "a bucket that hangs is not awaited"
    );
    assert!(server.pending() < MANY);
    server.heal();
    server.fail("GET", ".digest", MANY, Fault::Answer(403, "AccessDenied"));
    let empty = Replica::new(&server.bucket());
    assert!(matches!(
        problem(&empty.provide("aa").await.unwrap_err()),
        Problem::Denied(_)
    ));
    assert!(!empty.file("aa").exists());
    assert!(server.pending() < MANY);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_fails_is_asked_once_for_the_copies_of_a_file() {
    let server = S3Server::start().await;
    let (leader, mut follower) = (Replica::new(&server.bucket()), Replica::new(&server.bucket()));
    leader.publish("aa", b"content").await.unwrap();
    assert!(follower.provide("aa").await.unwrap());
    follower.shared().failed = RecentPaths::new(MINUTE);
    // No pointer is known, as after a purge.
    follower.expire();
    server.fail("GET", ".digest", MANY, Fault::Answer(403, "AccessDenied"));
    assert!(follower.provide("aa").await.unwrap());
    let lookups = server.count("GET", ".digest");
    assert!(follower.provide("aa").await.unwrap());
    assert_eq!(server.count("GET", ".digest"), lookups);
    assert!(!follower.storage.0.outage.begin(), "the outage is recorded");
    server.heal();
    follower.expire();
    assert!(follower.provide("aa").await.unwrap());
    assert!(follower.storage.0.outage.begin(), "the outage has ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_bucket_holds_up_one_artifact_only() {
    let server = S3Server::start().await;
    let (leader, follower) = (Replica::new(&server.bucket()), Replica::new(&server.bucket()));
    leader.publish("aa", b"slow").await.unwrap();
    leader.publish("bb", b"fast").await.unwrap();
    let permits = Arc::new(Semaphore::new(0));
    server.fail("GET", "aa.tar.gz.sha256-", 1, Fault::Wait(Arc::clone(&permits)));
    let storage = follower.storage.clone();
    let slow = tokio::spawn(async move { storage.provide(&path("aa")).await });
    assert!(follower.provide("bb").await.unwrap());
    assert!(!slow.is_finished());
    permits.add_permits(1);
    let provided = tokio::time::timeout(LIMIT, slow).await.unwrap().unwrap();
    assert!(provided.unwrap().is_some());
    assert_eq!(server.pending(), 0);
}

/// The status names the content of one of them. The other one's pointer is found to be wrong, and replaced.
#[tokio::test(flavor = "multi_thread")]
async fn two_leaders_for_a_moment_leave_a_complete_artifact() {
    let server = S3Server::start().await;
    let (one, other) = (Replica::new(&server.bucket()), Replica::new(&server.bucket()));
    let (first, second) = tokio::join!(one.publish("aa", b"same"), other.publish("aa", b"same"));
    assert_eq!(first.unwrap(), second.unwrap());
    let (first, second) = tokio::join!(one.publish("bb", b"one"), other.publish("bb", b"other"));
    let written = [first.is_ok(), second.is_ok()];
    assert!(
        written.contains(&true),
        "one of them writes the pointer: {written:?}"
    );
    // The status has the first one's, which looks again after its time.
    one.expire();
    let digest = super::digest(b"one");
    assert_eq!(one.verify("bb", &digest).await.unwrap(), FileState::Intact);
    let follower = Replica::new(&server.bucket());
    assert!(follower.provide("bb").await.unwrap());
    assert_eq!(
        super::digest(&std::fs::read(follower.file("bb")).unwrap()),
        digest
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_answer_does_not_lose_an_artifact() {
    let server = S3Server::start().await;
    let leader = Replica::new(&server.bucket());
    let digest = leader.publish("aa", b"content").await.unwrap();
    leader.expire();
    server.fail("GET", ".digest", 2, Fault::Answer(404, "NoSuchKey"));
    // It looks like a missing pointer, which the leader creates: the server says that there is one, with this content.
    assert_eq!(leader.verify("aa", &digest).await.unwrap(), FileState::Intact);
    assert_eq!(server.pending(), 0);
    assert!(Replica::new(&server.bucket()).provide("aa").await.unwrap());
}

//! Tests of candidates on the embedded API: single attempts with a manual clock and an API that fails, loses responses and
//! delays writes; and complete candidates for some seconds.

use std::future::Future;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use sluice_embedded::{ApiServer, Store};

mod candidate;
mod histories;

use candidate::{Fault, Skew, Way};

use super::*;
use crate::clock::SystemClock;
use crate::random::Generator;
use crate::sync::lock;

const LIMIT: Duration = Duration::from_secs(30);

fn api() -> ApiServer {
    ApiServer::builder().store(Store::memory()).build().unwrap()
}

fn settings(identity: &str) -> Settings {
    Settings {
        name: "source-controller-leader-election".into(),
        namespace: "default".into(),
        identity: identity.into(),
        lease: Duration::from_secs(35),
        renew: Duration::from_secs(30),
        retry: Duration::from_secs(5),
        release: true,
    }
}

/// Candidates with their own clocks.
struct Election {
    api: ApiServer,
    start: Instant,
    elapsed: Duration,
    candidates: Vec<(LeaseAttempts, Way)>,
    /// By candidate.
    skews: Vec<Skew>,
}

impl Election {
    fn new(count: usize) -> Self {
        let api = api();
        let candidates = (0..count).map(|n| {
            let way = Way::default();
            let settings = settings(&format!("pod-{n}"));
            let leases = Api::namespaced(way.client(&api), &settings.namespace);
            (LeaseAttempts::new(leases, &settings), way)
        });
        Self {
            candidates: candidates.collect(),
            api,
            start: Instant::now(),
            elapsed: Duration::ZERO,
            skews: vec![Skew::NONE; count],
        }
    }

    /// Returns the monotonic time of a candidate.
    fn now(&self, n: usize) -> Instant {
        self.skews[n].steady(self.start, self.elapsed)
    }

    /// Returns the wall clock time of a candidate.
    fn wall(&self, n: usize) -> Timestamp {
        self.skews[n].wall(self.elapsed)
    }

    fn pass(&mut self, seconds: u64) {
        self.elapsed += Duration::from_secs(seconds);
    }

    async fn attempt(&mut self, n: usize) -> Result<Outcome, String> {
        let (now, wall) = (self.now(n), self.wall(n));
        let tried = self.candidates[n].0.attempt(|| now, || wall).await;
        tried.map_err(|error| error.to_string())
    }

    async fn release(&mut self, n: usize) {
        let wall = self.wall(n);
        self.candidates[n].0.release(wall).await.unwrap();
    }

    fn fault(&self, n: usize, fault: Fault) {
        *lock(&self.candidates[n].1.fault) = fault;
    }

    fn leaders(&self) -> Vec<usize> {
        let leads = |n: &usize| !self.candidates[*n].0.remaining(self.now(*n)).is_zero();
        (0..self.candidates.len()).filter(leads).collect()
    }

    async fn lease(&self) -> Lease {
        let api: Api<Lease> = Api::namespaced(self.api.client(), "default");
        api.get(&settings("").name).await.unwrap()
    }

    async fn holder(&self) -> String {
        self.lease().await.spec.unwrap().holder_identity.unwrap()
    }
}

fn held(by: &str) -> Outcome {
    Outcome::HeldBy(by.to_owned())
}

#[tokio::test]
async fn the_second_candidate_takes_over_after_the_lease_expires() {
    let mut election = Election::new(2);
    assert_eq!(election.attempt(0).await, Ok(Outcome::Acquired));
    assert_eq!(election.attempt(1).await, Ok(held("pod-0")));
    election.pass(20);
    assert_eq!(election.attempt(0).await, Ok(Outcome::Acquired));
    election.pass(14);
    // 34 s after the first observation, but the Lease changed: the time restarts.
    assert_eq!(election.attempt(1).await, Ok(held("pod-0")));
    election.pass(34);
    assert_eq!(election.attempt(1).await, Ok(held("pod-0")));
    assert_eq!(election.leaders(), Vec::<usize>::new());
    election.pass(1);
    assert_eq!(election.attempt(1).await, Ok(Outcome::Acquired));
    assert_eq!(election.leaders(), [1]);
    let spec = election.lease().await.spec.unwrap();
    assert_eq!(spec.lease_transitions, Some(1));
    assert_eq!(spec.lease_duration_seconds, Some(35));
    // The former leader detects the loss.
    assert_eq!(election.attempt(0).await, Ok(held("pod-1")));
}

#[tokio::test]
async fn a_released_lease_is_acquired_immediately() {
    let mut election = Election::new(2);
    assert_eq!(election.attempt(0).await, Ok(Outcome::Acquired));
    assert_eq!(election.attempt(1).await, Ok(held("pod-0")));
    election.release(0).await;
    assert_eq!(
        (election.leaders(), election.holder().await),
        (vec![], String::new())
    );
    assert_eq!(election.attempt(1).await, Ok(Outcome::Acquired));
    // A candidate without the Lease releases nothing.
    election.release(0).await;
    assert_eq!(election.holder().await, "pod-1");
}

#[tokio::test]
async fn a_failing_api_ends_leadership_in_time() {
    let mut election = Election::new(1);
    assert_eq!(election.attempt(0).await, Ok(Outcome::Acquired));
    election.fault(0, Fault::Refused);
    election.pass(29);
    assert!(election.attempt(0).await.is_err());
    assert_eq!(election.leaders(), [0]);
    election.pass(1);
    assert_eq!(election.leaders(), Vec::<usize>::new());
}

#[tokio::test]
async fn an_own_write_with_a_lost_response_is_recognized() {
    let mut election = Election::new(1);
    election.fault(0, Fault::Mute);
    // Neither the read nor the write gets a response.
    assert!(election.attempt(0).await.is_err());
    assert_eq!(election.leaders(), Vec::<usize>::new());
    election.fault(0, Fault::None);
    assert_eq!(election.attempt(0).await, Ok(Outcome::Acquired));
    election.fault(0, Fault::Mute);
    election.pass(5);
    assert!(election.attempt(0).await.is_err());
    election.fault(0, Fault::None);
    assert_eq!(election.attempt(0).await, Ok(Outcome::Acquired));
    assert_eq!(election.lease().await.spec.unwrap().lease_transitions, Some(0));
}

#[tokio::test]
async fn a_renewal_that_arrives_after_a_take_over_changes_nothing() {
    let mut election = Election::new(2);
    assert_eq!(election.attempt(0).await, Ok(Outcome::Acquired));
    assert_eq!(election.attempt(1).await, Ok(held("pod-0")));
    election.fault(0, Fault::Late);
    assert!(election.attempt(0).await.is_err());
    election.pass(35);
    assert_eq!(election.attempt(1).await, Ok(Outcome::Acquired));
    election.candidates[0].1.arrive(&election.api).await;
    assert_eq!(election.holder().await, "pod-1");
    assert_eq!(election.leaders(), [1]);
}

#[tokio::test]
async fn a_deleted_lease_is_created_again_by_the_leader() {
    let mut election = Election::new(2);
    assert_eq!(election.attempt(0).await, Ok(Outcome::Acquired));
    let leases: Api<Lease> = Api::namespaced(election.api.client(), "default");
    leases
        .delete(&settings("").name, &kube::api::DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(election.attempt(0).await, Ok(Outcome::Acquired));
    assert_eq!(election.attempt(1).await, Ok(held("pod-0")));
}

#[tokio::test]
async fn foreign_labels_of_the_lease_are_retained() {
    let mut election = Election::new(1);
    assert_eq!(election.attempt(0).await, Ok(Outcome::Acquired));
    let leases: Api<Lease> = Api::namespaced(election.api.client(), "default");
    let patch = serde_json::json!({"metadata": {"labels": {"team": "a"}}});
    let patch = kube::api::Patch::Merge(patch);
    leases
        .patch(&settings("").name, &kube::api::PatchParams::default(), &patch)
        .await
        .unwrap();
    election.pass(5);
    assert_eq!(election.attempt(0).await, Ok(Outcome::Acquired));
    assert_eq!(election.lease().await.metadata.labels.unwrap()["team"], "a");
}

fn candidate(client: Client, identity: &str, metrics: &Metrics) -> Candidate {
    let quick = Settings {
        lease: Duration::from_secs(1),
        renew: Duration::from_millis(600),
        retry: Duration::from_millis(50),
        ..settings(identity)
    };
    let random = Arc::new(Generator::seeded(1));
    Candidate::new(client, quick, Arc::new(SystemClock), random, metrics)
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("done in time")
}

#[tokio::test]
async fn a_release_hands_over_leadership_and_the_metric_follows() {
    let api = api();
    let (metrics, stop, done) = (Metrics::new(), Token::new(), Token::new());
    let first = soon(candidate(api.client(), "a", &metrics).acquire(&stop))
        .await
        .unwrap();
    let shown = |metrics: &Metrics, value: u8| {
        let line =
            format!("leader_election_master_status{{name=\"source-controller-leader-election\"}} {value}\n");
        assert!(metrics.text().contains(&line), "{}", metrics.text());
    };
    shown(&metrics, 1);
    let holding = tokio::spawn({
        let done = done.clone();
        async move { first.hold(&done).await }
    });
    let others = Metrics::new();
    let second = candidate(api.client(), "b", &others).acquire(&stop);
    let mut second = std::pin::pin!(second);
    // Longer than the Lease: the leader keeps renewing.
    let waited = tokio::time::timeout(Duration::from_millis(1500), second.as_mut()).await;
    assert!(waited.is_err(), "two lead");
    shown(&others, 0);
    done.cancel();
    assert_eq!(soon(holding).await.unwrap(), LeadershipEnd::Released);
    shown(&metrics, 0);
    assert!(soon(second).await.is_some());
    shown(&others, 1);
}

#[tokio::test]
async fn leadership_without_renewal_is_lost_in_time() {
    let (api, way) = (api(), Way::default());
    let (metrics, stop) = (Metrics::new(), Token::new());
    let lead = soon(candidate(way.client(&api), "a", &metrics).acquire(&stop))
        .await
        .unwrap();
    *lock(&way.fault) = Fault::Refused;
    let started = Instant::now();
    assert_eq!(soon(lead.hold(&Token::new())).await, LeadershipEnd::Lost);
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn leadership_taken_by_another_is_lost() {
    let api = api();
    let (metrics, stop) = (Metrics::new(), Token::new());
    let lead = soon(candidate(api.client(), "a", &metrics).acquire(&stop))
        .await
        .unwrap();
    let leases: Api<Lease> = Api::namespaced(api.client(), "default");
    let patch = serde_json::json!({"spec": {"holderIdentity": "other"}});
    let patch = kube::api::Patch::Merge(patch);
    leases
        .patch(&settings("").name, &kube::api::PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(soon(lead.hold(&Token::new())).await, LeadershipEnd::Lost);
}

#[tokio::test]
async fn a_stop_ends_a_candidate() {
    let api = api();
    let (metrics, stop) = (Metrics::new(), Token::new());
    let lead = soon(candidate(api.client(), "a", &metrics).acquire(&stop))
        .await
        .unwrap();
    let waiting = candidate(api.client(), "b", &Metrics::new());
    stop.cancel();
    assert!(soon(waiting.acquire(&stop)).await.is_none());
    drop(lead);
}

#[test]
fn each_shard_has_its_own_lease() {
    assert_eq!(
        lease_name("source-controller-leader-election", None),
        "source-controller-leader-election"
    );
    // The digest is that of printf and sha256sum in a shell.
    assert_eq!(
        lease_name(
            "source-controller-leader-election",
            Some("sharding.fluxcd.io/key=shard1")
        ),
        "source-controller-leader-election-73fdc1be"
    );
}

#[test]
fn inconsistent_durations_are_rejected() {
    let of = |lease, renew, retry| {
        let flags = LeaderElection {
            enable_leader_election: true,
            leader_election_release_on_cancel: true,
            leader_election_lease_duration: Duration::from_millis(lease),
            leader_election_renew_deadline: Duration::from_millis(renew),
            leader_election_retry_period: Duration::from_millis(retry),
        };
        Settings::from_flags(&flags, "n".into(), "ns".into(), "pod", &Generator::seeded(1))
    };
    let settings = of(35_000, 30_000, 5_000).unwrap().unwrap();
    assert!(settings.identity.starts_with("pod_") && settings.identity.len() == 40);
    assert_eq!(of(30_000, 30_000, 5_000).unwrap_err(), ElectionTimingError::Lease);
    assert_eq!(of(35_000, 6_000, 5_000).unwrap_err(), ElectionTimingError::Renew);
    assert_eq!(of(35_000, 6_000, 0).unwrap_err(), ElectionTimingError::Renew);
    assert_eq!(of(900, 800, 100).unwrap_err(), ElectionTimingError::Seconds);
    let off = LeaderElection {
        enable_leader_election: false,
        leader_election_release_on_cancel: true,
        leader_election_lease_duration: Duration::ZERO,
        leader_election_renew_deadline: Duration::ZERO,
        leader_election_retry_period: Duration::ZERO,
    };
    let none = Settings::from_flags(&off, "n".into(), "ns".into(), "pod", &Generator::seeded(1));
    assert!(none.unwrap().is_none());
}

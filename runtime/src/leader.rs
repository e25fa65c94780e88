//! One of several replicas leads: whoever holds a Lease. Candidates wait; the leader renews; who cannot renew in time is
//! no leader any more and its program ends.
//!
//! The rules are those of client-go, so that Sluice and Flux can follow each other on the same Lease: the Lease changes
//! by compare-and-swap on its `resourceVersion`; how long it has not changed is measured by the candidate's own steady
//! clock, so that clocks of machines need not agree; a Lease given up has no holder and a duration of one second.
//! One rule is stricter: the time of the leader counts from when a renewal was sent, not from when it was answered.

mod ballot;
mod lease;

use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::args::{LeaderElection, WatchScope};
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::random::{Random, uuid};
use crate::shutdown::Token;

use ballot::{Ballot, Outcome};

/// What [`Lead::hold`] waits for at most to give the Lease up.
const RESIGN: Duration = Duration::from_secs(3);
/// A candidate waits a retry period and up to this share of it more, so that candidates do not keep step.
const JITTER: f64 = 1.2;

/// Which Lease is stood for, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the Lease.
    pub name: String,
    /// Namespace of the Lease.
    pub namespace: String,
    /// Who stands: unique among all processes that ever stand for the Lease.
    pub identity: String,
    /// How long others respect the Lease after its last change.
    pub lease: Duration,
    /// How long the leader leads after its last renewal.
    pub renew: Duration,
    /// Wait between tries.
    pub retry: Duration,
    /// Whether the Lease is given up at the end.
    pub release: bool,
}

/// The flags of leader election do not go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTimes {
    /// Others would take over while the leader still tries.
    #[error("--leader-election-lease-duration must be longer than --leader-election-renew-deadline")]
    Lease,
    /// There would be no second try.
    #[error(
        "--leader-election-renew-deadline must be longer than 1.2 times --leader-election-retry-period, which must not be 0"
    )]
    Renew,
    /// A Lease counts in whole seconds.
    #[error("--leader-election-lease-duration must be between 1s and 24h")]
    Seconds,
}

impl Settings {
    /// The settings that flags ask for; none without `--enable-leader-election`.
    ///
    /// # Errors
    /// The times do not go together.
    pub fn of_flags(
        flags: &LeaderElection,
        name: String,
        namespace: String,
        host: &str,
        random: &dyn Random,
    ) -> Result<Option<Self>, BadTimes> {
        if !flags.enable_leader_election {
            return Ok(None);
        }
        let (lease, renew, retry) = (
            flags.leader_election_lease_duration,
            flags.leader_election_renew_deadline,
            flags.leader_election_retry_period,
        );
        if lease < Duration::from_secs(1) || lease > Duration::from_secs(24 * 60 * 60) {
            return Err(BadTimes::Seconds);
        }
        if lease <= renew {
            return Err(BadTimes::Lease);
        }
        if retry.is_zero() || renew <= retry.mul_f64(JITTER) {
            return Err(BadTimes::Renew);
        }
        Ok(Some(Self {
            name,
            namespace,
            identity: format!("{host}_{}", uuid(random)),
            lease,
            renew,
            retry,
            release: flags.leader_election_release_on_cancel,
        }))
    }
}

/// The name of a controller's Lease: instances with other label selectors do other work and stand for other Leases.
#[must_use]
pub fn lease_name(base: &str, selector: Option<&str>) -> String {
    selector.map_or_else(
        || base.to_owned(),
        |selector| format!("{base}-{}", &hex::encode(Sha256::digest(selector))[..8]),
    )
}

/// A program that may have to wait for its turn.
pub struct Program<'a> {
    /// Name of its Lease, for an instance without label selector.
    pub lease: &'a str,
    /// Its flags of leader election.
    pub flags: &'a LeaderElection,
    /// Which objects it watches: other shards have other Leases.
    pub scope: &'a WatchScope,
    /// Name of this machine or pod.
    pub host: &'a str,
    /// Reaches the API.
    pub client: &'a Client,
    /// Tells the time.
    pub clock: &'a Arc<dyn Clock>,
    /// Draws the identity, and jitter.
    pub random: &'a Arc<dyn Random>,
    /// Shows who leads.
    pub metrics: &'a Metrics,
}

/// Whether a program may work.
pub enum Turn {
    /// It need not stand.
    Always,
    /// As long as it leads.
    While(Box<Lead>),
    /// It was stopped before.
    Never,
}

impl Program<'_> {
    /// Waits for the turn. The Lease is in the namespace of the program: `RUNTIME_NAMESPACE`, else that of its client,
    /// which in a pod is the pod's.
    ///
    /// # Errors
    /// The times of the flags do not go together.
    pub async fn turn(&self, stop: &Token) -> Result<Turn, BadTimes> {
        let name = lease_name(self.lease, self.scope.labels());
        let namespace = match &*self.scope.runtime_namespace {
            "" => self.client.default_namespace(),
            namespace => namespace,
        };
        let settings = Settings::of_flags(self.flags, name, namespace.to_owned(), self.host, &**self.random)?;
        let Some(settings) = settings else {
            return Ok(Turn::Always);
        };
        let (clock, random) = (Arc::clone(self.clock), Arc::clone(self.random));
        let candidate = Candidate::new(self.client.clone(), settings, clock, random, self.metrics);
        let lead = candidate.campaign(stop).await;
        Ok(lead.map_or(Turn::Never, |lead| Turn::While(Box::new(lead))))
    }
}

impl Turn {
    /// Keeps the turn until `done`, which must come after all work has ended. Never ends otherwise, unless the turn is
    /// lost: then nothing may be done any more.
    pub async fn keep(self, done: &Token) -> Ended {
        match self {
            Self::While(lead) => lead.hold(done).await,
            Self::Always | Self::Never => {
                done.cancelled().await;
                Ended::Resigned
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabel {
    name: String,
}

/// One that waits for its turn.
pub struct Candidate {
    ballot: Ballot,
    settings: Settings,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    is_leader: Gauge,
}

impl Candidate {
    /// Prepares to stand; nothing is asked yet.
    #[must_use]
    pub fn new(
        client: Client,
        settings: Settings,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        metrics: &Metrics,
    ) -> Self {
        let status = Family::<NameLabel, Gauge>::default();
        metrics.register(
            "leader_election_master_status",
            "Whether this process holds the Lease of this name",
            status.clone(),
        );
        let label = NameLabel {
            name: settings.name.clone(),
        };
        let is_leader = status.get_or_create_owned(&label);
        let api = Api::namespaced(client, &settings.namespace);
        Self {
            ballot: Ballot::new(api, &settings),
            settings,
            clock,
            random,
            is_leader,
        }
    }

    /// Stands until it leads; none if `stop` comes first.
    pub async fn campaign(mut self, stop: &Token) -> Option<Lead> {
        let Settings {
            name,
            namespace,
            identity,
            ..
        } = &self.settings;
        tracing::info!(lease = %format!("{namespace}/{name}"), identity, "attempting to acquire leader lease");
        let mut told = None;
        loop {
            let limit = self.settings.renew / 2;
            let tried = tokio::select! {
                () = stop.cancelled() => return None,
                tried = attempt(&mut self.ballot, &*self.clock, limit) => tried,
            };
            match tried {
                Ok(Outcome::Leads) => {
                    self.is_leader.set(1);
                    tracing::info!(lease = self.settings.name, "successfully acquired lease");
                    return Some(Lead(self));
                }
                Ok(Outcome::Held(by)) if told.as_ref() == Some(&by) => {}
                Ok(Outcome::Held(by)) => {
                    tracing::info!(holder = by, "another instance leads");
                    told = Some(by);
                }
                Err(error) => tracing::error!(error, "cannot acquire leader lease"),
            }
            let wait = self
                .settings
                .retry
                .mul_f64(self.random.unit().mul_add(JITTER, 1.0));
            tokio::select! {
                () = stop.cancelled() => return None,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }
}

/// How a lead ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself: the work was done.
    Resigned,
    /// The Lease could not be renewed in time, or another one holds it: nothing may be done any more.
    Lost,
}

/// The one that leads.
pub struct Lead(Candidate);

impl Lead {
    /// Renews until `done`, which must come after all work has ended; then gives the Lease up.
    pub async fn hold(mut self, done: &Token) -> Ended {
        let ended = tokio::select! {
            () = done.cancelled() => Ended::Resigned,
            () = self.renew() => Ended::Lost,
        };
        self.0.is_leader.set(0);
        if ended == Ended::Resigned && self.0.settings.release {
            let now = self.0.clock.now();
            match tokio::time::timeout(RESIGN, self.0.ballot.resign(now)).await {
                Ok(Ok(())) => tracing::info!(lease = self.0.settings.name, "leader lease released"),
                Ok(Err(error)) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "leader lease not released"
                    );
                }
                Err(_) => tracing::warn!("leader lease not released in time"),
            }
        }
        ended
    }

    /// Returns once the lead is lost.
    async fn renew(&mut self) {
        let Candidate {
            ballot,
            settings,
            clock,
            ..
        } = &mut self.0;
        loop {
            tokio::time::sleep(settings.retry.min(ballot.left(Instant::now()))).await;
            let left = ballot.left(Instant::now());
            if left.is_zero() {
                tracing::error!(lease = settings.name, "leader election lost: not renewed in time");
                return;
            }
            match attempt(ballot, &**clock, left.min(settings.renew / 2)).await {
                Ok(Outcome::Leads) => {}
                Ok(Outcome::Held(by)) => {
                    tracing::error!(
                        lease = settings.name,
                        holder = by,
                        "leader election lost: another instance leads"
                    );
                    return;
                }
                Err(error) => tracing::error!(error, "cannot renew leader lease"),
            }
        }
    }
}

/// One try, bounded in time.
async fn attempt(ballot: &mut Ballot, clock: &dyn Clock, limit: Duration) -> Result<Outcome, String> {
    match tokio::time::timeout(limit, ballot.attempt(Instant::now, || clock.now())).await {
        Ok(Ok(outcome)) => Ok(outcome),
        Ok(Err(error)) => Err(crate::failure::chain(&error)),
        Err(_) => Err(format!("no answer of the API within {limit:?}")),
    }
}

#[cfg(test)]
mod tests;

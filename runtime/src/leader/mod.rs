//! Leader election with a Lease. Candidates wait; the leader renews the Lease and exits if it cannot renew in time.
//!
//! The rules are client-go's, so that Sluice and Flux can succeed each other on the same Lease: the Lease changes by
//! compare-and-swap on its `resourceVersion`; a candidate measures the time since the last change with its own monotonic
//! clock, so that the clocks of machines need not agree; a released Lease has no holder and a duration of one second.
//! One rule is stricter: the leader's time counts from when a renewal was sent, not from the response.

mod attempts;
mod lease;

use std::sync::Arc;
use std::time::Duration;

use attempts::{LeaseAttempts, Outcome};
use kube::{Api, Client};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::args::LeaderElection;
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::random::{Random, uuid};
use crate::shutdown::Token;

/// Timeout for releasing the Lease in [`Leader::hold`].
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum jitter that is added to the retry period, as a factor of it.
const JITTER: f64 = 1.2;

/// Settings of a leader election.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the Lease.
    pub name: String,
    /// Namespace of the Lease.
    pub namespace: String,
    /// Identity of the candidate: unique among all processes that use the Lease.
    pub identity: String,
    /// How long other candidates respect the Lease after its last change.
    pub lease: Duration,
    /// How long the leader keeps leadership after its last renewal.
    pub renew: Duration,
    /// Time between attempts.
    pub retry: Duration,
    /// Whether the Lease is released on shutdown.
    pub release: bool,
}

/// The leader election flags are inconsistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElectionTimingError {
    /// Another candidate could take over while the leader still renews.
    #[error("--leader-election-lease-duration must be longer than --leader-election-renew-deadline")]
    Lease,
    /// There would be no time for a second attempt.
    #[error(
        "--leader-election-renew-deadline must be longer than 1.2 times --leader-election-retry-period, which must not be 0"
    )]
    Renew,
    /// A Lease has a duration in whole seconds.
    #[error("--leader-election-lease-duration must be between 1s and 24h")]
    Seconds,
}

impl Settings {
    /// Returns the settings of the flags; `None` without `--enable-leader-election`.
    ///
    /// # Errors
    /// The durations are inconsistent.
    pub fn from_flags(
        flags: &LeaderElection,
        name: String,
        namespace: String,
        host: &str,
        random: &dyn Random,
    ) -> Result<Option<Self>, ElectionTimingError> {
        if !flags.enable_leader_election {
            return Ok(None);
        }
        let (lease, renew, retry) = (
            flags.leader_election_lease_duration,
            flags.leader_election_renew_deadline,
            flags.leader_election_retry_period,
        );
        if lease < Duration::from_secs(1) || lease > Duration::from_hours(24) {
            return Err(ElectionTimingError::Seconds);
        }
        if lease <= renew {
            return Err(ElectionTimingError::Lease);
        }
        if retry.is_zero() || renew <= retry.mul_f64(JITTER) {
            return Err(ElectionTimingError::Renew);
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

/// Returns the name of a controller's Lease: each label selector has a Lease of its own.
#[must_use]
pub(crate) fn lease_name(base: &str, selector: Option<&str>) -> String {
    selector.map_or_else(
        || base.to_owned(),
        |selector| format!("{base}-{}", &hex::encode(Sha256::digest(selector))[..8]),
    )
}

/// The leadership of a program.
pub enum Leadership {
    /// Leader election is disabled.
    Disabled,
    /// This process leads.
    Held(Box<Leader>),
    /// The program was stopped before it became the leader.
    Stopped,
}

impl Leadership {
    /// Keeps leadership until `done`, which the caller cancels after all work has ended. Returns earlier only if leadership
    /// is lost: then the program must stop its work immediately.
    pub async fn hold(self, done: &Token) -> LeadershipEnd {
        match self {
            Self::Held(lead) => lead.hold(done).await,
            Self::Disabled | Self::Stopped => {
                done.cancelled().await;
                LeadershipEnd::Released
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabel {
    name: String,
}

/// A candidate of a leader election.
pub struct Candidate {
    attempts: LeaseAttempts,
    settings: Settings,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    is_leader: Gauge,
}

impl Candidate {
    /// Creates a candidate; sends no request.
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
            attempts: LeaseAttempts::new(api, &settings),
            settings,
            clock,
            random,
            is_leader,
        }
    }

    /// Waits until the candidate leads; `None` if `stop` comes first.
    pub async fn acquire(mut self, stop: &Token) -> Option<Leader> {
        let Settings {
            name,
            namespace,
            identity,
            ..
        } = &self.settings;
        tracing::info!(lease = %format!("{namespace}/{name}"), identity, "attempting to acquire leader lease");
        let mut logged_holder = None;
        loop {
            let limit = self.settings.renew / 2;
            let tried = tokio::select! {
                () = stop.cancelled() => return None,
                tried = attempt(&mut self.attempts, &*self.clock, limit) => tried,
            };
            match tried {
                Ok(Outcome::Acquired) => {
                    self.is_leader.set(1);
                    tracing::info!(lease = self.settings.name, "successfully acquired lease");
                    return Some(Leader(self));
                }
                Ok(Outcome::HeldBy(by)) if logged_holder.as_ref() == Some(&by) => {}
                Ok(Outcome::HeldBy(by)) => {
                    tracing::info!(holder = by, "another instance is the leader");
                    logged_holder = Some(by);
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

/// How leadership ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeadershipEnd {
    /// The program finished its work.
    Released,
    /// The Lease was not renewed in time, or another candidate holds it: the program must stop its work immediately.
    Lost,
}

/// The leader.
pub struct Leader(Candidate);

impl Leader {
    /// Renews the Lease until `done`, which the caller cancels after all work has ended; then releases the Lease.
    pub async fn hold(mut self, done: &Token) -> LeadershipEnd {
        let ended = tokio::select! {
            () = done.cancelled() => LeadershipEnd::Released,
            () = self.renew() => LeadershipEnd::Lost,
        };
        self.0.is_leader.set(0);
        if ended == LeadershipEnd::Released && self.0.settings.release {
            let now = self.0.clock.now();
            match tokio::time::timeout(RELEASE_TIMEOUT, self.0.attempts.release(now)).await {
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

    /// Returns when leadership is lost.
    async fn renew(&mut self) {
        let Candidate {
            attempts,
            settings,
            clock,
            ..
        } = &mut self.0;
        loop {
            tokio::time::sleep(settings.retry.min(attempts.remaining(Instant::now()))).await;
            let left = attempts.remaining(Instant::now());
            if left.is_zero() {
                tracing::error!(lease = settings.name, "leader election lost: not renewed in time");
                return;
            }
            match attempt(attempts, &**clock, left.min(settings.renew / 2)).await {
                Ok(Outcome::Acquired) => {}
                Ok(Outcome::HeldBy(by)) => {
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

/// Makes one attempt with a timeout.
async fn attempt(
    attempts: &mut LeaseAttempts,
    clock: &dyn Clock,
    limit: Duration,
) -> Result<Outcome, String> {
    match tokio::time::timeout(limit, attempts.attempt(Instant::now, || clock.now())).await {
        Ok(Ok(outcome)) => Ok(outcome),
        Ok(Err(error)) => Err(crate::failure::chain(&error)),
        Err(_) => Err(format!("no response from the API within {limit:?}")),
    }
}

#[cfg(test)]
mod tests;

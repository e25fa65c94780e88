//! Single attempts to acquire, renew or release the Lease, and the resulting state.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use tokio::time::Instant;

use super::Settings;
use super::lease::{ObservedLease, new_spec};

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// This process holds the Lease.
    Acquired,
    /// Another candidate holds the Lease.
    HeldBy(String),
}

pub(super) struct LeaseAttempts {
    api: Api<Lease>,
    settings: Settings,
    seen: Option<ObservedLease>,
    /// The Lease as last written, to renew it without a read.
    written: Option<Lease>,
    /// When leadership ends without a renewal.
    until: Option<Instant>,
}

impl LeaseAttempts {
    pub(super) fn new(api: Api<Lease>, settings: &Settings) -> Self {
        Self {
            api,
            settings: settings.clone(),
            seen: None,
            written: None,
            until: None,
        }
    }

    /// Returns how long this process still leads.
    pub(super) fn remaining(&self, now: Instant) -> Duration {
        self.until
            .map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// Makes one attempt. Reads the clocks again after each response. Cancellation is safe: the next attempt detects a write
    /// that arrived nevertheless.
    pub(super) async fn attempt(
        &mut self,
        clock: impl Fn() -> Instant,
        wall: impl Fn() -> Timestamp,
    ) -> kube::Result<Outcome> {
        if let (Some(written), Some(seen)) = (self.written.take(), &self.seen) {
            let sent = clock();
            let spec = seen.acquire_spec(&self.settings.identity, self.settings.lease, wall());
            match self.replace(written, spec).await {
                Ok(lease) => return Ok(self.record_acquired(lease, sent)),
                // Another process wrote or deleted the Lease (the API reports a deletion as 500): read it.
                Err(kube::Error::Api(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let found = self.api.get_opt(&self.settings.name).await?;
        let now = clock();
        let Some(found) = found else {
            let spec = new_spec(&self.settings.identity, self.settings.lease, wall());
            let made = self
                .api
                .create(&PostParams::default(), &self.object(spec))
                .await?;
            return Ok(self.record_acquired(made, now));
        };
        let seen = ObservedLease::update(self.seen.take(), spec_of(&found), now);
        let held = seen.other_holder(&self.settings.identity, now).map(str::to_owned);
        let spec = seen.acquire_spec(&self.settings.identity, self.settings.lease, wall());
        self.seen = Some(seen);
        if let Some(by) = held {
            return Ok(Outcome::HeldBy(by));
        }
        let taken = self.replace(found, spec).await?;
        Ok(self.record_acquired(taken, now))
    }

    /// Releases the Lease if this process holds it.
    pub(super) async fn release(&mut self, now: Timestamp) -> kube::Result<()> {
        self.written = None;
        self.until = None;
        let Some(found) = self.api.get_opt(&self.settings.name).await? else {
            return Ok(());
        };
        let seen = ObservedLease::update(None, spec_of(&found), Instant::now());
        let Some(spec) = seen.release_spec(&self.settings.identity, now) else {
            return Ok(());
        };
        self.replace(found, spec).await.map(drop)
    }

    /// Records an acquired Lease. Leadership counts from when the request was sent, before others could observe it.
    fn record_acquired(&mut self, lease: Lease, sent: Instant) -> Outcome {
        self.seen = Some(ObservedLease::update(None, spec_of(&lease), sent));
        self.until = Some(sent + self.settings.renew);
        self.written = Some(lease);
        Outcome::Acquired
    }

    /// Replaces exactly this version.
    async fn replace(&self, lease: Lease, spec: LeaseSpec) -> kube::Result<Lease> {
        let next = Lease {
            spec: Some(spec),
            ..lease
        };
        self.api
            .replace(&self.settings.name, &PostParams::default(), &next)
            .await
    }

    fn object(&self, spec: LeaseSpec) -> Lease {
        Lease {
            metadata: ObjectMeta {
                name: Some(self.settings.name.clone()),
                namespace: Some(self.settings.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(spec),
        }
    }
}

fn spec_of(lease: &Lease) -> LeaseSpec {
    lease.spec.clone().unwrap_or_default()
}

//! Single tries to take, renew or give up the Lease, and what they have come to so far.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use tokio::time::Instant;

use super::Settings;
use super::lease::{Seen, first};

/// What a try came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The Lease is ours, from now for the time of a lead.
    Leads,
    /// Another one holds it.
    Held(String),
}

pub(super) struct Ballot {
    api: Api<Lease>,
    name: String,
    namespace: String,
    identity: String,
    lease: Duration,
    lead: Duration,
    seen: Option<Seen>,
    /// The Lease as we wrote it last, to renew it without reading.
    written: Option<Lease>,
    /// When the lead ends unless it is renewed.
    until: Option<Instant>,
}

impl Ballot {
    pub(super) fn new(api: Api<Lease>, settings: &Settings) -> Self {
        Self {
            api,
            name: settings.name.clone(),
            namespace: settings.namespace.clone(),
            identity: settings.identity.clone(),
            lease: settings.lease,
            lead: settings.renew,
            seen: None,
            written: None,
            until: None,
        }
    }

    /// How long this process still leads.
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.until
            .map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// One try. The clocks are asked again after each answer, since answers take time. Dropped half way it has neither
    /// taken nor lost anything: a write that arrives nevertheless is found by the next look.
    pub(super) async fn attempt(
        &mut self,
        clock: impl Fn() -> Instant,
        wall: impl Fn() -> Timestamp,
    ) -> kube::Result<Outcome> {
        if let (Some(written), Some(seen)) = (self.written.take(), &self.seen) {
            let sent = clock();
            let spec = seen.taken_by(&self.identity, self.lease, wall());
            match self.replace(written, spec).await {
                Ok(lease) => return Ok(self.leads(lease, sent)),
                // Somebody wrote, or deleted it (which the API tells by a plain 500): look.
                Err(kube::Error::Api(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let found = self.api.get_opt(&self.name).await?;
        let now = clock();
        let Some(found) = found else {
            let spec = first(&self.identity, self.lease, wall());
            let made = self
                .api
                .create(&PostParams::default(), &self.object(spec))
                .await?;
            return Ok(self.leads(made, now));
        };
        let seen = Seen::now(self.seen.take(), spec_of(&found), now);
        let held = seen.other(&self.identity, now).map(str::to_owned);
        let spec = seen.taken_by(&self.identity, self.lease, wall());
        self.seen = Some(seen);
        if let Some(by) = held {
            return Ok(Outcome::Held(by));
        }
        let taken = self.replace(found, spec).await?;
        Ok(self.leads(taken, now))
    }

    /// Gives the Lease up, if it is ours.
    pub(super) async fn resign(&mut self, now: Timestamp) -> kube::Result<()> {
        self.written = None;
        self.until = None;
        let Some(found) = self.api.get_opt(&self.name).await? else {
            return Ok(());
        };
        let seen = Seen::now(None, spec_of(&found), Instant::now());
        let Some(spec) = seen.given_up_by(&self.identity, now) else {
            return Ok(());
        };
        self.replace(found, spec).await.map(drop)
    }

    /// The API took it: the lead counts from when the request was sent, which is no later than when others saw it.
    fn leads(&mut self, lease: Lease, sent: Instant) -> Outcome {
        self.seen = Some(Seen::now(None, spec_of(&lease), sent));
        self.until = Some(sent + self.lead);
        self.written = Some(lease);
        Outcome::Leads
    }

    /// Writes over exactly this version.
    async fn replace(&self, lease: Lease, spec: LeaseSpec) -> kube::Result<Lease> {
        let next = Lease {
            spec: Some(spec),
            ..lease
        };
        self.api.replace(&self.name, &PostParams::default(), &next).await
    }

    fn object(&self, spec: LeaseSpec) -> Lease {
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(spec),
        }
    }
}

fn spec_of(lease: &Lease) -> LeaseSpec {
    lease.spec.clone().unwrap_or_default()
}

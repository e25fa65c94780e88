//! The requests of the load: creations, lists and changes.

use std::ops::Range;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Api, Client};
use serde::Deserialize;
use serde::de::IgnoredAny;
use sluice_tests::BoxError;

use super::kind::{self, Kind};
use super::watches::Watches;
use crate::results;

/// The objects of a kind on a server.
pub(crate) struct Objects {
    client: Client,
    kind: Kind,
    api: Api<DynamicObject>,
}

/// What is read of a list after its time was taken.
#[derive(Deserialize)]
struct Page {
    metadata: ListMeta,
    items: Vec<IgnoredAny>,
}

impl Objects {
    /// Prepares a server for objects of a kind.
    pub(crate) async fn prepare(client: &Client, kind: Kind) -> Result<Self, BoxError> {
        Ok(Self {
            client: client.clone(),
            kind,
            api: kind.prepare(client).await?,
        })
    }

    /// Returns their API.
    pub(crate) const fn api(&self) -> &Api<DynamicObject> {
        &self.api
    }

    /// Creates objects by concurrent writers, each with one request at a time. Returns the creations per second.
    pub(crate) async fn create(&self, numbers: Range<usize>, writers: usize) -> Result<f64, BoxError> {
        let (api, kind) = (&self.api, self.kind);
        let count = u64::try_from(numbers.len())?;
        let began = Instant::now();
        let creations = numbers.map(|number| async move {
            let object = kind.object(number)?;
            api.create(&PostParams::default(), &object).await?;
            Ok::<_, BoxError>(())
        });
        stream::iter(creations)
            .buffer_unordered(writers)
            .try_collect::<()>()
            .await?;
        Ok(results::number(count) / began.elapsed().as_secs_f64())
    }

    /// Returns the time of a full list, which must have this number of objects.
    pub(crate) async fn list(&self, expected: usize) -> Result<Duration, BoxError> {
        let (time, page) = self.page(&ListParams::default()).await?;
        check(page.items.len(), expected)?;
        Ok(time)
    }

    /// Returns the times of the pages of a list with this limit. The pages must have this number of objects together.
    pub(crate) async fn list_pages(&self, limit: u32, expected: usize) -> Result<Vec<Duration>, BoxError> {
        let mut params = ListParams::default().limit(limit);
        let mut times = Vec::new();
        let mut found = 0;
        loop {
            let (time, page) = self.page(&params).await?;
            times.push(time);
            found += page.items.len();
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break,
            }
        }
        check(found, expected)?;
        Ok(times)
    }

    async fn page(&self, params: &ListParams) -> Result<(Duration, Page), BoxError> {
        let request = Request::new(self.api.resource_url()).list(params)?;
        let began = Instant::now();
        let body = self.client.request_text(request).await?;
        let time = began.elapsed();
        Ok((time, serde_json::from_str(&body)?))
    }

    /// Changes objects one after the other. Returns the times from each request until the last watch has received the event.
    pub(crate) async fn change(
        &self,
        changes: usize,
        watches: &mut Watches,
    ) -> Result<Vec<Duration>, BoxError> {
        let mut times = Vec::new();
        for number in 0..changes {
            let began = Instant::now();
            let version = self.change_one(number).await?;
            let received = watches.wait_for(&version).await?;
            times.push(received.saturating_duration_since(began));
        }
        Ok(times)
    }

    /// Changes one object. Returns its version.
    pub(crate) async fn change_one(&self, number: usize) -> Result<String, BoxError> {
        let patch = Patch::Merge(self.kind.change(number));
        let changed = self
            .api
            .patch(&kind::name(number), &PatchParams::default(), &patch)
            .await?;
        Ok(changed.metadata.resource_version.unwrap_or_default())
    }
}

fn check(found: usize, expected: usize) -> Result<(), BoxError> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("a list has {found} objects instead of {expected}").into())
    }
}

//! Tests of the cache: retention, eviction and shared exchanges.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use sluice_runtime::clock::Clock as _;
use tokio::sync::Notify;

use super::*;
use crate::identity::cache::{Cache, Expiring};
use crate::identity::error::TokenError;
use crate::identity::metrics::CacheMetrics;

#[derive(Clone, Debug, PartialEq, Eq)]
struct TestToken {
    text: String,
    expires: Option<Timestamp>,
}

impl Expiring for TestToken {
    fn expires(&self) -> Option<Timestamp> {
        self.expires
    }
}

/// A cache, and the number of exchanges.
struct CacheFixture {
    cache: Cache<TestToken>,
    clock: Arc<ManualClock>,
    metrics: Metrics,
    exchanges: Arc<AtomicUsize>,
}

impl CacheFixture {
    fn new(size: usize, max_age: Duration) -> Self {
        let clock = Arc::new(ManualClock::new(now()));
        let metrics = Metrics::new();
        let settings = CacheSettings { size, max_age };
        let cache = Cache::new(settings, clock.clone(), CacheMetrics::new(&metrics));
        Self {
            cache,
            clock,
            metrics,
            exchanges: Arc::default(),
        }
    }

    /// Returns the token of an identity, with this lifetime.
    async fn get(&self, identity: u8, lifetime: Option<Duration>) -> String {
        let number = Arc::clone(&self.exchanges);
        let expires = lifetime.map(|lifetime| self.clock.now().checked_add(lifetime).unwrap());
        let exchange = move || {
            let number = number.fetch_add(1, Ordering::Relaxed);
            let text = format!("{identity}:{number}");
            async move { Ok(TestToken { text, expires }) }.boxed()
        };
        let name = format!("o{identity}");
        let result = self.cache.get([identity; 32], &object(&name), exchange).await;
        result.unwrap().token.text
    }

    fn has_metric(&self, line: &str) -> bool {
        let text = self.metrics.text();
        text.lines().any(|found| found == line)
    }
}

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

#[tokio::test]
async fn a_token_is_cached_for_four_fifths_of_its_lifetime_and_at_most_an_hour() {
    for (max_age, lifetime, cached) in [
        (HOUR, Some(Duration::from_secs(100)), 80),
        (HOUR, Some(DAY), 3600),
        (DAY, Some(DAY), 3600),
        (HOUR, None, 3600),
        (Duration::from_secs(10), Some(HOUR), 10),
    ] {
        let fixture = CacheFixture::new(10, max_age);
        let first = fixture.get(1, lifetime).await;
        fixture.clock.advance(Duration::from_secs(cached - 1));
        assert_eq!(fixture.get(1, lifetime).await, first, "{max_age:?} {lifetime:?}");
        fixture.clock.advance(Duration::from_secs(1));
        assert_ne!(fixture.get(1, lifetime).await, first, "{max_age:?} {lifetime:?}");
    }
}

#[tokio::test]
async fn an_expired_token_is_not_cached() {
    let fixture = CacheFixture::new(10, HOUR);
    assert_eq!(fixture.get(1, Some(Duration::ZERO)).await, "1:0");
    assert_eq!(fixture.get(1, Some(Duration::ZERO)).await, "1:1");
    assert!(fixture.has_metric("gotk_token_cached_items 0"));
}

#[tokio::test]
async fn the_least_recently_used_token_is_evicted() {
    let fixture = CacheFixture::new(2, HOUR);
    for identity in [1, 2, 1, 3] {
        fixture.get(identity, None).await;
    }
    assert_eq!(fixture.get(1, None).await, "1:0", "used after 2");
    assert_eq!(fixture.get(2, None).await, "2:3");
    assert!(
        fixture.has_metric("gotk_token_cache_evictions_total 2"),
        "{}",
        fixture.metrics.text()
    );
    assert!(fixture.has_metric("gotk_token_cached_items 2"));
}

#[tokio::test]
async fn size_zero_disables_the_cache_and_its_metrics() {
    let fixture = CacheFixture::new(0, HOUR);
    assert_eq!(fixture.get(1, None).await, "1:0");
    assert_eq!(fixture.get(1, None).await, "1:1");
    assert!(!fixture.metrics.text().contains("cache_miss"));
}

#[tokio::test]
async fn concurrent_requests_share_one_exchange() {
    let fixture = Arc::new(CacheFixture::new(10, HOUR));
    let go = Arc::new(Notify::new());
    let request = || {
        let (fixture, go) = (Arc::clone(&fixture), Arc::clone(&go));
        async move {
            let exchanges = Arc::clone(&fixture.exchanges);
            let exchange = move || {
                async move {
                    exchanges.fetch_add(1, Ordering::Relaxed);
                    go.notified().await;
                    Ok(TestToken {
                        text: "one".to_owned(),
                        expires: None,
                    })
                }
                .boxed()
            };
            fixture.cache.get([1; 32], &object("o1"), exchange).await
        }
    };
    // The task that started the exchange is dropped; the others still get its result.
    let mut first = Box::pin(request());
    assert!(first.as_mut().now_or_never().is_none());
    let mut others: Vec<_> = (0..20).map(|_| Box::pin(request())).collect();
    for other in &mut others {
        assert!(other.as_mut().now_or_never().is_none());
    }
    drop(first);
    go.notify_one();
    for result in tokio::time::timeout(LIMIT, futures::future::join_all(others))
        .await
        .unwrap()
    {
        assert_eq!(result.unwrap().token.text, "one");
    }
    assert_eq!(fixture.exchanges.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn an_abandoned_exchange_is_restarted() {
    let fixture = CacheFixture::new(10, HOUR);
    {
        let never = || futures::future::pending::<Result<TestToken, TokenError>>().boxed();
        let name = object("o1");
        let mut given_up = Box::pin(fixture.cache.get([1; 32], &name, never));
        assert!(given_up.as_mut().now_or_never().is_none());
    }
    let result = tokio::time::timeout(LIMIT, fixture.get(1, None)).await.unwrap();
    assert_eq!(result, "1:0");
}

#[tokio::test]
async fn a_failure_reaches_all_waiting_tasks_and_is_not_cached() {
    let fixture = CacheFixture::new(10, HOUR);
    let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
    let failing = move || {
        async move {
            receiver.await.unwrap();
            Err(TokenError::TimedOut(HOUR))
        }
        .boxed()
    };
    let unused = || futures::future::pending::<Result<TestToken, TokenError>>().boxed();
    let name = object("o1");
    let mut first = Box::pin(fixture.cache.get([1; 32], &name, failing));
    assert!(first.as_mut().now_or_never().is_none());
    let mut second = Box::pin(fixture.cache.get([1; 32], &name, unused));
    assert!(second.as_mut().now_or_never().is_none());
    sender.send(()).unwrap();
    assert!(first.await.is_err());
    assert!(second.await.is_err());
    assert_eq!(fixture.get(1, None).await, "1:0");
    assert!(fixture.has_metric("gotk_token_cache_requests_total{status=\"failure\"} 2"));
    assert!(fixture.has_metric("gotk_token_cache_requests_total{status=\"success\"} 1"));
}

#[tokio::test]
async fn metrics_have_the_names_of_flux_and_are_removed_with_their_object() {
    let fixture = CacheFixture::new(10, HOUR);
    for _ in 0..3 {
        fixture.get(1, None).await;
    }
    fixture.get(2, None).await;
    let event = |kind: &str, object: &str, count: u8| {
        format!(
            "gotk_token_cache_events_total{{event_type=\"{kind}\",kind=\"GitRepository\",name=\"{object}\",namespace=\"team\",operation=\"reconcile\"}} {count}"
        )
    };
    assert!(
        fixture.has_metric(&event("cache_miss", "o1", 1)),
        "{}",
        fixture.metrics.text()
    );
    assert!(fixture.has_metric(&event("cache_hit", "o1", 2)));
    assert!(fixture.has_metric("gotk_token_cached_items 2"));
    assert!(fixture.has_metric("gotk_token_cache_requests_total{status=\"success\"} 4"));
    fixture.metrics.forget("Terraform", &object("o1"));
    assert!(fixture.has_metric(&event("cache_hit", "o1", 2)));
    fixture.metrics.forget("GitRepository", &object("o1"));
    assert!(!fixture.metrics.text().contains("o1"));
    assert!(fixture.has_metric(&event("cache_miss", "o2", 1)));
}

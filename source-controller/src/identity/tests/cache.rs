//! The cache by itself: what it keeps, for how long, and who waits for whom.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use sluice_runtime::clock::Clock as _;
use tokio::sync::Notify;

use super::*;
use crate::identity::cache::{Cache, Mortal};
use crate::identity::error::TokenError;
use crate::identity::series::Series;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Ticket {
    text: String,
    expires: Option<Timestamp>,
}

impl Mortal for Ticket {
    fn expires(&self) -> Option<Timestamp> {
        self.expires
    }
}

/// A cache, and how many exchanges there were.
struct Counter {
    cache: Cache<Ticket>,
    clock: Arc<ManualClock>,
    metrics: Metrics,
    exchanges: Arc<AtomicUsize>,
}

impl Counter {
    fn new(size: usize, longest: Duration) -> Self {
        let clock = Arc::new(ManualClock::new(now()));
        let metrics = Metrics::new();
        let settings = CacheSettings { size, longest };
        let cache = Cache::new(settings, clock.clone(), Series::new(&metrics));
        Self {
            cache,
            clock,
            metrics,
            exchanges: Arc::default(),
        }
    }

    /// The ticket of `who`, which lives so long.
    async fn get(&self, who: u8, life: Option<Duration>) -> String {
        let number = Arc::clone(&self.exchanges);
        let expires = life.map(|life| self.clock.now().checked_add(life).unwrap());
        let exchange = move || {
            let number = number.fetch_add(1, Ordering::Relaxed);
            let text = format!("{who}:{number}");
            async move { Ok(Ticket { text, expires }) }.boxed()
        };
        let name = format!("o{who}");
        let got = self.cache.get([who; 32], &object(&name), exchange).await;
        got.unwrap().token.text
    }

    fn shows(&self, line: &str) -> bool {
        let text = self.metrics.text();
        text.lines().any(|found| found == line)
    }
}

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

#[tokio::test]
async fn a_ticket_is_kept_for_four_fifths_of_its_life_and_an_hour_at_most() {
    for (longest, life, kept) in [
        (HOUR, Some(Duration::from_secs(100)), 80),
        (HOUR, Some(DAY), 3600),
        (DAY, Some(DAY), 3600),
        (HOUR, None, 3600),
        (Duration::from_secs(10), Some(HOUR), 10),
    ] {
        let counter = Counter::new(10, longest);
        let first = counter.get(1, life).await;
        counter.clock.advance(Duration::from_secs(kept - 1));
        assert_eq!(counter.get(1, life).await, first, "{longest:?} {life:?}");
        counter.clock.advance(Duration::from_secs(1));
        assert_ne!(counter.get(1, life).await, first, "{longest:?} {life:?}");
    }
}

#[tokio::test]
async fn a_ticket_that_has_expired_on_arrival_is_used_once() {
    let counter = Counter::new(10, HOUR);
    assert_eq!(counter.get(1, Some(Duration::ZERO)).await, "1:0");
    assert_eq!(counter.get(1, Some(Duration::ZERO)).await, "1:1");
    assert!(counter.shows("gotk_token_cached_items 0"));
}

#[tokio::test]
async fn the_one_used_longest_ago_makes_room() {
    let counter = Counter::new(2, HOUR);
    for who in [1, 2, 1, 3] {
        counter.get(who, None).await;
    }
    assert_eq!(counter.get(1, None).await, "1:0", "looked at after 2");
    assert_eq!(counter.get(2, None).await, "2:3");
    assert!(
        counter.shows("gotk_token_cache_evictions_total 2"),
        "{}",
        counter.metrics.text()
    );
    assert!(counter.shows("gotk_token_cached_items 2"));
}

#[tokio::test]
async fn a_size_of_nothing_keeps_nothing_and_counts_nothing() {
    let counter = Counter::new(0, HOUR);
    assert_eq!(counter.get(1, None).await, "1:0");
    assert_eq!(counter.get(1, None).await, "1:1");
    assert!(!counter.metrics.text().contains("cache_miss"));
}

#[tokio::test]
async fn many_who_ask_at_once_cause_one_exchange() {
    let counter = Arc::new(Counter::new(10, HOUR));
    let go = Arc::new(Notify::new());
    let ask = || {
        let (counter, go) = (Arc::clone(&counter), Arc::clone(&go));
        async move {
            let exchanges = Arc::clone(&counter.exchanges);
            let exchange = move || {
                async move {
                    exchanges.fetch_add(1, Ordering::Relaxed);
                    go.notified().await;
                    Ok(Ticket {
                        text: "one".to_owned(),
                        expires: None,
                    })
                }
                .boxed()
            };
            counter.cache.get([1; 32], &object("o1"), exchange).await
        }
    };
    // The first, who began it, goes away; the others are served all the same.
    let mut first = Box::pin(ask());
    assert!(first.as_mut().now_or_never().is_none());
    let mut others: Vec<_> = (0..20).map(|_| Box::pin(ask())).collect();
    for other in &mut others {
        assert!(other.as_mut().now_or_never().is_none());
    }
    drop(first);
    go.notify_one();
    for got in tokio::time::timeout(LIMIT, futures::future::join_all(others))
        .await
        .unwrap()
    {
        assert_eq!(got.unwrap().token.text, "one");
    }
    assert_eq!(counter.exchanges.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn an_exchange_that_nobody_waits_for_any_more_is_begun_anew() {
    let counter = Counter::new(10, HOUR);
    {
        let never = || futures::future::pending::<Result<Ticket, TokenError>>().boxed();
        let name = object("o1");
        let mut given_up = Box::pin(counter.cache.get([1; 32], &name, never));
        assert!(given_up.as_mut().now_or_never().is_none());
    }
    let got = tokio::time::timeout(LIMIT, counter.get(1, None)).await.unwrap();
    assert_eq!(got, "1:0");
}

#[tokio::test]
async fn a_failure_is_told_to_all_who_waited_and_not_kept() {
    let counter = Counter::new(10, HOUR);
    let (tell, told) = tokio::sync::oneshot::channel::<()>();
    let failing = move || {
        async move {
            told.await.unwrap();
            Err(TokenError::TimedOut(HOUR))
        }
        .boxed()
    };
    let unused = || futures::future::pending::<Result<Ticket, TokenError>>().boxed();
    let name = object("o1");
    let mut first = Box::pin(counter.cache.get([1; 32], &name, failing));
    assert!(first.as_mut().now_or_never().is_none());
    let mut second = Box::pin(counter.cache.get([1; 32], &name, unused));
    assert!(second.as_mut().now_or_never().is_none());
    tell.send(()).unwrap();
    assert!(first.await.is_err());
    assert!(second.await.is_err());
    assert_eq!(counter.get(1, None).await, "1:0");
    assert!(counter.shows("gotk_token_cache_requests_total{status=\"failure\"} 2"));
    assert!(counter.shows("gotk_token_cache_requests_total{status=\"success\"} 1"));
}

#[tokio::test]
async fn series_have_the_names_that_dashboards_read_and_go_with_their_object() {
    let counter = Counter::new(10, HOUR);
    for _ in 0..3 {
        counter.get(1, None).await;
    }
    counter.get(2, None).await;
    let event = |kind: &str, object: &str, count: u8| {
        format!(
            "gotk_token_cache_events_total{{event_type=\"{kind}\",kind=\"GitRepository\",name=\"{object}\",namespace=\"team\",operation=\"reconcile\"}} {count}"
        )
    };
    assert!(
        counter.shows(&event("cache_miss", "o1", 1)),
        "{}",
        counter.metrics.text()
    );
    assert!(counter.shows(&event("cache_hit", "o1", 2)));
    assert!(counter.shows("gotk_token_cached_items 2"));
    assert!(counter.shows("gotk_token_cache_requests_total{status=\"success\"} 4"));
    counter.metrics.forget("Terraform", &object("o1"));
    assert!(counter.shows(&event("cache_hit", "o1", 2)));
    counter.metrics.forget("GitRepository", &object("o1"));
    assert!(!counter.metrics.text().contains("o1"));
    assert!(counter.shows(&event("cache_miss", "o2", 1)));
}

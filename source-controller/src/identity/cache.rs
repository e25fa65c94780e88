//! Cache of tokens by identity. Concurrent requests for one identity share one exchange.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};
use sluice_runtime::clock::Clock;
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::sync::lock;

use super::error::TokenError;
use super::metrics::CacheMetrics;

/// Upper bound of the caching time, regardless of the flag.
const MAX_AGE: Duration = Duration::from_hours(1);

/// Limits of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// Maximum number of tokens; zero disables the cache.
    pub size: usize,
    /// Maximum caching time; values above one hour count as one hour.
    pub max_age: Duration,
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            size: 100,
            max_age: MAX_AGE,
        }
    }
}

/// A value that may expire.
pub(super) trait Expiring: Clone + Send + Sync + 'static {
    /// The time of expiry, if any.
    fn expires(&self) -> Option<Timestamp>;
}

/// A token exchange. Independent of the reconciliation that started it, since others may await it too.
pub(super) type Exchange<T> = BoxFuture<'static, Result<T, TokenError>>;

/// A token with the serial number of its exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IssuedToken<T> {
    /// The token.
    pub(super) token: T,
    /// Unique for each exchange.
    pub(super) number: u64,
}

/// The cached tokens.
pub(super) struct Cache<T: Expiring> {
    state: Mutex<State<T>>,
    settings: CacheSettings,
    clock: Arc<dyn Clock>,
    metrics: CacheMetrics,
}

struct State<T: Expiring> {
    entries: HashMap<[u8; 32], CacheEntry<T>>,
    running: HashMap<[u8; 32], RunningExchange<T>>,
    /// Counter of lookups and exchanges.
    count: u64,
}

struct CacheEntry<T> {
    issued: IssuedToken<T>,
    until: Timestamp,
    /// Counter value at the last lookup.
    used: u64,
}

/// A running exchange. It is cancelled when nothing awaits it.
struct RunningExchange<T: Expiring> {
    number: u64,
    result: WeakShared<Exchange<T>>,
}

impl<T: Expiring> Cache<T> {
    /// Creates an empty cache.
    pub(super) fn new(settings: CacheSettings, clock: Arc<dyn Clock>, metrics: CacheMetrics) -> Self {
        let state = State {
            entries: HashMap::new(),
            running: HashMap::new(),
            count: 0,
        };
        Self {
            state: Mutex::new(state),
            settings,
            clock,
            metrics,
        }
    }

    /// Returns the token of an identity: from the cache, a running exchange, or a new one.
    ///
    /// # Errors
    /// The exchange failed. Failures are not cached.
    pub(super) async fn get(
        &self,
        fingerprint: [u8; 32],
        object: &ObjectKey,
        exchange: impl FnOnce() -> Exchange<T>,
    ) -> Result<IssuedToken<T>, TokenError> {
        if self.settings.size == 0 {
            let token = exchange().await?;
            let number = self.state().next();
            return Ok(IssuedToken { token, number });
        }
        let result = match self.lookup(fingerprint) {
            Lookup::Cached(issued) => {
                self.metrics.record_lookup(object, true);
                Ok(issued)
            }
            Lookup::Running(number, result) => {
                self.metrics.record_lookup(object, true);
                self.finish_exchange(fingerprint, number, result).await
            }
            Lookup::Missing => {
                self.metrics.record_lookup(object, false);
                let (number, result) = self.start_exchange(fingerprint, exchange);
                self.finish_exchange(fingerprint, number, result).await
            }
        };
        self.metrics.record_request(result.is_ok());
        result
    }

    /// Removes the token of an identity, unless it has been renewed.
    pub(super) fn remove(&self, fingerprint: [u8; 32], number: u64) {
        let mut state = self.state();
        if state
            .entries
            .get(&fingerprint)
            .is_some_and(|entry| entry.issued.number == number)
        {
            state.entries.remove(&fingerprint);
        }
        self.metrics.set_items(state.entries.len());
    }

    fn lookup(&self, fingerprint: [u8; 32]) -> Lookup<T> {
        let now = self.clock.now();
        let mut state = self.state();
        let used = state.next();
        if let Some(entry) = state.entries.get_mut(&fingerprint)
            && entry.until > now
        {
            entry.used = used;
            return Lookup::Cached(entry.issued.clone());
        }
        let exchange = state.running.get(&fingerprint);
        match exchange.and_then(|exchange| Some((exchange.number, exchange.result.upgrade()?))) {
            Some((number, result)) => Lookup::Running(number, result),
            None => Lookup::Missing,
        }
    }

    fn start_exchange(
        &self,
        fingerprint: [u8; 32],
        exchange: impl FnOnce() -> Exchange<T>,
    ) -> (u64, Shared<Exchange<T>>) {
        let mut state = self.state();
        // Another task may have started an exchange since the lookup.
        if let Some(exchange) = state.running.get(&fingerprint)
            && let Some(result) = exchange.result.upgrade()
        {
            return (exchange.number, result);
        }
        let number = state.next();
        let result = exchange().shared();
        if let Some(weak) = result.downgrade() {
            let exchange = RunningExchange { number, result: weak };
            state.running.insert(fingerprint, exchange);
        }
        (number, result)
    }

    async fn finish_exchange(
        &self,
        fingerprint: [u8; 32],
        number: u64,
        result: Shared<Exchange<T>>,
    ) -> Result<IssuedToken<T>, TokenError> {
        let result = result.await;
        let mut state = self.state();
        // The first of the waiting tasks caches the token.
        let first = state
            .running
            .get(&fingerprint)
            .is_some_and(|exchange| exchange.number == number);
        if first {
            state.running.remove(&fingerprint);
        }
        let issued = IssuedToken {
            token: result?,
            number,
        };
        if first {
            self.insert(&mut state, fingerprint, issued.clone());
        }
        Ok(issued)
    }

    fn insert(&self, state: &mut State<T>, fingerprint: [u8; 32], issued: IssuedToken<T>) {
        let now = self.clock.now();
        state.entries.retain(|_, entry| entry.until > now);
        let until = now
            .checked_add(self.lifetime(issued.token.expires(), now))
            .unwrap_or(now);
        if until > now {
            if state.entries.len() >= self.settings.size && !state.entries.contains_key(&fingerprint) {
                let oldest = state.entries.iter().min_by_key(|(_, entry)| entry.used);
                if let Some(oldest) = oldest.map(|(fingerprint, _)| *fingerprint) {
                    state.entries.remove(&oldest);
                    self.metrics.record_eviction();
                }
            }
            let used = state.next();
            state
                .entries
                .insert(fingerprint, CacheEntry { issued, until, used });
        }
        self.metrics.set_items(state.entries.len());
    }

    /// Returns the caching time of a token: four fifths of its remaining lifetime, within the limits.
    fn lifetime(&self, expires: Option<Timestamp>, now: Timestamp) -> SignedDuration {
        let max_age =
            SignedDuration::try_from(self.settings.max_age.min(MAX_AGE)).unwrap_or(SignedDuration::ZERO);
        expires.map_or(max_age, |expires| {
            let remaining = expires.duration_since(now);
            max_age.min(remaining.saturating_mul(4) / 5)
        })
    }

    /// The state is consistent after each statement, so a poisoned lock can be used.
    fn state(&self) -> MutexGuard<'_, State<T>> {
        lock(&self.state)
    }
}

impl<T: Expiring> State<T> {
    const fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }
}

/// The result of a lookup.
enum Lookup<T: Expiring> {
    Cached(IssuedToken<T>),
    Running(u64, Shared<Exchange<T>>),
    Missing,
}

/// A fingerprint under construction. Each part is prefixed with its length, so that different lists never collide.
pub(super) struct Fingerprint(Sha256);

impl Fingerprint {
    /// Starts a fingerprint for a provider.
    pub(super) fn new(provider: &str) -> Self {
        Self(Sha256::new()).with(provider)
    }

    /// Adds a part, which may be secret: only the digest is stored.
    pub(super) fn with(self, part: impl AsRef<[u8]>) -> Self {
        let part = part.as_ref();
        Self(self.0.chain_update(part.len().to_be_bytes()).chain_update(part))
    }

    /// Returns the digest.
    pub(super) fn digest(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

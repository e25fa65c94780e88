//! One connection pool for each combination of authorities, client certificate and proxy. Objects with equal settings
//! share a pool, so a poll finds an open connection. Objects with different settings never share a connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::Full;
use sluice_runtime::http::{HttpClient, Proxy, Route, Settings, TlsError, certificates, client};
use sluice_runtime::sync::lock;
use tokio::time::Instant;

use super::super::tls::Tls;

/// Maximum number of pools. One with its own authorities holds a copy of those of the system too, about 100 KiB.
const MAX_POOLS: usize = 200;

/// A connection pool.
pub(crate) type Pool = HttpClient<Full<Bytes>>;

/// Settings that decide which connections can be shared.
type ConnectionTerms = (Arc<Tls>, Option<Arc<Proxy>>);

/// All connection pools.
pub(super) struct Pools {
    /// Settings that all pools share.
    settings: Settings,
    /// Pool for objects without TLS settings and proxy, the most frequent case.
    default: Pool,
    by_terms: Mutex<HashMap<ConnectionTerms, CachedPool>>,
}

struct CachedPool {
    pool: Pool,
    last_used: Instant,
}

impl Pools {
    /// Creates the default pool without connections.
    pub(super) fn new(settings: &Settings) -> Result<Self, TlsError> {
        Ok(Self {
            settings: settings.clone(),
            default: client(settings)?,
            by_terms: Mutex::default(),
        })
    }

    /// Returns the pool for these settings and creates it if necessary.
    pub(super) fn get(&self, tls: &Arc<Tls>, proxy: Option<&Arc<Proxy>>) -> Result<Pool, TlsError> {
        if proxy.is_none() && **tls == Tls::default() {
            return Ok(self.default.clone());
        }
        self.get_at(tls, proxy, Instant::now())
    }

    fn get_at(&self, tls: &Arc<Tls>, proxy: Option<&Arc<Proxy>>, now: Instant) -> Result<Pool, TlsError> {
        let terms = (Arc::clone(tls), proxy.cloned());
        let mut by_terms = lock(&self.by_terms);
        if let Some(cached) = by_terms.get_mut(&terms) {
            cached.last_used = now;
            return Ok(cached.pool.clone());
        }
        let pool = self.build(tls, proxy)?;
        // Pools that were idle for that long have no open connections.
        by_terms.retain(|_, cached| now.duration_since(cached.last_used) <= self.settings.idle_timeout);
        if by_terms.len() >= MAX_POOLS
            && let Some(oldest) = by_terms.iter().min_by_key(|(_, cached)| cached.last_used)
        {
            let oldest = oldest.0.clone();
            by_terms.remove(&oldest);
        }
        let cached = CachedPool {
            pool: pool.clone(),
            last_used: now,
        };
        by_terms.insert(terms, cached);
        Ok(pool)
    }

    fn build(&self, tls: &Tls, proxy: Option<&Arc<Proxy>>) -> Result<Pool, TlsError> {
        let mut settings = self.settings.clone();
        settings.extra_roots.extend(certificates(&tls.authorities));
        settings.identity.clone_from(&tls.identity);
        if let Some(proxy) = proxy {
            settings.route = Route::Through(Arc::clone(proxy));
        }
        client(&settings)
    }

    /// Returns the route of requests without their own proxy.
    pub(super) const fn route(&self) -> &Route {
        &self.settings.route
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn pools() -> Pools {
        let settings = Settings {
            system_roots: false,
            ..Settings::default()
        };
        Pools::new(&settings).unwrap()
    }

    fn tls(authorities: &str) -> Arc<Tls> {
        Arc::new(Tls {
            authorities: authorities.into(),
            identity: None,
        })
    }

    #[test]
    fn equal_settings_share_a_pool_and_idle_pools_are_removed() {
        let (pools, start) = (pools(), Instant::now());
        let proxy = Arc::new(Proxy::new("http://p", Some("u"), None).unwrap());
        let other = Arc::new(Proxy::new("http://p", Some("v"), None).unwrap());
        for (tls, proxy, count) in [
            (tls(""), None, 0),
            (tls("a"), None, 1),
            (tls("a"), None, 1),
            (tls("b"), None, 2),
            (tls(""), Some(&proxy), 3),
            (tls(""), Some(&other), 4),
            (tls("a"), Some(&proxy), 5),
        ] {
            // The default pool is not in the map.
            let pool = match count {
                0 => pools.get(&tls, proxy),
                _ => pools.get_at(&tls, proxy, start),
            };
            pool.unwrap();
            assert_eq!(pools.by_terms.lock().unwrap().len(), count);
        }
        let later = start + Duration::from_secs(61);
        pools.get_at(&tls("c"), None, later).unwrap();
        assert_eq!(pools.by_terms.lock().unwrap().len(), 1);
    }

    #[test]
    fn the_number_of_pools_is_limited() {
        let (pools, start) = (pools(), Instant::now());
        for number in 0..MAX_POOLS + 10 {
            let later = start + Duration::from_millis(number as u64);
            pools.get_at(&tls(&number.to_string()), None, later).unwrap();
        }
        let by_terms = pools.by_terms.lock().unwrap();
        assert_eq!(by_terms.len(), MAX_POOLS);
        assert!(by_terms.contains_key(&(tls(&(MAX_POOLS + 9).to_string()), None)));
        assert!(!by_terms.contains_key(&(tls("9"), None)));
    }
}

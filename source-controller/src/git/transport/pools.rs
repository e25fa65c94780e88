//! One pool of connections for each distinct way to make them: authorities, client certificate, proxy. Objects that say
//! the same share one, so that a poll finds a kept connection; no connection serves an object that says otherwise.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::Full;
use sluice_runtime::http::{HttpClient, Proxy, Route, Settings, TlsError, certificates, client};
use tokio::time::Instant;

use super::super::tls::Tls;

/// Pools that are kept at once. Each holds a copy of the system's authorities, about 100 KiB.
const KEPT: usize = 200;

/// A pool.
pub(crate) type Pool = HttpClient<Full<Bytes>>;

/// How connections of one pool are made.
type Terms = (Arc<Tls>, Option<Arc<Proxy>>);

/// All pools.
pub(super) struct Pools {
    /// What all have in common.
    settings: Settings,
    /// For objects that say nothing about TLS and proxies, which is most of them.
    usual: Pool,
    special: Mutex<HashMap<Terms, Kept>>,
}

struct Kept {
    pool: Pool,
    used: Instant,
}

impl Pools {
    /// Without any connection yet.
    pub(super) fn new(settings: &Settings) -> Result<Self, TlsError> {
        Ok(Self {
            settings: settings.clone(),
            usual: client(settings)?,
            special: Mutex::default(),
        })
    }

    /// The pool for these terms: kept, or made now.
    pub(super) fn get(&self, tls: &Arc<Tls>, proxy: Option<&Arc<Proxy>>) -> Result<Pool, TlsError> {
        if **tls == Tls::default() && proxy.is_none() {
            return Ok(self.usual.clone());
        }
        self.get_at(tls, proxy, Instant::now())
    }

    fn get_at(&self, tls: &Arc<Tls>, proxy: Option<&Arc<Proxy>>, now: Instant) -> Result<Pool, TlsError> {
        let terms = (Arc::clone(tls), proxy.cloned());
        let mut special = self.special.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = special.get_mut(&terms) {
            kept.used = now;
            return Ok(kept.pool.clone());
        }
        let pool = self.make(tls, proxy)?;
        // What nobody used for that long has no open connection any more.
        special.retain(|_, kept| now.duration_since(kept.used) <= self.settings.idle_timeout);
        if special.len() >= KEPT
            && let Some(oldest) = special.iter().min_by_key(|(_, kept)| kept.used)
        {
            let oldest = oldest.0.clone();
            special.remove(&oldest);
        }
        let kept = Kept {
            pool: pool.clone(),
            used: now,
        };
        special.insert(terms, kept);
        Ok(pool)
    }

    fn make(&self, tls: &Tls, proxy: Option<&Arc<Proxy>>) -> Result<Pool, TlsError> {
        let mut settings = self.settings.clone();
        settings.extra_roots.extend(certificates(&tls.authorities));
        settings.identity.clone_from(&tls.identity);
        if let Some(proxy) = proxy {
            settings.route = Route::Through(Arc::clone(proxy));
        }
        client(&settings)
    }

    /// Which way requests go that have no proxy of their own.
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
    fn equal_terms_share_a_pool_and_idle_ones_go() {
        let (pools, start) = (pools(), Instant::now());
        let proxy = Arc::new(Proxy::new("http://p", Some("u"), None).unwrap());
        let other = Arc::new(Proxy::new("http://p", Some("v"), None).unwrap());
        for (tls, proxy, held) in [
            (tls(""), None, 0),
            (tls("a"), None, 1),
            (tls("a"), None, 1),
            (tls("b"), None, 2),
            (tls(""), Some(&proxy), 3),
            (tls(""), Some(&other), 4),
            (tls("a"), Some(&proxy), 5),
        ] {
            // What is most usual is not among them.
            let pool = match held {
                0 => pools.get(&tls, proxy),
                _ => pools.get_at(&tls, proxy, start),
            };
            pool.unwrap();
            assert_eq!(pools.special.lock().unwrap().len(), held);
        }
        let later = start + Duration::from_secs(61);
        pools.get_at(&tls("c"), None, later).unwrap();
        assert_eq!(pools.special.lock().unwrap().len(), 1);
    }

    #[test]
    fn no_more_than_so_many_are_kept() {
        let (pools, start) = (pools(), Instant::now());
        for number in 0..KEPT + 10 {
            let later = start + Duration::from_millis(number as u64);
            pools.get_at(&tls(&number.to_string()), None, later).unwrap();
        }
        let special = pools.special.lock().unwrap();
        assert_eq!(special.len(), KEPT);
        assert!(special.contains_key(&(tls(&(KEPT + 9).to_string()), None)));
        assert!(!special.contains_key(&(tls("9"), None)));
    }
}

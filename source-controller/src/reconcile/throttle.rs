//! Tracks hosts that asked clients to wait; until then no request is sent to them. 429 and 403 apply to objects with
//! the same credentials, 503 to all objects. Both apply only to objects with the same route to the host (proxy and CA),
//! so that one object's proxy cannot block a host for others.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use sluice_runtime::sync::lock;

use crate::git::{FetchError, Remote};

/// A host, and a digest of the route or of the credentials that the response applies to.
type ThrottleScope = (String, [u8; 32]);

/// The throttled hosts.
#[derive(Debug, Default)]
pub(super) struct HostThrottle {
    hosts: Mutex<HashMap<ThrottleScope, Throttle>>,
}

#[derive(Clone, Copy, Debug)]
struct Throttle {
    until: Timestamp,
    status: u16,
}

impl HostThrottle {
    /// Returns an error if the host has asked to wait.
    pub(super) fn check(&self, remote: &Remote, now: Timestamp) -> Result<(), FetchError> {
        let hosts = lock(&self.hosts);
        if hosts.is_empty() {
            // Nearly always: compute no digests.
            return Ok(());
        }
        let host = remote.address.host();
        let scopes = [remote.access_digest(), remote.route_digest()];
        let throttles = scopes.map(|scope| hosts.get(&(host.clone(), scope)).copied());
        let throttles = throttles
            .into_iter()
            .flatten()
            .filter(|throttle| throttle.until > now);
        match throttles.max_by_key(|throttle| throttle.until) {
            Some(throttle) => Err(FetchError::Throttled {
                host,
                status: throttle.status,
                wait: Duration::try_from(throttle.until.duration_since(now)).unwrap_or_default(),
                until: Some(throttle.until),
            }),
            None => Ok(()),
        }
    }

    /// Records a throttling response and adds its end time to the error.
    pub(super) fn record(&self, remote: &Remote, mut error: FetchError, now: Timestamp) -> FetchError {
        if let FetchError::Throttled {
            status, wait, until, ..
        } = &mut error
        {
            // Rounded up to whole seconds, so that all waiting objects show the same message.
            let end = now.checked_add(*wait).unwrap_or(now);
            let end = Timestamp::from_second(end.as_second() + 1).unwrap_or(end);
            let scope = match *status {
                503 => remote.route_digest(),
                _ => remote.access_digest(),
            };
            let mut hosts = lock(&self.hosts);
            hosts.retain(|_, throttle| throttle.until > now);
            let throttle = Throttle {
                until: end,
                status: *status,
            };
            hosts.insert((remote.address.host(), scope), throttle);
            *until = Some(end);
        }
        error
    }
}

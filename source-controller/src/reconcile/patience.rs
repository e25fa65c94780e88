//! Hosts that asked to be left alone: until then no object sends them a request. 429 (and 403) speaks to whoever asked, so it holds
//! for all objects with the same credentials; 503 speaks of the server, and holds for everybody. Both hold only for those
//! who reach the host on the same way, because nobody's own proxy or authority may speak for a host to others.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use crate::git::{FetchError, Remote};

/// A host, and whom it spoke to: a digest.
type Listener = (String, [u8; 32]);

/// Until when hosts are left alone.
#[derive(Debug, Default)]
pub(super) struct Patience {
    hosts: Mutex<HashMap<Listener, Asked>>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    until: Timestamp,
    status: u16,
}

impl Patience {
    /// Refuses a request that would come too early.
    pub(super) fn check(&self, remote: &Remote, now: Timestamp) -> Result<(), FetchError> {
        let host = remote.address.host();
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let listeners = [remote.way(), remote.path()];
        let asked = listeners.map(|listener| hosts.get(&(host.clone(), listener)).copied());
        let asked = asked.into_iter().flatten().filter(|asked| asked.until > now);
        match asked.max_by_key(|asked| asked.until) {
            Some(asked) => Err(FetchError::Throttled {
                host,
                status: asked.status,
                wait: Duration::try_from(asked.until.duration_since(now)).unwrap_or_default(),
                until: Some(asked.until),
            }),
            None => Ok(()),
        }
    }

    /// Remembers what a host asked for, and says in the error until when.
    pub(super) fn heed(&self, remote: &Remote, error: FetchError, now: Timestamp) -> FetchError {
        let FetchError::Throttled {
            host, status, wait, ..
        } = error
        else {
            return error;
        };
        // Whole seconds, as servers ask for them: the text is the same for all that wait.
        let until = now.checked_add(wait).unwrap_or(now);
        let until = Timestamp::from_second(until.as_second() + 1).unwrap_or(until);
        let listener = if status == 503 {
            remote.path()
        } else {
            remote.way()
        };
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.retain(|_, asked| asked.until > now);
        hosts.insert((remote.address.host(), listener), Asked { until, status });
        FetchError::Throttled {
            host,
            status,
            wait,
            until: Some(until),
        }
    }
}

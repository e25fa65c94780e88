//! How many passes may talk to one host at once, so that a host that hangs never holds more than its share of workers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Places of all hosts.
#[derive(Debug)]
pub struct Places {
    per_host: usize,
    hosts: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Places {
    /// With this many places for each host, at least one.
    #[must_use]
    pub fn new(per_host: usize) -> Self {
        Self {
            per_host: per_host.max(1),
            hosts: Mutex::default(),
        }
    }

    /// Takes a place, if one is free. Nobody waits for one: a pass that waited would hold a worker just the same.
    #[must_use]
    pub fn take(&self, host: &str) -> Option<OwnedSemaphorePermit> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        // A host that nobody talks to needs no entry.
        hosts.retain(|name, places| name == host || places.available_permits() < self.per_host);
        let places = hosts
            .entry(host.to_owned())
            .or_insert_with(|| Arc::new(Semaphore::new(self.per_host)));
        Arc::clone(places).try_acquire_owned().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::Places;

    #[test]
    fn a_full_host_leaves_places_at_others() {
        let places = Places::new(2);
        let held: Vec<_> = (0..3).map(|_| places.take("slow")).collect();
        assert_eq!(held.iter().filter(|place| place.is_some()).count(), 2);
        assert!(places.take("quick").is_some());
        drop(held);
        assert!(places.take("slow").is_some());
    }
}

//! Limits concurrent downloads, in total and per client address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use sluice_runtime::serve::ResponseGuard;
use sluice_runtime::sync::lock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of concurrent downloads.
pub(super) const MAX_DOWNLOADS: usize = 512;
/// Maximum number of concurrent requests that wait for a file of a bucket. They hold no slot of a download, so that a bucket that hangs
/// leaves all of those to the files that are here.
pub(super) const MAX_WAITING: usize = 256;
/// Divisor of all slots: one address may hold this part of them.
const SHARES: usize = 4;
/// How long a request waits for a slot before it is refused.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(15);

/// The slots of one server for downloads.
pub(super) struct Downloads {
    free: Arc<Semaphore>,
    shares: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
    /// Maximum number of slots of one address.
    max_per_client: usize,
    queue_timeout: Duration,
}

/// A slot for a download, held until dropped.
pub(super) struct Download {
    _share: OwnedSemaphorePermit,
    _free: OwnedSemaphorePermit,
    /// Marks the connection as busy; set when the response starts.
    pub(super) answer: Option<ResponseGuard>,
}

impl Downloads {
    /// Creates so many slots.
    pub(super) fn new(slots: usize) -> Self {
        Self::with_timeout(slots, QUEUE_TIMEOUT)
    }

    fn with_timeout(slots: usize, queue_timeout: Duration) -> Self {
        Self {
            queue_timeout,
            free: Arc::new(Semaphore::new(slots)),
            shares: Mutex::default(),
            max_per_client: slots / SHARES,
        }
    }

    /// Waits for a slot; `None` after the timeout.
    pub(super) async fn acquire(&self, client: IpAddr) -> Option<Download> {
        let share = self.share(client);
        let acquire = async {
            let share = share.acquire_owned().await.ok()?;
            let free = Arc::clone(&self.free).acquire_owned().await.ok()?;
            Some(Download {
                _share: share,
                _free: free,
                answer: None,
            })
        };
        tokio::time::timeout(self.queue_timeout, acquire)
            .await
            .ok()
            .flatten()
    }

    /// Returns the semaphore of an address. It is dropped with the last download of the address.
    fn share(&self, client: IpAddr) -> Arc<Semaphore> {
        let mut shares = lock(&self.shares);
        if let Some(share) = shares.get(&client).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(self.max_per_client));
        shares.insert(client, Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[tokio::test]
    async fn one_address_cannot_exceed_its_share_of_downloads() {
        let downloads = Downloads::with_timeout(8, Duration::from_millis(50));
        let mut downloads_held = Vec::new();
        for _ in 0..downloads.max_per_client {
            downloads_held.push(downloads.acquire(address(1)).await.unwrap());
        }
        assert!(downloads.acquire(address(1)).await.is_none());
        downloads_held.push(downloads.acquire(address(2)).await.unwrap());
        downloads_held.remove(0);
        downloads_held.push(downloads.acquire(address(1)).await.unwrap());
        drop(downloads_held);
        drop(downloads.acquire(address(3)).await.unwrap());
        assert_eq!(
            downloads.shares.lock().unwrap().len(),
            1,
            "unused shares are forgotten"
        );
    }
}

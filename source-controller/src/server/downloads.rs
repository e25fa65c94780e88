//! How many artifacts are being sent: so many in all, and no more than a share of that to one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use sluice_runtime::serve::Answer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Artifacts sent at once; each holds at most two chunks of a file in memory.
pub(super) const MOST: usize = 512;
/// Artifacts sent at once to one address.
const SHARE: usize = MOST / 4;
/// How long a request waits for its turn before it is asked to come back.
const PATIENCE: Duration = Duration::from_secs(15);

/// The downloads of one server.
pub(super) struct Downloads {
    free: Arc<Semaphore>,
    shares: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
    patience: Duration,
}

/// One download. Its connection is busy as long as it lives.
pub(super) struct Download {
    _share: OwnedSemaphorePermit,
    _free: OwnedSemaphorePermit,
    /// Set once the answer begins.
    pub(super) answer: Option<Answer>,
}

impl Downloads {
    pub(super) fn new() -> Self {
        Self::with_patience(PATIENCE)
    }

    fn with_patience(patience: Duration) -> Self {
        Self {
            patience,
            free: Arc::new(Semaphore::new(MOST)),
            shares: Mutex::default(),
        }
    }

    /// Waits for its turn; nothing if it does not come in time.
    pub(super) async fn begin(&self, client: IpAddr) -> Option<Download> {
        let share = self.share(client);
        let turn = async {
            let share = share.acquire_owned().await.ok()?;
            let free = Arc::clone(&self.free).acquire_owned().await.ok()?;
            Some(Download {
                _share: share,
                _free: free,
                answer: None,
            })
        };
        tokio::time::timeout(self.patience, turn).await.ok().flatten()
    }

    /// What is left of an address's share. It is forgotten with the last download of the address.
    fn share(&self, client: IpAddr) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(&client).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(SHARE));
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
    async fn one_address_gets_its_share_and_another_is_served_beside_it() {
        let downloads = Downloads::with_patience(Duration::from_millis(50));
        let mut held = Vec::new();
        for _ in 0..SHARE {
            held.push(downloads.begin(address(1)).await.unwrap());
        }
        assert!(downloads.begin(address(1)).await.is_none());
        held.push(downloads.begin(address(2)).await.unwrap());
        held.remove(0);
        held.push(downloads.begin(address(1)).await.unwrap());
        drop(held);
        drop(downloads.begin(address(3)).await.unwrap());
        assert_eq!(
            downloads.shares.lock().unwrap().len(),
            1,
            "unused shares are forgotten"
        );
    }
}

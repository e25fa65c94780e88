//! The rate that a download from the bucket must have. Without it, a server that sends a few bytes a minute would hold the permits of all
//! downloads for as long as it likes.

use std::time::Duration;

use tokio::time::Instant;

/// Minimum number of bytes in each window of a download. The total time has no limit: a large artifact can take long.
#[derive(Clone, Copy, Debug)]
pub(super) struct MinimumRate {
    pub(super) bytes: u64,
    pub(super) window: Duration,
}

/// 16 KiB a second. All 64 downloads together then need 1 MiB a second, which a link of 10 Mbit/s has.
pub(super) const MIN_RATE: MinimumRate = MinimumRate {
    bytes: 60 * (16 << 10),
    window: Duration::from_mins(1),
};

/// The bytes of a download within the present window.
#[derive(Debug)]
pub(super) struct RateWindow {
    rate: MinimumRate,
    ends_at: Instant,
    bytes: u64,
}

impl RateWindow {
    /// Begins the first window.
    pub(super) fn new(rate: MinimumRate, now: Instant) -> Self {
        Self {
            rate,
            ends_at: now + rate.window,
            bytes: 0,
        }
    }

    /// Counts received bytes. Returns whether the download is fast enough, which is decided at the end of each window.
    pub(super) fn count(&mut self, bytes: u64, now: Instant) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        if now < self.ends_at {
            return true;
        }
        let is_fast = self.bytes >= self.rate.bytes;
        *self = Self::new(self.rate, now);
        is_fast
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_window_needs_its_bytes() {
        let start = Instant::now();
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        let mut window = RateWindow::new(MIN_RATE, start);
        assert!(window.count(0, after(59)), "the window has not ended");
        assert!(window.count(MIN_RATE.bytes, after(60)));
        // What came earlier does not count.
        assert!(window.count(MIN_RATE.bytes - 1, after(119)));
        assert!(!window.count(0, after(120)));
    }
}

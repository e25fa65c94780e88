//! Paths of artifacts with something that holds for a short time only.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use sluice_runtime::sync::lock;
use tokio::time::Instant;

use crate::storage::ArtifactPath;

/// Maximum number of paths: anybody may request any path. Beyond it, a path costs a request to the bucket.
const MAX_PATHS: usize = 4096;

/// A bounded set of paths, each of which expires.
#[derive(Debug)]
pub(super) struct RecentPaths {
    max_age: Duration,
    by_path: Mutex<HashMap<ArtifactPath, Instant>>,
}

impl RecentPaths {
    /// Creates an empty set, whose paths expire after this time.
    pub(super) fn new(max_age: Duration) -> Self {
        Self {
            max_age,
            by_path: Mutex::default(),
        }
    }

    /// Adds a path, unless there are too many.
    pub(super) fn insert(&self, path: &ArtifactPath, now: Instant) {
        let mut by_path = lock(&self.by_path);
        if by_path.len() >= MAX_PATHS {
            by_path.retain(|_, since| self.is_recent(*since, now));
        }
        if by_path.len() < MAX_PATHS {
            by_path.insert(path.clone(), now);
        }
    }

    /// Returns whether a path was added recently.
    pub(super) fn contains(&self, path: &ArtifactPath, now: Instant) -> bool {
        let since = lock(&self.by_path).get(path).copied();
        since.is_some_and(|since| self.is_recent(since, now))
    }

    /// Removes a path.
    pub(super) fn remove(&self, path: &ArtifactPath) {
        lock(&self.by_path).remove(path);
    }

    /// Removes all paths, as after their time.
    #[cfg(test)]
    pub(super) fn clear(&self) {
        lock(&self.by_path).clear();
    }

    fn is_recent(&self, since: Instant, now: Instant) -> bool {
        now.saturating_duration_since(since) < self.max_age
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::ObjectDirectory;

    fn path(number: usize) -> ArtifactPath {
        let directory = ObjectDirectory::git_repository("ns", "n").unwrap();
        directory.artifact(&format!("{number:x}")).unwrap()
    }

    #[test]
    fn paths_expire_and_their_number_is_limited() {
        let (start, age) = (Instant::now(), Duration::from_secs(1));
        let paths = RecentPaths::new(age);
        for number in 0..=MAX_PATHS {
            paths.insert(&path(number), start);
        }
        assert!(paths.contains(&path(MAX_PATHS - 1), start));
        assert!(!paths.contains(&path(MAX_PATHS), start), "there are too many");
        assert!(!paths.contains(&path(0), start + age));
        paths.insert(&path(MAX_PATHS), start + age);
        assert!(paths.contains(&path(MAX_PATHS), start + age));
        assert_eq!(lock(&paths.by_path).len(), 1, "expired paths are removed");
        paths.remove(&path(MAX_PATHS));
        assert!(!paths.contains(&path(MAX_PATHS), start + age));
    }
}

//! Reads the Secrets that objects name: once for each version, which the watch of their metadata tells.
//!
//! A Secret is kept while the watch shows the version that was read. A Secret that the watch does not show, and any Secret
//! after an interruption of the watch, is read from the API server.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use sluice_runtime::schedule::ObjectKey;
use sluice_runtime::sync::lock;
use sluice_runtime::watch::ShownVersions;

/// Maximum size of all kept Secrets together, in bytes.
const MAX_BYTES: usize = 16 << 20;

/// Reads Secrets.
pub struct Secrets {
    client: Client,
    shown: ShownVersions,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    entries: HashMap<ObjectKey, Entry>,
    bytes: usize,
    /// Counter of uses.
    uses: u64,
}

struct Entry {
    content: Arc<SecretContent>,
    bytes: usize,
    /// The interruptions of the watch before the Secret was read.
    interruptions: u64,
    last_use: u64,
}

/// The content of a Secret.
pub(super) struct SecretContent {
    /// Its uid; empty if the API server sent none.
    pub(super) uid: String,
    version: Option<String>,
    /// Its data.
    pub(super) data: BTreeMap<String, Vec<u8>>,
}

impl Secrets {
    /// Creates a reader that keeps the Secrets whose versions are shown.
    #[must_use]
    pub fn new(client: Client, shown: ShownVersions) -> Self {
        Self {
            client,
            shown,
            kept: Mutex::default(),
        }
    }

    /// Returns the versions that it compares with.
    #[must_use]
    pub fn shown(&self) -> ShownVersions {
        self.shown.clone()
    }

    /// Returns a Secret; `None` if it does not exist.
    pub(super) async fn read(&self, namespace: &str, name: &str) -> kube::Result<Option<Arc<SecretContent>>> {
        let key = ObjectKey {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        if let Some(kept) = self.kept(&key) {
            return Ok(Some(kept));
        }
        // Asked before the request: an interruption during it counts.
        let interruptions = self.shown.interruptions();
        let api = Api::<Secret>::namespaced(self.client.clone(), namespace);
        let Some(found) = api.get_opt(name).await? else {
            lock(&self.kept).remove(&key);
            return Ok(None);
        };
        let data = found.data.unwrap_or_default().into_iter();
        let content = Arc::new(SecretContent {
            uid: found.metadata.uid.unwrap_or_default(),
            version: found.metadata.resource_version,
            data: data.map(|(key, value)| (key, value.0)).collect(),
        });
        lock(&self.kept).insert(key, Arc::clone(&content), interruptions);
        Ok(Some(content))
    }

    /// Returns the Secret that was read before, if it is the current one.
    fn kept(&self, key: &ObjectKey) -> Option<Arc<SecretContent>> {
        let interruptions = self.shown.interruptions();
        let mut kept = lock(&self.kept);
        kept.uses += 1;
        let uses = kept.uses;
        let entry = kept.entries.get_mut(key)?;
        let content = &entry.content;
        let is_current = entry.interruptions == interruptions
            && self
                .shown
                .is_shown(key, Some(&content.uid), content.version.as_deref());
        entry.last_use = uses;
        is_current.then(|| Arc::clone(content))
    }
}

impl Kept {
    fn insert(&mut self, key: ObjectKey, content: Arc<SecretContent>, interruptions: u64) {
        self.remove(&key);
        let bytes = content.size();
        if self.bytes + bytes > MAX_BYTES {
            self.evict();
        }
        self.bytes += bytes;
        let entry = Entry {
            content,
            bytes,
            interruptions,
            last_use: self.uses,
        };
        self.entries.insert(key, entry);
    }

    fn remove(&mut self, key: &ObjectKey) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.bytes;
        }
    }

    /// Removes the half of the Secrets that was used least recently.
    fn evict(&mut self) {
        let mut uses: Vec<u64> = self.entries.values().map(|entry| entry.last_use).collect();
        uses.sort_unstable();
        let middle = uses.get(uses.len() / 2).copied().unwrap_or_default();
        self.entries.retain(|_, entry| entry.last_use > middle);
        self.bytes = self.entries.values().map(|entry| entry.bytes).sum();
    }
}

impl SecretContent {
    fn size(&self) -> usize {
        self.data.iter().map(|(key, value)| key.len() + value.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_kept_secrets_is_limited() {
        let mut kept = Kept::default();
        let key = |number: usize| ObjectKey {
            namespace: "team".into(),
            name: number.to_string(),
        };
        for number in 0..100 {
            kept.uses += 1;
            let content = SecretContent {
                uid: "u".into(),
                version: None,
                data: BTreeMap::from([("key".to_owned(), vec![0; 1 << 20])]),
            };
            kept.insert(key(number), Arc::new(content), 0);
            assert!(kept.bytes <= MAX_BYTES);
            let sum: usize = kept.entries.values().map(|entry| entry.bytes).sum();
            assert_eq!(kept.bytes, sum);
        }
        assert!(kept.entries.contains_key(&key(99)) && !kept.entries.contains_key(&key(0)));
        kept.remove(&key(99));
        assert!(!kept.entries.contains_key(&key(99)));
    }
}

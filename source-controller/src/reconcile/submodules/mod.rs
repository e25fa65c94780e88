//! Fetches submodules recursively (`spec.recurseSubmodules`).
//!
//! Produces the tree of `git submodule update --init --recursive`, for any kind of reference. Each submodule has a
//! mirror like any other remote, shared by all its users.

mod error;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

pub use error::SubmoduleError;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use sluice_runtime::redact::MaskedUrl;
use sluice_runtime::shutdown::Token;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::network::Origin;
use super::resolve::{MIN_LOOKUP_AGE, Parts, Source};
use super::slots::{Lane, Slot, Slots};
use crate::git::{Address, Checkout, FetchError, Kind, Oid, ReadError, Reference, Remote};
use crate::submodule::{self, Submodule};
use crate::tree::Module;

/// Maximum depth of nested submodules.
const MAX_DEPTH: usize = 10;
/// Maximum number of submodules of one repository, including nested ones.
const MAX_SUBMODULES: usize = 1000;
/// Number of submodules of one repository fetched concurrently.
const CONCURRENT_FETCHES: usize = 4;

/// The inputs for fetching the submodules of one repository.
pub(super) struct SubmoduleFetcher<'a> {
    pub(super) origin: &'a dyn Origin,
    pub(super) slots: &'a Slots,
    /// Namespace of the object.
    pub(super) namespace: &'a str,
    pub(super) stop: &'a Token,
    /// Deadline of the whole checkout.
    pub(super) deadline: Instant,
}

/// A submodule to fetch.
struct PendingSubmodule {
    /// Path relative to the parent repository.
    local: Vec<u8>,
    /// Path relative to the top-level repository.
    path: String,
    url: String,
    commit: Oid,
}

/// State shared by all fetches of one recursion.
struct FetchState<'a> {
    fetcher: &'a SubmoduleFetcher<'a>,
    /// The host at which the reconciliation already has a slot.
    host: String,
    count: AtomicUsize,
    /// Slots at other hosts, while fetches use them. Not longer: a reconciliation that waits for one slot must not hold
    /// another one, for which the holder of the first may wait.
    slots: Mutex<HashMap<String, Weak<Slot>>>,
}

impl SubmoduleFetcher<'_> {
    /// Returns the commit with all its submodules.
    pub(super) async fn module(&self, source: &Source, checkout: Checkout) -> Result<Module, SubmoduleError> {
        let state = FetchState {
            fetcher: self,
            host: source.remote.address.host(),
            count: AtomicUsize::new(0),
            slots: Mutex::default(),
        };
        state
            .module(source.remote.clone(), checkout, String::new(), 0)
            .await
    }
}

impl FetchState<'_> {
    /// Returns the commit of `remote` with its submodules; `at` is the path of its root, with a trailing slash.
    fn module(
        &self,
        remote: Remote,
        checkout: Checkout,
        at: String,
        depth: usize,
    ) -> BoxFuture<'_, Result<Module, SubmoduleError>> {
        async move {
            let pending = {
                let (blocking, root) = (checkout.clone(), at.clone());
                let listed = tokio::task::spawn_blocking(move || list_submodules(&blocking, &root)).await;
                listed.map_err(|error| SubmoduleError::Read {
                    path: path_or_root(&at),
                    source: ReadError::Object {
                        id: checkout.commit().id,
                        why: error.to_string(),
                    },
                })??
            };
            let submodules: BTreeMap<_, _> = stream::iter(pending)
                .map(|submodule| self.submodule(&remote, submodule, depth + 1))
                // Keep the order, so that the same of several failures is reported each time.
                .buffered(CONCURRENT_FETCHES)
                .try_collect()
                .await?;
            Ok(Module::new(checkout, submodules))
        }
        .boxed()
    }

    async fn submodule(
        &self,
        parent: &Remote,
        submodule: PendingSubmodule,
        depth: usize,
    ) -> Result<(Vec<u8>, Module), SubmoduleError> {
        let (path, commit) = (submodule.path, submodule.commit);
        if depth > MAX_DEPTH {
            return Err(SubmoduleError::TooDeep { path });
        }
        let remote = remote(parent, &path, &submodule.url)?;
        self.count(&path)?;
        let slot = self.acquire_slot(&path, &remote).await?;
        let checkout = self.fetch(parent, &remote, &path, commit).await?;
        drop(slot);
        tracing::debug!(path, url = %remote.address, %commit, "submodule checked out");
        let module = self.module(remote, checkout, format!("{path}/"), depth).await?;
        Ok((submodule.local, module))
    }

    /// Counts a submodule against the limit.
    fn count(&self, path: &str) -> Result<(), SubmoduleError> {
        if self.count.fetch_add(1, Ordering::Relaxed) < MAX_SUBMODULES {
            return Ok(());
        }
        Err(SubmoduleError::TooMany {
            path: path.to_owned(),
        })
    }

    /// Waits for a slot at the submodule's host; `None` at the host of the reconciliation. Fetches from one host share it.
    async fn acquire_slot(&self, path: &str, remote: &Remote) -> Result<Option<Arc<Slot>>, SubmoduleError> {
        let host = remote.address.host();
        if host == self.host {
            return Ok(None);
        }
        let mut slots = self.slots.lock().await;
        if let Some(slot) = slots.get(&host).and_then(Weak::upgrade) {
            return Ok(Some(slot));
        }
        let fetcher = self.fetcher;
        let lane = Lane::Host {
            host: host.clone(),
            proxy: None,
        };
        let slot = fetcher.slots.acquire_additional(fetcher.namespace, lane);
        let Ok(Some(slot)) = timeout_at(fetcher.deadline, slot).await else {
            return Err(SubmoduleError::NoSlot {
                path: path.to_owned(),
                host,
                limit: remote.timeout,
            });
        };
        let slot = Arc::new(slot);
        slots.insert(host, Arc::downgrade(&slot));
        Ok(Some(slot))
    }

    async fn fetch(
        &self,
        parent: &Remote,
        remote: &Remote,
        path: &str,
        commit: Oid,
    ) -> Result<Checkout, SubmoduleError> {
        let (path, url) = (path.to_owned(), remote.address.to_string());
        let source = Source {
            remote: remote.clone(),
            reference: Reference::Commit {
                commit: commit.to_string(),
                branch: None,
                name: None,
            },
            // A pinned commit is resolved without a lookup.
            reader: None,
            triggered_at: None,
            max_age: MIN_LOOKUP_AGE,
            interval: Duration::ZERO,
            parts: Parts::default(),
        };
        let work = async {
            let head = self.fetcher.origin.head(&source, self.fetcher.stop).await?;
            self.fetcher.origin.fetch(&source, &head, self.fetcher.stop).await
        };
        let Ok(result) = timeout_at(self.fetcher.deadline, work).await else {
            let limit = remote.timeout;
            return Err(SubmoduleError::TimedOut { path, url, limit });
        };
        result.map_err(|source| {
            let (hint, source) = (hint(parent, remote, &source), Box::new(source));
            SubmoduleError::Fetch {
                path,
                url,
                source,
                hint,
            }
        })
    }
}

/// Returns the remote of a submodule, with the credentials that may be used for it.
fn remote(parent: &Remote, path: &str, written: &str) -> Result<Remote, SubmoduleError> {
    let unusable = |why: String| SubmoduleError::Address {
        path: path.to_owned(),
        url: MaskedUrl::new(written),
        why,
    };
    let url = submodule::absolute(&parent.address, written).map_err(|error| unusable(error.to_string()))?;
    let address = Address::parse(&url).map_err(|error| unusable(error.to_string()))?;
    if address.is_ssh() && !submodule::is_same_host(&parent.address, &address) {
        let host = parent.address.host();
        return Err(unusable(format!(
            "ssh requires a key, but credentials are only sent to the repository's host, {host}, with its scheme; \
             use a relative url or one without authentication"
        )));
    }
    Ok(submodule::remote(parent, address))
}

/// Returns a hint about the likely cause of a remote's error.
fn hint(parent: &Remote, remote: &Remote, error: &FetchError) -> &'static str {
    let refused = matches!(
        error,
        FetchError::AuthenticationRequired { .. }
            | FetchError::AuthorizationFailed { .. }
            | FetchError::RepositoryNotFound { .. }
    );
    if refused && !submodule::is_same_host(&parent.address, &remote.address) {
        "; credentials are not sent to a host other than that of the repository itself"
    } else {
        ""
    }
}

/// Returns the submodules of a commit. Blocks.
fn list_submodules(checkout: &Checkout, at: &str) -> Result<Vec<PendingSubmodule>, SubmoduleError> {
    let read = |source: ReadError| SubmoduleError::Read {
        path: path_or_root(at),
        source,
    };
    let gitlinks = gitlinks(checkout).map_err(read)?;
    if gitlinks.is_empty() {
        return Ok(Vec::new());
    }
    let file = format!("{at}{}", String::from_utf8_lossy(submodule::FILE_NAME));
    let description = match read_gitmodules(checkout).map_err(read)? {
        None => Vec::new(),
        Some(content) if content.len() as u64 > submodule::MAX_FILE_BYTES => {
            return Err(SubmoduleError::TooLong {
                path: file,
                limit: submodule::MAX_FILE_BYTES,
            });
        }
        Some(content) => {
            submodule::parse(&content).map_err(|source| SubmoduleError::Description { path: file, source })?
        }
    };
    // If two entries have the same path, the later one applies.
    let urls: HashMap<_, _> = description
        .into_iter()
        .map(|Submodule { path, url }| (path.into_bytes(), url))
        .collect();
    let each = gitlinks.into_iter().map(|(local, commit)| {
        let path = format!("{at}{}", String::from_utf8_lossy(&local));
        match urls.get(&local) {
            Some(url) => Ok(PendingSubmodule {
                url: url.clone(),
                local,
                path,
                commit,
            }),
            None => Err(SubmoduleError::MissingUrl { path }),
        }
    });
    each.collect()
}

fn path_or_root(at: &str) -> String {
    let path = at.trim_end_matches('/');
    if path.is_empty() { "." } else { path }.to_owned()
}

/// Returns the paths and commits of all gitlinks.
fn gitlinks(checkout: &Checkout) -> Result<Vec<(Vec<u8>, Oid)>, ReadError> {
    let limit = checkout.limits().entries;
    let (mut found, mut count) = (Vec::new(), 0);
    let mut waiting = vec![(Vec::new(), checkout.commit().tree)];
    while let Some((directory, tree)) = waiting.pop() {
        for child in checkout.directory(tree)? {
            count += 1;
            if count > limit {
                return Err(ReadError::too_many_entries(&checkout.limits()));
            }
            let path = [directory.as_slice(), &child.name].concat();
            match child.kind {
                Kind::Gitlink => found.push((path, child.id)),
                Kind::Directory => waiting.push(([&path[..], b"/"].concat(), child.id)),
                Kind::File | Kind::Executable | Kind::Symlink => {}
            }
        }
    }
    Ok(found)
}

/// Returns the content of `.gitmodules`. Like Git, does not follow a link of that name.
fn read_gitmodules(checkout: &Checkout) -> Result<Option<Vec<u8>>, ReadError> {
    let children = checkout.directory(checkout.commit().tree)?;
    let file = children.into_iter().find(|child| {
        child.name == submodule::FILE_NAME && matches!(child.kind, Kind::File | Kind::Executable)
    });
    match file {
        Some(file) => Ok(Some(checkout.read(file.id)?.to_vec())),
        None => Ok(None),
    }
}

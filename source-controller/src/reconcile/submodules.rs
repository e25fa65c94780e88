//! `spec.recurseSubmodules`: fetching the commits that a repository's gitlinks name, and those that theirs name.
//!
//! What `git submodule update --init --recursive` would check out is put together, whatever reference the repository itself
//! was looked up by. Each submodule has a mirror as any remote has, shared by all that use it.

mod error;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use sluice_runtime::redact::MaskedUrl;
use sluice_runtime::shutdown::Token;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

pub use error::SubmoduleError;

use super::compose::Parts;
use super::fetch::Origin;
use super::places::{Lane, Place, Places};
use super::resolve::Source;
use crate::git::{Address, Checkout, ENTRIES_FLAG, FetchError, Kind, Oid, ReadError, Reference, Remote};
use crate::submodule::{self, Submodule};
use crate::tree::Module;

/// Submodules of submodules are fetched down to here.
const DEEPEST: usize = 10;
/// Submodules of one repository, those of submodules counted.
const MOST: usize = 1000;
/// Submodules of one repository that are fetched at once.
const AT_ONCE: usize = 4;

/// What fetching the submodules of one repository needs.
pub(super) struct Recursion<'a> {
    pub(super) origin: &'a dyn Origin,
    pub(super) places: &'a Places,
    /// The object's namespace.
    pub(super) namespace: &'a str,
    pub(super) stop: &'a Token,
    /// When the time for the whole checkout is over.
    pub(super) deadline: Instant,
}

/// A submodule that is to be fetched.
struct Wanted {
    /// Path from the root of the repository that has it.
    local: Vec<u8>,
    /// Path from the root of everything.
    path: String,
    url: String,
    commit: Oid,
}

/// What is shared by all fetches of one recursion.
struct Run<'a> {
    on: &'a Recursion<'a>,
    /// The host at which the pass has a place.
    host: String,
    count: AtomicUsize,
    /// Places at other hosts.
    places: Mutex<HashMap<String, Place>>,
}

impl Recursion<'_> {
    /// The commit with all its submodules.
    pub(super) async fn module(&self, source: &Source, checkout: Checkout) -> Result<Module, SubmoduleError> {
        let run = Run {
            on: self,
            host: source.remote.address.host(),
            count: AtomicUsize::new(0),
            places: Mutex::default(),
        };
        run.module(source.remote.clone(), checkout, String::new(), 0)
            .await
    }
}

impl Run<'_> {
    /// The commit of `remote` with its submodules; `at` is the path of the commit's own root, with a slash behind it.
    fn module(
        &self,
        remote: Remote,
        checkout: Checkout,
        at: String,
        depth: usize,
    ) -> BoxFuture<'_, Result<Module, SubmoduleError>> {
        async move {
            let wanted = {
                let (blocking, root) = (checkout.clone(), at.clone());
                let described = tokio::task::spawn_blocking(move || wanted(&blocking, &root)).await;
                described.map_err(|error| SubmoduleError::Read {
                    path: at_or_root(&at),
                    source: ReadError::Object {
                        id: checkout.commit().id,
                        why: error.to_string(),
                    },
                })??
            };
            let submodules: BTreeMap<_, _> = stream::iter(wanted)
                .map(|wanted| self.submodule(&remote, wanted, depth + 1))
                // In order, so that of several failures the same one is shown each time.
                .buffered(AT_ONCE)
                .try_collect()
                .await?;
            Ok(Module::new(checkout, submodules))
        }
        .boxed()
    }

    async fn submodule(
        &self,
        parent: &Remote,
        wanted: Wanted,
        depth: usize,
    ) -> Result<(Vec<u8>, Module), SubmoduleError> {
        let Wanted {
            local,
            path,
            url,
            commit,
        } = wanted;
        if depth > DEEPEST {
            return Err(SubmoduleError::TooDeep { path });
        }
        let remote = remote(parent, &path, &url)?;
        self.count(&path)?;
        self.take(&path, &remote).await?;
        let checkout = self.fetch(parent, &remote, &path, commit).await?;
        tracing::debug!(path, url = %remote.address, %commit, "submodule checked out");
        let module = self.module(remote, checkout, format!("{path}/"), depth).await?;
        Ok((local, module))
    }

    /// Counts the submodule.
    fn count(&self, path: &str) -> Result<(), SubmoduleError> {
        if self.count.fetch_add(1, Ordering::Relaxed) < MOST {
            return Ok(());
        }
        Err(SubmoduleError::TooMany {
            path: path.to_owned(),
        })
    }

    /// Waits for a place at its host, unless the pass has one there already.
    async fn take(&self, path: &str, remote: &Remote) -> Result<(), SubmoduleError> {
        let host = remote.address.host();
        let mut places = self.places.lock().await;
        if host == self.host || places.contains_key(&host) {
            return Ok(());
        }
        let lane = Lane::Host {
            host: host.clone(),
            proxy: None,
        };
        let place = timeout_at(self.on.deadline, self.on.places.beside(self.on.namespace, lane)).await;
        let Ok(Some(place)) = place else {
            return Err(SubmoduleError::NoPlace {
                path: path.to_owned(),
                host,
                limit: remote.timeout,
            });
        };
        places.insert(host, place);
        Ok(())
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
            // A hash names the same at all times.
            call: None,
            parts: Parts::default(),
        };
        let work = async {
            let head = self.on.origin.head(&source, self.on.stop).await?;
            self.on.origin.fetch(&source, &head, self.on.stop).await
        };
        let Ok(result) = timeout_at(self.on.deadline, work).await else {
            let limit = remote.timeout;
            return Err(SubmoduleError::TimedOut { path, url, limit });
        };
        result.map_err(|source| {
            let hint = hint(parent, remote, &source);
            let source = Box::new(source);
            SubmoduleError::Fetch {
                path,
                url,
                source,
                hint,
            }
        })
    }
}

/// Where a submodule comes from, and as whom it is fetched.
fn remote(parent: &Remote, path: &str, written: &str) -> Result<Remote, SubmoduleError> {
    let unusable = |why: String| SubmoduleError::Address {
        path: path.to_owned(),
        url: MaskedUrl::new(written),
        why,
    };
    let url = submodule::absolute(&parent.address, written).map_err(|error| unusable(error.to_string()))?;
    let address = Address::parse(&url).map_err(|error| unusable(error.to_string()))?;
    if address.is_ssh() && !submodule::same_host(&parent.address, &address) {
        let host = parent.address.host();
        return Err(unusable(format!(
            "ssh needs a key, and credentials are only sent to {host}, where the repository comes from, with its scheme; \
             use a relative url, or one that needs none"
        )));
    }
    Ok(submodule::remote(parent, address))
}

/// What may be behind an error of a submodule's remote.
fn hint(parent: &Remote, remote: &Remote, error: &FetchError) -> &'static str {
    let refused = matches!(
        error,
        FetchError::AuthenticationRequired { .. }
            | FetchError::AuthorizationFailed { .. }
            | FetchError::RepositoryNotFound { .. }
    );
    if refused && !submodule::same_host(&parent.address, &remote.address) {
        "; credentials are not sent to a host other than that of the repository itself"
    } else {
        ""
    }
}

/// The submodules of a commit. Blocks.
fn wanted(checkout: &Checkout, at: &str) -> Result<Vec<Wanted>, SubmoduleError> {
    let read = |source: ReadError| SubmoduleError::Read {
        path: at_or_root(at),
        source,
    };
    let gitlinks = gitlinks(checkout).map_err(read)?;
    if gitlinks.is_empty() {
        return Ok(Vec::new());
    }
    let file = format!("{at}{}", String::from_utf8_lossy(submodule::FILE_NAME));
    let description = match description(checkout).map_err(read)? {
        None => Vec::new(),
        Some(content) if content.len() as u64 > submodule::LARGEST_FILE => {
            return Err(SubmoduleError::TooLong {
                path: file,
                limit: submodule::LARGEST_FILE,
            });
        }
        Some(content) => {
            submodule::parse(&content).map_err(|source| SubmoduleError::Description { path: file, source })?
        }
    };
    // Of two that claim one path, the later one has it.
    let urls: HashMap<_, _> = description
        .into_iter()
        .map(|Submodule { path, url }| (path.into_bytes(), url))
        .collect();
    let each = gitlinks.into_iter().map(|(local, commit)| {
        let path = format!("{at}{}", String::from_utf8_lossy(&local));
        match urls.get(&local) {
            Some(url) => Ok(Wanted {
                url: url.clone(),
                local,
                path,
                commit,
            }),
            None => Err(SubmoduleError::Undescribed { path }),
        }
    });
    each.collect()
}

fn at_or_root(at: &str) -> String {
    let path = at.trim_end_matches('/');
    if path.is_empty() { "." } else { path }.to_owned()
}

/// Paths and commits of all gitlinks.
fn gitlinks(checkout: &Checkout) -> Result<Vec<(Vec<u8>, Oid)>, ReadError> {
    let limit = checkout.limits().entries;
    let (mut found, mut count) = (Vec::new(), 0);
    let mut waiting = vec![(Vec::new(), checkout.commit().tree)];
    while let Some((directory, tree)) = waiting.pop() {
        for child in checkout.directory(tree)? {
            count += 1;
            if count > limit {
                return Err(ReadError::TooManyEntries {
                    limit,
                    flag: ENTRIES_FLAG,
                });
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

/// The content of `.gitmodules`. A link of that name is not followed, as Git does not.
fn description(checkout: &Checkout) -> Result<Option<Vec<u8>>, ReadError> {
    let children = checkout.directory(checkout.commit().tree)?;
    let file = children.into_iter().find(|child| {
        child.name == submodule::FILE_NAME && matches!(child.kind, Kind::File | Kind::Executable)
    });
    match file {
        Some(file) => Ok(Some(checkout.read(file.id)?.to_vec())),
        None => Ok(None),
    }
}

//! What decides the responses of a server: the address, the reader and the route to it, with their digests.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use sha2::{Digest as _, Sha256};
use sluice_runtime::http::Proxy;

use super::address::Address;
use super::credentials::{Credentials, hash_parts};
use super::tls::Tls;

/// Which objects of its commits a mirror contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// All objects.
    Full,
    /// All trees, and only the requested blobs.
    Partial,
}

/// The address of a repository, its reader, and the route to it.
#[derive(Clone, Debug)]
pub struct Access {
    /// Address of the repository.
    pub address: Address,
    /// Credentials sent to the server.
    pub credentials: Credentials,
    /// Trusted authorities and client certificate for TLS.
    pub tls: Arc<Tls>,
    /// The object's own proxy; without one, the process's environment decides.
    pub proxy: Option<Arc<Proxy>>,
    /// The object for which the remote is read.
    pub owner: Owner,
}

/// The object for which a remote is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The namespace of the object.
    pub namespace: String,
    /// Digest of the name and uid of the API object that provides the credentials, if any. It stays the same when the
    /// credentials are renewed.
    pub principal: Option<[u8; 32]>,
}

impl Access {
    /// Whether there are credentials or a client certificate that only the server of the address may see.
    #[must_use]
    pub(crate) fn has_credentials(&self) -> bool {
        self.credentials != Credentials::Anonymous || self.tls.identity.is_some()
    }

    /// Whether a request must verify access before any content of a mirror is used. The mirror may have been filled by
    /// other objects or with other credentials.
    #[must_use]
    pub(crate) const fn needs_access_check(&self) -> bool {
        self.owner.principal.is_some() || self.proxy.is_some()
    }
}

/// An [`Access`] with its digests, which is cheap to clone. It cannot be changed: renewed credentials are a new value,
/// with new digests. So no reader ever gets what is kept for another one.
#[derive(Clone)]
pub struct SharedAccess(Arc<Inner>);

struct Inner {
    access: Access,
    digests: Digests,
    mirror: String,
    partial_mirror: OnceLock<String>,
}

impl SharedAccess {
    /// Digest of the current credentials and client certificate.
    #[cfg(test)]
    pub(crate) fn credentials_digest(&self) -> [u8; 32] {
        self.0.digests.credentials
    }

    /// Digest of the route alone: authorities and proxy, with the credentials for the proxy.
    #[must_use]
    pub(crate) fn route_digest(&self) -> [u8; 32] {
        self.0.digests.route
    }

    /// Digest of credentials, client certificate, authorities and proxy. A server's response is valid only for readers
    /// with the same digest.
    #[must_use]
    pub(crate) fn access_digest(&self) -> [u8; 32] {
        self.0.digests.access
    }

    /// Digest of the URL and of [`SharedAccess::access_digest`], by which a response is kept for its readers. Shorter than
    /// the URL itself.
    #[must_use]
    pub(crate) fn access_key(&self) -> [u8; 32] {
        self.0.digests.key
    }

    /// Returns the directory name of the mirror. It is a digest, so a directory listing reveals neither address nor
    /// credentials, and two users of one address share a mirror only with equal identity and route.
    pub(super) fn mirror_name(&self, extent: Extent) -> &str {
        let Inner {
            access,
            digests,
            mirror,
            partial_mirror,
        } = &*self.0;
        match extent {
            Extent::Full => mirror,
            Extent::Partial => partial_mirror.get_or_init(|| digests.mirror_name(access, extent)),
        }
    }
}

impl From<Access> for SharedAccess {
    fn from(access: Access) -> Self {
        let digests = Digests::of(&access);
        let mirror = digests.mirror_name(&access, Extent::Full);
        Self(Arc::new(Inner {
            access,
            digests,
            mirror,
            partial_mirror: OnceLock::new(),
        }))
    }
}

impl Deref for SharedAccess {
    type Target = Access;

    fn deref(&self) -> &Access {
        &self.0.access
    }
}

impl fmt::Debug for SharedAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.access, f)
    }
}

/// The digests of one [`Access`].
struct Digests {
    credentials: [u8; 32],
    route: [u8; 32],
    access: [u8; 32],
    key: [u8; 32],
}

impl Digests {
    fn of(access: &Access) -> Self {
        let (credentials, route) = (credentials_digest(access), route_digest(access));
        let both = Sha256::new_with_prefix(credentials).chain_update(route);
        let both: [u8; 32] = both.finalize().into();
        let key = Sha256::new_with_prefix(both).chain_update(access.address.url().as_str());
        Self {
            credentials,
            route,
            access: both,
            key: key.finalize().into(),
        }
    }

    fn mirror_name(&self, access: &Access, extent: Extent) -> String {
        let url = access.address.url().as_str();
        let hash = Sha256::new()
            .chain_update(url.len().to_be_bytes())
            .chain_update(url)
            .chain_update(self.mirror_identity(access))
            .chain_update(self.mirror_route(access));
        let hash = match extent {
            Extent::Full => hash,
            Extent::Partial => hash.chain_update(b"blob:none"),
        };
        hex::encode(hash.finalize())
    }

    /// Digest of the reader for the name of the mirror. It covers the source of the credentials, so renewed credentials
    /// find the existing mirror. All readers without credentials are equal.
    fn mirror_identity(&self, access: &Access) -> [u8; 32] {
        match access.owner.principal {
            Some(principal) if access.has_credentials() => {
                let hash = Sha256::new_with_prefix(b"principal");
                hash.chain_update(principal).finalize().into()
            }
            _ => self.credentials,
        }
    }

    /// Digest of the route for the name of the mirror: authorities and proxy, without the credentials for the proxy.
    fn mirror_route(&self, access: &Access) -> [u8; 32] {
        let Some(proxy) = &access.proxy else {
            return self.route;
        };
        let mut hash = Sha256::new();
        hash_parts(&mut hash, [&access.tls.authorities]);
        hash.update(proxy.to_string());
        hash.finalize().into()
    }
}

fn credentials_digest(access: &Access) -> [u8; 32] {
    let mut hash = Sha256::new_with_prefix(access.credentials.digest());
    access.tls.hash_identity(&mut hash);
    hash.finalize().into()
}

fn route_digest(access: &Access) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash_parts(&mut hash, [&access.tls.authorities]);
    if let Some(proxy) = &access.proxy {
        let (name, password) = proxy.user().unwrap_or_default();
        hash_parts(&mut hash, [proxy.to_string().as_str(), name, password]);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use sluice_runtime::http::Identity;

    use super::*;

    fn access(url: &str) -> Access {
        let address = Address::parse(url).unwrap();
        Access {
            credentials: Credentials::resolve(&address, None).unwrap(),
            address,
            tls: Arc::default(),
            proxy: None,
            owner: Owner::default(),
        }
    }

    /// Mirrors on disk keep their names, also if another version of the program has made them.
    #[test]
    fn the_name_of_a_mirror_is_the_digest_of_address_identity_and_route() {
        let digest = |parts: &[&[u8]]| -> [u8; 32] { Sha256::digest(parts.concat()).into() };
        let proxy = Arc::new(Proxy::new("http://u:p@proxy:1", None, None).unwrap());
        let mut cases = vec![access("https://h/r"), access("https://a:b@h/r")];
        for mut case in cases.clone() {
            case.owner.principal = Some([7; 32]);
            cases.push(case);
        }
        for mut case in cases.clone() {
            case.proxy = Some(Arc::clone(&proxy));
            cases.push(case);
        }
        for case in cases {
            let anonymous = case.credentials == Credentials::Anonymous;
            let identity = if case.owner.principal.is_some() && !anonymous {
                digest(&[b"principal", &[7; 32]])
            } else {
                digest(&[&case.credentials.digest()])
            };
            let proxy = case.proxy.as_ref().map(ToString::to_string).unwrap_or_default();
            let route = digest(&[&0_usize.to_be_bytes(), proxy.as_bytes()]);
            let url: &[u8] = b"https://h/r";
            let length = url.len().to_be_bytes();
            let full = digest(&[&length, url, &identity, &route]);
            let partial = digest(&[&length, url, &identity, &route, b"blob:none"]);
            let shared = SharedAccess::from(case);
            assert_eq!(shared.mirror_name(Extent::Full), hex::encode(full));
            for _ in 0..2 {
                assert_eq!(shared.mirror_name(Extent::Partial), hex::encode(partial));
            }
        }
    }

    #[test]
    fn changed_access_has_its_own_digests() {
        let first = SharedAccess::from(access("https://a:old@h/r"));
        let changed = |change: fn(&mut Access)| {
            let mut access = Access::clone(&first);
            change(&mut access);
            SharedAccess::from(access)
        };
        let same = changed(|_| {});
        assert_eq!(same.access_key(), first.access_key());
        assert_eq!(same.mirror_name(Extent::Full), first.mirror_name(Extent::Full));
        for other in [
            changed(|access| {
                access.credentials = Credentials::Basic {
                    username: "a".into(),
                    password: "new".into(),
                };
            }),
            changed(|access| access.credentials = Credentials::Anonymous),
            changed(|access| {
                access.tls = Arc::new(Tls {
                    authorities: Vec::new(),
                    identity: Some(Identity {
                        certificate: b"c".to_vec(),
                        key: b"k".to_vec(),
                    }),
                });
            }),
        ] {
            assert_ne!(other.credentials_digest(), first.credentials_digest());
            assert_eq!(other.route_digest(), first.route_digest());
            assert_ne!(other.access_digest(), first.access_digest());
            assert_ne!(other.access_key(), first.access_key());
            assert_ne!(other.mirror_name(Extent::Full), first.mirror_name(Extent::Full));
        }
        let proxied = changed(|access| {
            access.proxy = Some(Arc::new(Proxy::new("http://p:1", None, None).unwrap()));
        });
        assert_eq!(proxied.credentials_digest(), first.credentials_digest());
        assert_ne!(proxied.route_digest(), first.route_digest());
        assert_ne!(proxied.access_digest(), first.access_digest());
        let elsewhere = changed(|access| access.address = Address::parse("https://h/other").unwrap());
        assert_eq!(elsewhere.access_digest(), first.access_digest());
        assert_ne!(elsewhere.access_key(), first.access_key());
    }
}

//! The shared state of all requests: a file of its own, because every module of the service uses it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::user_fields::UserFields;
use crate::account_token::TokenKey;
use crate::rbac::{self, RoleIndex, RoleObjects};
use crate::requester::Requester;
use crate::resource::{Registry, with_group};
use crate::store::Store;

/// How long a write of a definition waits until its kind is served.
const SERVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Finds the holder of a bearer token in an `Authorization` header.
type FindHolder = dyn Fn(&[u8]) -> Option<Requester> + Send + Sync;

/// Authenticates the tokens that a server on a socket issues besides those of ServiceAccounts.
#[derive(Clone)]
struct TokenAuthenticator(Arc<FindHolder>);

impl fmt::Debug for TokenAuthenticator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TokenAuthenticator")
            .finish_non_exhaustive()
    }
}

/// The shared state of all requests.
#[derive(Debug)]
pub(crate) struct Api {
    /// The objects.
    pub(crate) store: Arc<Store>,
    /// The kinds; replaced as a whole when a definition changes.
    registry: watch::Sender<Arc<Registry>>,
    /// The definitions up to this revision are served.
    served_revision: watch::Sender<u64>,
    /// The rules of all roles, with the number of changes that they include.
    roles: Mutex<Option<(u64, Arc<RoleIndex>)>>,
    /// The key of ServiceAccount tokens.
    token_key: RwLock<Arc<TokenKey>>,
    /// Authenticates other tokens; `None` without a socket.
    token_authenticator: RwLock<Option<TokenAuthenticator>>,
    /// Fields that name the requesting user.
    pub(super) user_fields: Vec<UserFields>,
    /// Ends watches and background tasks.
    pub(crate) stop: CancellationToken,
}

impl Api {
    /// Creates the state of a server with these kinds.
    pub(crate) fn new(store: Arc<Store>, registry: Arc<Registry>, user_fields: Vec<UserFields>) -> Self {
        Self {
            store,
            registry: watch::Sender::new(registry),
            served_revision: watch::Sender::new(0),
            roles: Mutex::default(),
            token_key: RwLock::new(Arc::new(TokenKey::random())),
            token_authenticator: RwLock::default(),
            user_fields,
            stop: CancellationToken::new(),
        }
    }

    /// Returns the present kinds. A request takes them once.
    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.registry.borrow().clone()
    }

    /// Returns the rules of all roles. They are read from the objects once per change of a role or binding.
    pub(crate) fn roles(&self) -> Arc<RoleIndex> {
        let mut cached = self.roles.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.store.read();
        let changes = state.role_changes();
        if let Some((included, roles)) = &*cached
            && *included == changes
        {
            return roles.clone();
        }
        let list = |plural: &str| state.list(&with_group(plural, rbac::GROUP), "");
        let objects = RoleObjects {
            roles: list("roles"),
            cluster_roles: list("clusterroles"),
            role_bindings: list("rolebindings"),
            cluster_role_bindings: list("clusterrolebindings"),
        };
        drop(state);
        let roles = Arc::new(RoleIndex::new(&objects));
        *cached = Some((changes, roles.clone()));
        roles
    }

    /// Returns the key of ServiceAccount tokens.
    pub(crate) fn token_key(&self) -> Arc<TokenKey> {
        self.token_key
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Replaces the key of ServiceAccount tokens: a server with a directory has one that outlives the process.
    pub(crate) fn set_token_key(&self, key: TokenKey) {
        *self.token_key.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(key);
    }

    /// Sets what authenticates tokens that are not those of ServiceAccounts.
    pub(crate) fn set_token_authenticator<F>(&self, find_holder: F)
    where
        F: Fn(&[u8]) -> Option<Requester> + Send + Sync + 'static,
    {
        let authenticator = TokenAuthenticator(Arc::new(find_holder));
        let current = self.token_authenticator.write();
        *current.unwrap_or_else(PoisonError::into_inner) = Some(authenticator);
    }

    /// Returns the holder of a bearer token that is not one of a ServiceAccount.
    pub(super) fn holder_of(&self, token: &str) -> Option<Requester> {
        let authenticator = self
            .token_authenticator
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        authenticator.and_then(|authenticator| authenticator.0(format!("Bearer {token}").as_bytes()))
    }

    /// Replaces the kinds.
    pub(crate) fn replace_registry(&self, registry: Arc<Registry>) {
        self.registry.send_replace(registry);
    }

    /// Subscribes to changes of the kinds.
    pub(crate) fn subscribe_to_registry(&self) -> watch::Receiver<Arc<Registry>> {
        self.registry.subscribe()
    }

    /// Says that the definitions up to this revision are served.
    pub(crate) fn set_served_revision(&self, revision: u64) {
        self.served_revision.send_replace(revision);
    }

    /// Waits until the definitions that are stored now are served.
    pub(crate) async fn wait_until_served(&self) {
        let stored = self.store.read().revision();
        let mut served = self.served_revision.subscribe();
        let reached = async { served.wait_for(|revision| *revision >= stored).await.is_ok() };
        tokio::select! {
            _ = reached => {}
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(SERVE_TIMEOUT) => {
                tracing::warn!("a definition is stored and not served yet");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::{Key, Write};

    #[test]
    fn roles_are_read_once_per_change_of_one() {
        let api = Api::new(
            Arc::new(Store::memory()),
            Arc::new(Registry::builtin()),
            Vec::new(),
        );
        let put = |resource: &str| {
            let object = json!({"metadata": {"name": "a"}});
            let written = api
                .store
                .write_now(&Key::new(resource, "", "a"), |_| Ok(Write::Put(object.clone())));
            written.unwrap();
        };
        let first = api.roles();
        put("configmaps");
        assert!(Arc::ptr_eq(&first, &api.roles()), "no role has changed");
        put("clusterroles.rbac.authorization.k8s.io");
        let second = api.roles();
        assert!(!Arc::ptr_eq(&first, &second));
        assert!(Arc::ptr_eq(&second, &api.roles()));
    }
}

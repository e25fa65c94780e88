//! Users: who sends a request, and the names of ServiceAccounts as users.

use std::collections::BTreeMap;

use crate::grant::{ADMIN_GROUPS, ADMIN_USER};

/// The group whose members pass every authorization, as in kube-apiserver.
const MASTERS: &str = "system:masters";
/// The group of every user that presented a credential.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// Prefix of the user names of ServiceAccounts.
const ACCOUNT_PREFIX: &str = "system:serviceaccount:";
/// The group of all ServiceAccounts; with a colon and a namespace, of those in the namespace.
const ACCOUNT_GROUP: &str = "system:serviceaccounts";

/// A user, as `user.Info` of apiserver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct User {
    /// Name.
    pub(crate) name: String,
    /// Uid of a ServiceAccount; otherwise empty.
    pub(crate) uid: String,
    /// Groups.
    pub(crate) groups: Vec<String>,
    /// Other attributes, which only impersonation sets.
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Returns the user with the token of the kubeconfig.
    pub(crate) fn administrator() -> Self {
        Self {
            name: ADMIN_USER.to_owned(),
            groups: ADMIN_GROUPS.map(str::to_owned).into(),
            ..Self::default()
        }
    }

    /// Returns a ServiceAccount as a user.
    pub(crate) fn service_account(namespace: &str, name: &str, uid: &str) -> Self {
        let mut groups = account_groups(namespace);
        groups.push(AUTHENTICATED.to_owned());
        Self {
            name: account_user(namespace, name),
            uid: uid.to_owned(),
            groups,
            ..Self::default()
        }
    }

    /// Whether every request of the user is allowed.
    pub(crate) fn is_administrator(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }
}

/// Returns the groups of the ServiceAccounts in a namespace, without that of all users.
pub(crate) fn account_groups(namespace: &str) -> Vec<String> {
    vec![ACCOUNT_GROUP.to_owned(), format!("{ACCOUNT_GROUP}:{namespace}")]
}

/// Returns the user name of a ServiceAccount.
pub(crate) fn account_user(namespace: &str, name: &str) -> String {
    format!("{ACCOUNT_PREFIX}{namespace}:{name}")
}

/// Returns namespace and name of the ServiceAccount with this user name; `None` if it is not one of a ServiceAccount.
pub(crate) fn split_account_user(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(ACCOUNT_PREFIX)?.split_once(':')?;
    let is_account = !namespace.is_empty() && !name.is_empty() && !name.contains(':');
    is_account.then_some((namespace, name))
}

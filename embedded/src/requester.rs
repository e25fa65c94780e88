//! The requester of a request: a user, or the holder of a limited credential.

use std::borrow::Cow;

use crate::grant::{Grant, LIMITED_USER};
use crate::rbac::{AUTHENTICATED, User};

/// Who sent a request, and what authorizes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    /// A user. Roles authorize the requests.
    User(User),
    /// The holder of a limited credential. The grant authorizes the requests.
    Limited(Grant),
}

impl Requester {
    /// Returns the requester of the in-process client, and of the token in the kubeconfig.
    pub(crate) fn administrator() -> Self {
        Self::User(User::administrator())
    }

    /// Whether every request is allowed.
    pub(crate) fn is_administrator(&self) -> bool {
        matches!(self, Self::User(user) if user.is_administrator())
    }

    /// Returns the user. The holders of limited credentials share one, which no role needs to name.
    pub(crate) fn user(&self) -> Cow<'_, User> {
        match self {
            Self::User(user) => Cow::Borrowed(user),
            Self::Limited(_) => Cow::Owned(User {
                name: LIMITED_USER.to_owned(),
                groups: vec![AUTHENTICATED.to_owned()],
                ..User::default()
            }),
        }
    }
}

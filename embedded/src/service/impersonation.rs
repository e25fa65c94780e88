//! User impersonation: the headers `Impersonate-User`, `Impersonate-Group`, `Impersonate-Uid` and `Impersonate-Extra-*`, as
//! `filters/impersonation.go` of apiserver.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;
use http::request::Parts;
use percent_encoding::percent_decode_str;

use super::api::Api;
use crate::grant::ResourceAttributes;
use crate::rbac::{self, AUTHENTICATED, Attributes, Decision, RoleIndex, User};
use crate::requester::Requester;
use crate::status_error::StatusError;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
/// Prefix of headers with other attributes; the rest is the key.
const EXTRA: &str = "impersonate-extra-";
/// API group of the resources `uids` and `userextras`.
const AUTHENTICATION: &str = "authentication.k8s.io";
/// The groups of users of which one is always present.
const ANY_USER: [&str; 2] = [AUTHENTICATED, UNAUTHENTICATED];
const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The user of requests without a credential. None is served here, but its rights can be reviewed.
const ANONYMOUS: &str = "system:anonymous";

/// Returns who the request acts as: its sender, or the impersonated user if the sender may impersonate it.
pub(super) fn requester(api: &Api, parts: &Parts) -> Result<Arc<Requester>, StatusError> {
    let sender = parts.extensions.get::<Arc<Requester>>().cloned();
    // Only the in-process client has no credential.
    let sender = sender.unwrap_or_else(|| Arc::new(Requester::administrator()));
    let Some(requested) = Impersonation::parse(&parts.headers)? else {
        return Ok(sender);
    };
    let Requester::User(user) = &*sender else {
        return Err(StatusError::limited_impersonation());
    };
    if !user.is_administrator() {
        requested.authorize(user, &api.roles())?;
    }
    Ok(Arc::new(Requester::User(requested.into_user())))
}

/// The requested user.
#[derive(Debug, PartialEq, Eq)]
struct Impersonation {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

impl Impersonation {
    fn parse(headers: &HeaderMap) -> Result<Option<Self>, StatusError> {
        let mut requested = Self {
            name: texts(headers, USER)?.into_iter().next().unwrap_or_default(),
            uid: texts(headers, UID)?.into_iter().next().unwrap_or_default(),
            groups: texts(headers, GROUP)?,
            extra: BTreeMap::new(),
        };
        for header in headers.keys() {
            if let Some(key) = header.as_str().strip_prefix(EXTRA) {
                let key = percent_decode_str(key).decode_utf8_lossy().to_lowercase();
                requested.extra.insert(key, texts(headers, header.as_str())?);
            }
        }
        let has_more =
            !requested.uid.is_empty() || !requested.groups.is_empty() || !requested.extra.is_empty();
        match (requested.name.is_empty(), has_more) {
            (true, false) => Ok(None),
            (true, true) => Err(StatusError::bad_request(
                "requested groups, uid or extra attributes without impersonating a user",
            )),
            (false, _) => Ok(Some(requested)),
        }
    }

    /// Checks that a user may impersonate each part.
    fn authorize(&self, user: &User, roles: &RoleIndex) -> Result<(), StatusError> {
        let check = |group: &str, resource: &str, namespace: &str, name: &str| {
            let attributes = Attributes::Resource(ResourceAttributes {
                verb: "impersonate",
                group,
                resource,
                namespace,
                name,
                selector: "",
            });
            match rbac::authorize(user, attributes, roles) {
                Decision::Allowed(_) => Ok(()),
                Decision::Denied(reason) => Err(StatusError::denied(user, attributes, &reason)),
            }
        };
        match rbac::split_account_user(&self.name) {
            Some((namespace, name)) => check("", "serviceaccounts", namespace, name)?,
            None => check("", "users", "", &self.name)?,
        }
        for group in &self.groups {
            check("", "groups", "", group)?;
        }
        if !self.uid.is_empty() {
            check(AUTHENTICATION, "uids", "", &self.uid)?;
        }
        for (key, values) in &self.extra {
            for value in values {
                check(AUTHENTICATION, &format!("userextras/{key}"), "", value)?;
            }
        }
        Ok(())
    }

    fn into_user(self) -> User {
        let mut groups = self.groups;
        if groups.is_empty()
            && let Some((namespace, _)) = rbac::split_account_user(&self.name)
        {
            groups = rbac::account_groups(namespace);
        }
        if !groups.iter().any(|group| ANY_USER.contains(&group.as_str())) {
            let is_anonymous = self.name == ANONYMOUS;
            let group = if is_anonymous {
                UNAUTHENTICATED
            } else {
                AUTHENTICATED
            };
            groups.push(group.to_owned());
        }
        User {
            name: self.name,
            uid: self.uid,
            groups,
            extra: self.extra,
        }
    }
}

/// Returns the values of a header.
fn texts(headers: &HeaderMap, name: &str) -> Result<Vec<String>, StatusError> {
    let values = headers.get_all(name).iter().map(|value| {
        let text = value.to_str().map(str::to_owned);
        text.map_err(|_| StatusError::bad_request(format!("the header {name} is not a text")))
    });
    values.collect()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::HeaderName;

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        headers
    }

    fn user(pairs: &[(&str, &str)]) -> User {
        Impersonation::parse(&headers(pairs))
            .unwrap()
            .unwrap()
            .into_user()
    }

    #[test]
    fn headers_name_the_user() {
        assert_eq!(Impersonation::parse(&HeaderMap::new()), Ok(None));
        let jane = user(&[
            ("Impersonate-User", "jane"),
            ("Impersonate-Group", "dev"),
            ("Impersonate-Group", "ops"),
            ("Impersonate-Extra-Scopes%2Fa", "view"),
        ]);
        assert_eq!(jane.name, "jane");
        assert_eq!(jane.groups, ["dev", "ops", AUTHENTICATED]);
        assert_eq!(jane.extra["scopes/a"], ["view"]);
        let account = user(&[("Impersonate-User", "system:serviceaccount:team:deployer")]);
        assert_eq!(account, User::service_account("team", "deployer", ""));
        let anonymous = user(&[("Impersonate-User", ANONYMOUS)]);
        assert_eq!(anonymous.groups, [UNAUTHENTICATED]);
        let error = Impersonation::parse(&headers(&[("Impersonate-Group", "system:masters")])).unwrap_err();
        assert_eq!(error.code(), 400);
    }

    #[test]
    fn each_part_needs_the_verb_impersonate() {
        let roles = RoleIndex::default();
        let sender = User {
            name: "jane".to_owned(),
            ..User::default()
        };
        let requested =
            Impersonation::parse(&headers(&[("Impersonate-User", "system:serviceaccount:team:a")]));
        let error = requested
            .unwrap()
            .unwrap()
            .authorize(&sender, &roles)
            .unwrap_err();
        assert_eq!(
            error.message(),
            "serviceaccounts \"a\" is forbidden: User \"jane\" cannot impersonate resource \"serviceaccounts\" in API group \"\" in the namespace \"team\""
        );
    }
}

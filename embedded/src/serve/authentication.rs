//! Authentication of a request: a client certificate, the administrator's token, a ServiceAccount token or a limited token.

use jiff::Timestamp;

use super::credentials::Token;
use super::limited_token;
use crate::account_token;
use crate::meta;
use crate::rbac::User;
use crate::requester::Requester;
use crate::service::Api;
use crate::store::Key;

/// Resource of ServiceAccounts in the store.
const ACCOUNTS: &str = "serviceaccounts";

/// Returns who sent a request with this `Authorization` header over a connection with this client certificate; `None` if neither is
/// valid. As in kube-apiserver, the certificate precedes.
pub(super) fn authenticate(
    api: &Api,
    admin: &Token,
    certificate: Option<&User>,
    authorization: &[u8],
) -> Option<Requester> {
    if let Some(user) = certificate {
        return Some(Requester::User(user.clone()));
    }
    if admin.matches_header(authorization) {
        return Some(Requester::administrator());
    }
    if let Some(grant) = limited_token::verify(authorization, admin) {
        return Some(Requester::Limited(grant));
    }
    account(api, authorization).map(Requester::User)
}

/// Returns the ServiceAccount with the token in a header. The account of the token must still exist.
fn account(api: &Api, authorization: &[u8]) -> Option<User> {
    let header = std::str::from_utf8(authorization).ok()?;
    let (scheme, token) = header.split_at_checked(7)?;
    if !scheme.eq_ignore_ascii_case("bearer ") {
        return None;
    }
    let now = Timestamp::now().as_second();
    let claims = account_token::verify(token, &api.token_key(), now)?;
    let (namespace, reference) = (claims.kubernetes.namespace, claims.kubernetes.serviceaccount);
    let key = Key::new(ACCOUNTS, &namespace, &reference.name);
    let state = api.store.read();
    let stored = state.get(&key)?;
    let is_same = meta::uid(stored) == reference.uid && !meta::is_deleting(stored);
    is_same.then(|| User::service_account(&namespace, &reference.name, &reference.uid))
}

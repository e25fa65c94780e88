//! Authentication of a request: a client certificate, the administrator's token, a ServiceAccount token or a limited token.

use jiff::Timestamp;

use super::credentials::Token;
use super::limited_token;
use crate::account_token::{self, AUDIENCE};
use crate::rbac::User;
use crate::requester::Requester;
use crate::service::Api;

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
    issued_here(admin, authorization).or_else(|| account(api, authorization).map(Requester::User))
}

/// Returns the holder of the administrator's token or of a limited one in a header.
pub(super) fn issued_here(admin: &Token, authorization: &[u8]) -> Option<Requester> {
    if admin.matches_header(authorization) {
        return Some(Requester::administrator());
    }
    limited_token::verify(authorization, admin).map(Requester::Limited)
}

/// Returns the ServiceAccount with the token in a header.
fn account(api: &Api, authorization: &[u8]) -> Option<User> {
    let header = std::str::from_utf8(authorization).ok()?;
    let (scheme, token) = header.split_at_checked(7)?;
    if !scheme.eq_ignore_ascii_case("bearer ") {
        return None;
    }
    let (key, now) = (api.token_key(), Timestamp::now().as_second());
    let state = api.store.read();
    let (user, _) = account_token::authenticate(token, &key, now, &[AUDIENCE], &state)?;
    Some(user)
}

//! `TokenReview`: which user a bearer token belongs to. Other servers ask it about the tokens that their clients present.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::request::ObjectRequest;
use super::review::user_info;
use crate::account_token::{self, AUDIENCE};
use crate::meta;
use crate::rbac::User;
use crate::status_error::StatusError;

/// The kind of the review.
pub(super) const KIND: &str = "TokenReview";

/// Returns the status of a review.
pub(super) fn status(request: &ObjectRequest, spec: &Value) -> Result<Value, StatusError> {
    let token = spec["token"].as_str().unwrap_or("");
    if token.is_empty() {
        let reason = "token is required for TokenReview in authentication";
        return Err(StatusError::bad_request(reason));
    }
    let audiences = match meta::strings(&spec["audiences"]).as_slice() {
        [] => vec![AUDIENCE],
        some => some.to_vec(),
    };
    Ok(match authenticate(request, token, &audiences) {
        // As the Go type, the status has a user in any case.
        None => json!({"user": {}, "error": "invalid bearer token"}),
        Some((user, valid_for)) => {
            let common = audiences
                .iter()
                .filter(|audience| valid_for.iter().any(|valid| valid == *audience));
            json!({
                "authenticated": true, "user": user_info(&user), "audiences": common.collect::<Vec<_>>(),
            })
        }
    })
}

/// Returns the user of a token that is valid for one of the audiences, and all audiences of the token.
fn authenticate(request: &ObjectRequest, token: &str, audiences: &[&str]) -> Option<(User, Vec<String>)> {
    // The tokens of the administrator and limited ones are for this API.
    if audiences.contains(&AUDIENCE)
        && let Some(requester) = request.api.holder_of(token)
    {
        return Some((requester.user().into_owned(), vec![AUDIENCE.to_owned()]));
    }
    let (key, now) = (request.api.token_key(), Timestamp::now().as_second());
    let state = request.api.store.read();
    account_token::authenticate(token, &key, now, audiences, &state)
}

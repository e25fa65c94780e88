//! TokenRequest: `kubectl create token`. Nothing is stored.

use bytes::Bytes;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::body;
use super::request::ObjectRequest;
use super::response::Reply;
use crate::account_token::{self, AUDIENCE, AccountClaim, AccountReference, Claims};
use crate::cause::Cause;
use crate::meta;
use crate::rbac::User;
use crate::status_error::StatusError;

/// The subresource of ServiceAccounts.
pub(super) const SUBRESOURCE: &str = "token";

/// Validity of a token without a requested one, as in kube-apiserver.
const DEFAULT_SECONDS: i64 = 3600;
/// Shortest validity, as in kube-apiserver.
const MIN_SECONDS: i64 = 600;
/// Longest validity, as `--service-account-max-token-expiration`: 48 hours.
const MAX_SECONDS: i64 = 48 * 3600;
/// Maximum size of all audiences in bytes: the token has to fit into a header.
const MAX_AUDIENCE_BYTES: usize = 4096;

/// POST on the token of a ServiceAccount.
pub(super) fn create(
    request: &ObjectRequest,
    bytes: &Bytes,
    content_type: &str,
) -> Result<Reply, StatusError> {
    let name = &request.at.name;
    request.authorize("create", name)?;
    let body = body::value(bytes, content_type)?;
    let kind = body["kind"].as_str().unwrap_or("TokenRequest");
    if kind != "TokenRequest" {
        return Err(StatusError::bad_request(format!(
            "{kind} cannot be handled as a TokenRequest"
        )));
    }
    let spec = &body["spec"];
    let (requested, audiences) = (validate(name, spec)?, audiences(spec));
    let seconds = requested.min(MAX_SECONDS);
    if seconds < requested {
        request.warnings.push(format!(
            "requested expiration of {requested} seconds shortened to {seconds} seconds"
        ));
    }
    let account = request.api.store.read().get(&request.key(name)).cloned();
    let account = account.ok_or_else(|| StatusError::not_found(&request.resource, name))?;
    let now = Timestamp::now().as_second();
    let expires = now.saturating_add(seconds);
    let claims = claims(&account, audiences.clone(), now, expires);
    let token = account_token::issue(&claims, &request.api.token_key())
        .map_err(|error| StatusError::internal(error.to_string()))?;
    let expiration = Timestamp::from_second(expires)
        .map_err(|error| StatusError::internal(error.to_string()))?
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string();
    let response = json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": name, "namespace": request.at.namespace, "creationTimestamp": meta::now()},
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": null},
        "status": {"token": token, "expirationTimestamp": expiration},
    });
    Ok(Reply::Plain(StatusCode::CREATED, response))
}

fn claims(account: &Value, aud: Vec<String>, now: i64, exp: i64) -> Claims {
    let (namespace, name, uid) = (meta::namespace(account), meta::name(account), meta::uid(account));
    Claims {
        aud,
        exp,
        iat: now,
        iss: AUDIENCE.to_owned(),
        jti: uuid::Uuid::new_v4().to_string(),
        nbf: now,
        sub: User::service_account(namespace, name, uid).name,
        kubernetes: AccountClaim {
            namespace: namespace.to_owned(),
            serviceaccount: AccountReference {
                name: name.to_owned(),
                uid: uid.to_owned(),
            },
        },
    }
}

fn audiences(spec: &Value) -> Vec<String> {
    match meta::strings(&spec["audiences"]).as_slice() {
        [] => vec![AUDIENCE.to_owned()],
        some => some.iter().map(|text| (*text).to_owned()).collect(),
    }
}

/// Returns the requested validity in seconds.
fn validate(name: &str, spec: &Value) -> Result<i64, StatusError> {
    let reference = &spec["boundObjectRef"];
    if reference.is_object() {
        // Pods and nodes are not served, and a Secret is no proof that a token is still in use.
        let (version, kind) = (&reference["apiVersion"], &reference["kind"]);
        return Err(StatusError::bad_request(format!(
            "cannot bind token to object of type {}, Kind={}",
            version.as_str().unwrap_or(""),
            kind.as_str().unwrap_or("")
        )));
    }
    let bytes: usize = meta::strings(&spec["audiences"])
        .iter()
        .map(|text| text.len())
        .sum();
    if bytes > MAX_AUDIENCE_BYTES {
        let cause = Cause::too_long("spec.audiences", MAX_AUDIENCE_BYTES);
        return Err(StatusError::invalid_token_request(name, cause));
    }
    let field = &spec["expirationSeconds"];
    if field.is_null() {
        return Ok(DEFAULT_SECONDS);
    }
    let seconds = field.as_i64().unwrap_or(0);
    let detail = if seconds < MIN_SECONDS {
        "may not specify a duration less than 10 minutes"
    } else if seconds > 1 << 32 {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(seconds);
    };
    let cause = Cause::invalid_json("spec.expirationSeconds", field, detail);
    Err(StatusError::invalid_token_request(name, cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_lasts_from_ten_minutes_to_the_requested_time() {
        let of = |seconds: Value| validate("a", &json!({ "expirationSeconds": seconds }));
        assert_eq!(of(Value::Null), Ok(3600));
        assert_eq!(of(json!(600)), Ok(600));
        assert_eq!(of(json!(1_i64 << 32)), Ok(1 << 32));
        for (seconds, detail) in [
            (json!(599), "less than 10 minutes"),
            (json!(-1), "less than 10 minutes"),
            (json!("600"), "less than 10 minutes"),
            (json!((1_i64 << 32) + 1), "larger than 2^32 seconds"),
        ] {
            let error = of(seconds).unwrap_err();
            assert_eq!(error.code(), 422);
            assert!(error.message().contains(detail), "{error:?}");
        }
    }

    #[test]
    fn a_token_is_not_bound_to_objects_and_has_few_audiences() {
        let bound = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p"}});
        assert_eq!(validate("a", &bound).unwrap_err().code(), 400);
        let many = json!({"audiences": ["x".repeat(MAX_AUDIENCE_BYTES), "y"]});
        assert_eq!(validate("a", &many).unwrap_err().code(), 422);
        assert_eq!(audiences(&json!({})), [AUDIENCE]);
        assert_eq!(audiences(&json!({"audiences": ["vault"]})), ["vault"]);
    }
}

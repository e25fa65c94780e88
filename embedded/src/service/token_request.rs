//! TokenRequest: `kubectl create token`. Nothing is stored.

use bytes::Bytes;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::body;
use super::request::ObjectRequest;
use super::response::Reply;
use crate::account_token::{self, AUDIENCE, AccountClaim, Claims, ObjectReference};
use crate::cause::Cause;
use crate::meta;
use crate::rbac::User;
use crate::status_error::StatusError;
use crate::store::Key;

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
    let secret = bound_secret(request, &spec["boundObjectRef"])?;
    let now = Timestamp::now().as_second();
    let expires = now.saturating_add(seconds);
    let claims = claims(&account, secret, audiences.clone(), now, expires);
    let token = account_token::issue(&claims, &request.api.token_key())
        .map_err(|error| StatusError::internal(error.to_string()))?;
    let expiration = Timestamp::from_second(expires)
        .map_err(|error| StatusError::internal(error.to_string()))?
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string();
    let response = json!({
        "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": name, "namespace": request.at.namespace, "creationTimestamp": meta::now(),
            "uid": uuid::Uuid::new_v4().to_string(),
        },
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": spec["boundObjectRef"]},
        "status": {"token": token, "expirationTimestamp": expiration},
    });
    Ok(Reply::Plain(StatusCode::CREATED, response))
}

/// Returns the Secret that a token is bound to; `None` if it is not bound. A reference without a uid is one to the present object.
fn bound_secret(request: &ObjectRequest, reference: &Value) -> Result<Option<ObjectReference>, StatusError> {
    if !reference.is_object() {
        return Ok(None);
    }
    let text = |field: &str| reference[field].as_str().unwrap_or("");
    let (name, uid) = (text("name"), text("uid"));
    let plural = bindable_plural(text("apiVersion"), text("kind"))?;
    let not_found = || StatusError::bound_object_not_found(plural, name);
    let resource = request.registry.by_path("", "v1", plural).ok_or_else(not_found)?;
    let key = Key::new(plural, &request.at.namespace, name);
    let bound = request
        .api
        .store
        .read()
        .get(&key)
        .cloned()
        .ok_or_else(not_found)?;
    if !uid.is_empty() && uid != meta::uid(&bound) {
        let detail = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(StatusError::precondition_failed(resource, name, &detail));
    }
    Ok(Some(ObjectReference::of(&bound)))
}

/// Returns the resource of a kind that tokens can be bound to. Pods and Nodes are such kinds, but there are none of them here.
fn bindable_plural(api_version: &str, kind: &str) -> Result<&'static str, StatusError> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    match (group, kind) {
        ("", "Secret") => Ok("secrets"),
        ("", "Pod") => Ok("pods"),
        ("", "Node") => Ok("nodes"),
        _ => Err(StatusError::bad_request(format!(
            "cannot bind token to object of type {group}/{version}, Kind={kind}"
        ))),
    }
}

fn claims(account: &Value, secret: Option<ObjectReference>, aud: Vec<String>, now: i64, exp: i64) -> Claims {
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
            serviceaccount: ObjectReference::of(account),
            secret,
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
    fn a_token_can_be_bound_to_three_kinds() {
        let message = |version: &str, kind: &str| {
            let refused = bindable_plural(version, kind).unwrap_err();
            assert_eq!(refused.code(), 400);
            refused.message().to_owned()
        };
        assert_eq!(bindable_plural("v1", "Secret"), Ok("secrets"));
        assert_eq!(bindable_plural("v1", "Pod"), Ok("pods"));
        assert_eq!(bindable_plural("v1", "Node"), Ok("nodes"));
        let refused = "cannot bind token to object of type";
        assert_eq!(
            message("v1", "ServiceAccount"),
            format!("{refused} /v1, Kind=ServiceAccount")
        );
        assert_eq!(message("apps/v1", "Pod"), format!("{refused} apps/v1, Kind=Pod"));
    }

    #[test]
    fn a_token_has_few_audiences() {
        let many = json!({"audiences": ["x".repeat(MAX_AUDIENCE_BYTES), "y"]});
        assert_eq!(validate("a", &many).unwrap_err().code(), 422);
        assert_eq!(audiences(&json!({})), [AUDIENCE]);
        assert_eq!(audiences(&json!({"audiences": ["vault"]})), ["vault"]);
    }
}

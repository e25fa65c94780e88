//! Server-side apply: PATCH with `application/apply-patch+yaml`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;

use super::body;
use super::patch::check_identity;
use super::query::FieldValidation;
use super::request::{ObjectRequest, Warnings, to_version};
use super::response::Reply;
use super::write::{check_definition, check_namespace, check_own_namespace, decide_update, namespace_key};
use crate::admission::{self, Endpoint};
use crate::apply::Writer;
use crate::cause::Cause;
use crate::meta;
use crate::resource::Resource;
use crate::status_error::StatusError;
use crate::store::{Key, TransactionView, Write};
use crate::yaml;

/// A decoded request.
struct Application {
    resource: Arc<Resource>,
    endpoint: Endpoint,
    writer: Writer,
    config: Value,
    force: bool,
    key: Key,
    namespace_key: Option<Key>,
    /// Whether the user may create the object.
    may_create: Result<(), StatusError>,
}

/// PATCH on an object or a subresource. Creates a missing object.
pub(super) async fn apply(
    request: &ObjectRequest,
    endpoint: Endpoint,
    bytes: &Bytes,
) -> Result<Reply, StatusError> {
    if request.query.field_manager.is_empty() {
        let cause = Cause::required("fieldManager", "is required for apply patch");
        return Err(StatusError::invalid_options("PatchOptions", cause));
    }
    let mut config = decode(bytes)?;
    if !request.resource.namespaced && !meta::namespace(&config).is_empty() {
        meta::set(&mut config, "namespace", Value::Null);
    }
    check_duplicates(request, bytes)?;
    check_own_namespace(request, &config)?;
    let key = request.key(&request.at.name);
    let application = Application {
        resource: request.resource.clone(),
        endpoint,
        writer: request.writer(endpoint),
        config,
        force: request.query.force.unwrap_or(false),
        namespace_key: namespace_key(request, &key),
        may_create: request.authorize("create", &key.name).map(drop),
        key: key.clone(),
    };
    let is_new = Arc::new(AtomicBool::new(false));
    let (warnings, creates) = (request.warnings.clone(), is_new.clone());
    let stored = request.write(key, move |state| {
        let old = state.get(&application.key);
        creates.store(old.is_none(), Ordering::Relaxed);
        let Some(old) = old else {
            return application.create(state, &warnings);
        };
        let before = to_version(&application.resource, old);
        let config = &application.config;
        let new = application
            .writer
            .apply(Some(&before), config, application.force)?;
        let resource = &application.resource;
        let new = body::decode_patched(resource, new, Vec::new(), FieldValidation::Ignore, &warnings)?;
        check_identity(&new, old)?;
        decide_update(resource, new, old, application.endpoint, None)
    });
    let stored = stored.await?;
    let code = if is_new.load(Ordering::Relaxed) {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok(Reply::Object(code, stored))
}

impl Application {
    fn create(&self, state: &TransactionView<'_>, warnings: &Warnings) -> Result<Write, StatusError> {
        let (resource, name) = (&*self.resource, &*self.key.name);
        if self.endpoint != Endpoint::Main {
            return Err(StatusError::not_found(resource, name));
        }
        let uid = meta::uid(&self.config);
        if !uid.is_empty() {
            return Err(StatusError::uid_of_missing(resource, name, uid));
        }
        self.may_create.clone()?;
        check_definition(state, resource, name)?;
        if let Some(namespace) = &self.namespace_key {
            check_namespace(state, resource, namespace, name)?;
        }
        let mut object = self.writer.apply(None, &self.config, self.force)?;
        if !self.key.namespace.is_empty() {
            meta::set(&mut object, "namespace", self.key.namespace.clone().into());
        }
        let validation = FieldValidation::Ignore;
        let object = body::decode_patched(resource, object, Vec::new(), validation, warnings)?;
        if meta::name(&object) != name && !meta::name(&object).is_empty() {
            return Err(StatusError::bad_request(format!(
                "the name of the object ({}) does not match the name on the URL ({name})",
                meta::name(&object)
            )));
        }
        admission::prepare_create(resource, object).map(Write::Put)
    }
}

/// Reports a key that occurs twice, as the request wants it.
fn check_duplicates(request: &ObjectRequest, bytes: &Bytes) -> Result<(), StatusError> {
    let validation = request.query.field_validation;
    if validation == FieldValidation::Ignore {
        return Ok(());
    }
    // Unlike JSON's, this type rejects duplicates.
    let Err(error) = yaml::parse::<serde_yaml_ng::Value>(bytes) else {
        return Ok(());
    };
    if validation == FieldValidation::Strict {
        return Err(StatusError::bad_request(format!(
            "error strict decoding YAML: {error}"
        )));
    }
    request.warnings.push(error.to_string());
    Ok(())
}

/// Decodes a configuration: YAML, of which JSON is a part.
pub(super) fn decode(bytes: &Bytes) -> Result<Value, StatusError> {
    match yaml::parse(bytes) {
        Ok(config @ Value::Object(_)) => Ok(config),
        Ok(_) => Err(StatusError::bad_request(
            "error decoding YAML: json: cannot unmarshal into Go value of type map[string]interface {}",
        )),
        Err(error) => Err(StatusError::bad_request(format!("error decoding YAML: {error}"))),
    }
}

//! Request handling: routing, content negotiation, execution and response.

mod api;
mod apply;
mod body;
mod continue_token;
mod delete;
mod discovery;
mod duplicate_fields;
mod escalation;
mod event;
mod impersonation;
mod list_options;
mod negotiation;
mod page;
mod patch;
mod protobuf;
mod query;
mod read;
mod request;
mod response;
mod review;
mod route;
mod scale;
mod strategic_merge;
mod table;
mod token_request;
mod token_review;
mod user_fields;
mod watch;
mod write;

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};

pub(crate) use self::api::Api;
pub(crate) use self::delete::{FOREGROUND, ORPHAN, PropagationPolicy, decide_deletion};
use self::negotiation::ResponseFormat;
use self::query::Query;
use self::request::Warnings;
pub(crate) use self::request::{ObjectRequest, decide_write};
use self::response::Reply;
pub(crate) use self::response::{ResponseBody, end_on_stop, error_response};
use self::route::{ObjectPath, Target};
pub use self::user_fields::UserFields;
use crate::definitions;
use crate::rbac::{self, Attributes, Decision};
use crate::requester::Requester;
use crate::resource::{Registry, Resource, Strategy};
use crate::status_error::StatusError;

impl Api {
    /// Handles one request. Errors become a `Status`.
    pub(crate) async fn handle<B>(self: Arc<Self>, request: Request<B>) -> Response<ResponseBody>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        let (parts, body) = request.into_parts();
        let accept = header(&parts, http::header::ACCEPT.as_str());
        let outcome = self.dispatch(&parts, body, accept).await;
        outcome.unwrap_or_else(|error| response::error_response(&error))
    }

    async fn dispatch<B>(
        self: &Arc<Self>,
        parts: &Parts,
        body: B,
        accept: &str,
    ) -> Result<Response<ResponseBody>, StatusError>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        let target = route::parse_path(parts.uri.path());
        let requester = impersonation::requester(self, parts)?;
        if let Target::Objects(at) = target {
            let mut request = self.object_request(parts, at, accept, requester)?;
            let agent = header(parts, http::header::USER_AGENT.as_str());
            request.field_manager = field_manager(&request.query.field_manager, agent);
            authorize(&mut request, parts)?;
            let mut body = body::read(body).await?;
            if request.requested_resource.group != request.resource.group {
                body = event::body_to_core(body, header(parts, http::header::CONTENT_TYPE.as_str()));
            }
            let reply = execute(&request, parts, body).await?;
            let is_read = parts.method == Method::GET || parts.method == Method::HEAD;
            if request.resource.strategy == Strategy::Definition && !is_read && !request.query.dry_run {
                self.wait_until_served().await;
            }
            return Ok(response::response_to(&request, reply));
        }
        self.authorize_path(&requester, parts)?;
        if parts.method != Method::GET && parts.method != Method::HEAD {
            return Err(if target == Target::Unknown {
                StatusError::page_not_found()
            } else {
                StatusError::method_not_allowed(None)
            });
        }
        let query = parts.uri.query().unwrap_or_default();
        let if_none_match = header(parts, http::header::IF_NONE_MATCH.as_str());
        discovery::respond(self, &target, query, accept, if_none_match)
    }

    fn object_request(
        self: &Arc<Self>,
        parts: &Parts,
        at: ObjectPath,
        accept: &str,
        requester: Arc<Requester>,
    ) -> Result<ObjectRequest, StatusError> {
        let registry = self.registry();
        let requested_resource = registry
            .by_path(&at.group, &at.version, &at.plural)
            .ok_or_else(|| path_not_found(&registry, &at.group, &at.version))?
            .clone();
        let resource = match registry.by_strategy(requested_resource.strategy) {
            Some(stored) if requested_resource.group == event::GROUP => stored.clone(),
            _ => requested_resource.clone(),
        };
        // Paths of namespaced objects need a namespace, those of cluster-scoped objects must not have one.
        let is_read = parts.method == Method::GET || parts.method == Method::HEAD;
        let (is_custom, is_review) = (
            resource.strategy == Strategy::Custom,
            resource.strategy == Strategy::Review,
        );
        let misplaced = resource.namespaced
            && at.namespace.is_empty()
            && (!at.name.is_empty() || (is_custom && !is_read) || is_review);
        if misplaced || (!resource.namespaced && !at.namespace.is_empty()) {
            return Err(path_not_found(&registry, &at.group, &at.version));
        }
        let is_item = !at.name.is_empty();
        let mut query = Query::parse(parts.uri.query().unwrap_or(""), options(&parts.method))?;
        if requested_resource.group == event::GROUP {
            query.field_selector = event::selector_to_core(&query.field_selector);
        }
        Ok(ObjectRequest {
            api: self.clone(),
            warnings: Warnings::of(&resource),
            registry,
            resource,
            requested_resource,
            at,
            query,
            format: ResponseFormat::parse(accept)?,
            field_manager: String::new(),
            write_verb: write_verb(parts, is_item),
            requester,
        })
    }

    /// Authorizes a request that is not for objects. Limited credentials may read all such paths.
    fn authorize_path(&self, requester: &Requester, parts: &Parts) -> Result<(), StatusError> {
        let Requester::User(user) = requester else {
            return Ok(());
        };
        if user.is_administrator() {
            return Ok(());
        }
        let attributes = Attributes::NonResource {
            verb: &parts.method.as_str().to_lowercase(),
            path: parts.uri.path(),
        };
        match rbac::authorize(user, attributes, &self.roles()) {
            Decision::Allowed(_) => Ok(()),
            Decision::Denied(reason) => Err(StatusError::denied(user, attributes, &reason)),
        }
    }
}

/// Authorizes a request for objects before its body is read. The creations of a limited credential are authorized later: its grant
/// has the names of new objects, which are in their bodies.
fn authorize(request: &mut ObjectRequest, parts: &Parts) -> Result<(), StatusError> {
    let verb = request_verb(parts, request);
    let is_user = matches!(&*request.requester, Requester::User(_));
    let name = if is_user {
        request.attribute_name(verb).into_owned()
    } else {
        request.at.name.clone()
    };
    if is_user || parts.method != Method::POST {
        request.query.label_selector = request.authorize(verb, &name)?;
    }
    Ok(())
}

async fn execute(request: &ObjectRequest, parts: &Parts, body: Bytes) -> Result<Reply, StatusError> {
    let content_type = header(parts, http::header::CONTENT_TYPE.as_str());
    let (is_item, sub) = (!request.at.name.is_empty(), request.at.subresource.as_str());
    if request.resource.strategy == Strategy::ServiceAccount && sub == token_request::SUBRESOURCE {
        return if parts.method == Method::POST && is_item {
            token_request::create(request, &body, content_type)
        } else {
            Err(request.method_not_allowed(verb(&parts.method, is_item)))
        };
    }
    if sub == scale::SUBRESOURCE
        && let Some(paths) = &request.resource.scale
    {
        return scale::execute(request, paths, &parts.method, &body, content_type).await;
    }
    execute_on_object(request, parts, body, content_type).await
}

/// Executes a request for objects of their own kind.
async fn execute_on_object(
    request: &ObjectRequest,
    parts: &Parts,
    body: Bytes,
    content_type: &str,
) -> Result<Reply, StatusError> {
    let (is_item, sub) = (!request.at.name.is_empty(), request.at.subresource.as_str());
    let endpoint = request.endpoint()?;
    if request.resource.strategy == Strategy::Review {
        return if parts.method == Method::POST && !is_item {
            review::create(request, &body, content_type)
        } else {
            Err(request.method_not_allowed(verb(&parts.method, is_item)))
        };
    }
    if request.resource.strategy == Strategy::Definition {
        definitions::check_creation(request, &parts.method)?;
    }
    match (&parts.method, is_item) {
        // As in kube-apiserver, one object is not watched by its path: the parameter has no effect there.
        (&Method::GET | &Method::HEAD, true) => read::get(request),
        (&Method::GET | &Method::HEAD, false) if !request.query.watch => read::list(request),
        (&Method::GET, false) => watch::start(request),
        (&Method::POST, false) if !request.resource.namespaced || !request.at.namespace.is_empty() => {
            write::create(request, &body, content_type).await
        }
        // Custom resources can also be created at their own path.
        (&Method::POST, true) if sub.is_empty() && request.resource.strategy == Strategy::Custom => {
            write::create(request, &body, content_type).await
        }
        // kube-apiserver checks the name before the verb.
        (&Method::PUT | &Method::PATCH, false) if request.resource.strategy == Strategy::Custom => {
            Err(StatusError::bad_request("name must be provided"))
        }
        (&Method::PUT, true) => write::update(request, endpoint, &body, content_type).await,
        (&Method::PATCH, true) => patch::apply(request, endpoint, body, content_type).await,
        (&Method::DELETE, true) if sub.is_empty() => {
            delete::delete_object(request, &body, content_type).await
        }
        (&Method::DELETE, false)
            if request.resource.verbs().contains(&"deletecollection")
                && (!request.resource.namespaced || !request.at.namespace.is_empty()) =>
        {
            delete::delete_collection(request, &body, content_type).await
        }
        (method, _) => Err(request.method_not_allowed(verb(method, is_item))),
    }
}

/// Returns the field manager of a write: the parameter, or else the name in the user agent.
fn field_manager(parameter: &str, agent: &str) -> String {
    if !parameter.is_empty() {
        return parameter.to_owned();
    }
    let name = agent.split('/').next().unwrap_or_default();
    // A header is visible ASCII, so a byte is a character.
    name.chars()
        .filter(|c| !c.is_control())
        .take(query::MAX_FIELD_MANAGER)
        .collect()
}

/// Returns 404 for a path below a group version: a `Status` if the group version has built-in kinds, otherwise plain text.
fn path_not_found(registry: &Registry, group: &str, version: &str) -> StatusError {
    let is_builtin =
        |r: &Arc<Resource>| r.strategy != Strategy::Custom && r.group == group && r.version == version;
    if registry.all().iter().any(is_builtin) {
        StatusError::resource_not_found()
    } else {
        StatusError::page_not_found()
    }
}

/// Returns the options kind of a method; empty for reads.
fn options(method: &Method) -> &'static str {
    match method.as_str() {
        "POST" => "CreateOptions",
        "PUT" => "UpdateOptions",
        "PATCH" => "PatchOptions",
        "DELETE" => "DeleteOptions",
        _ => "",
    }
}

/// Returns the verb of a request for authorization.
fn request_verb(parts: &Parts, request: &ObjectRequest) -> &'static str {
    let is_read = parts.method == Method::GET || parts.method == Method::HEAD;
    let is_item = !request.at.name.is_empty();
    if is_read && !is_item && request.query.watch {
        "watch"
    } else {
        verb(&parts.method, is_item)
    }
}

/// Returns the verb of a method for messages.
fn verb(method: &Method, is_item: bool) -> &'static str {
    match (method.as_str(), is_item) {
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        ("GET" | "HEAD", true) => "get",
        ("GET" | "HEAD", false) => "list",
        _ => "",
    }
}

/// Returns the verb of a write, of which an apply is a patch.
fn write_verb(parts: &Parts, is_item: bool) -> &'static str {
    let content_type = header(parts, http::header::CONTENT_TYPE.as_str());
    if parts.method == Method::PATCH && negotiation::media_type(content_type) == patch::APPLY {
        "apply"
    } else {
        verb(&parts.method, is_item)
    }
}

fn header<'a>(parts: &'a Parts, name: &str) -> &'a str {
    parts
        .headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("")
}

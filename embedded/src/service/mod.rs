//! From an HTTP request to its answer: route, negotiate, act, shape.

mod body;
mod call;
mod cause;
mod delete;
mod discovery;
mod duplicate;
mod event;
mod negotiate;
mod patch;
mod protobuf;
mod query;
mod read;
mod respond;
mod review;
mod route;
mod status_error;
mod strategic;
mod table;
mod watch;
mod write;

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, request::Parts};
use tokio_util::sync::CancellationToken;

use self::{
    call::Call,
    negotiate::Wanted,
    query::Query,
    respond::Reply,
    route::{Objects, Target},
};
pub(crate) use self::{
    call::settle,
    cause::Cause,
    delete::{FOREGROUND, ORPHAN, Propagation, decide as decide_deletion},
    respond::{ResponseBody, failure, until},
    status_error::StatusError,
};
use crate::{
    grant::Grant,
    resource::{Family, Registry},
    store::Store,
};

/// What every request is answered from.
#[derive(Debug)]
pub(crate) struct Api {
    /// The objects.
    pub(crate) store: Arc<Store>,
    /// The kinds.
    pub(crate) registry: Registry,
    /// Ends watches, so that the server can stop.
    pub(crate) stop: CancellationToken,
}

impl Api {
    /// Answers one request. It never fails: what goes wrong is a `Status`.
    pub(crate) async fn answer<B>(self: Arc<Self>, request: Request<B>) -> Response<ResponseBody>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        let (parts, body) = request.into_parts();
        let accept = header(&parts, http::header::ACCEPT.as_str());
        let outcome = self.dispatch(&parts, body, accept).await;
        outcome.unwrap_or_else(|error| respond::failure(&error))
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
        let target = route::target(parts.uri.path());
        if let Target::Objects(at) = target {
            let mut call = self.call(parts, at, accept)?;
            call.grant = parts.extensions.get::<Arc<Grant>>().cloned();
            if parts.method != Method::POST {
                call.query.labels = call.allowed(asked_verb(parts, &call), &call.at.name)?;
            }
            let mut body = body::read(body).await?;
            if call.shown.group != call.resource.group {
                body = event::stored_body(body, header(parts, http::header::CONTENT_TYPE.as_str()));
            }
            let reply = act(&call, parts, body).await?;
            return Ok(respond::reply(&call, reply));
        }
        if parts.method != Method::GET && parts.method != Method::HEAD {
            return Err(if target == Target::Unknown {
                StatusError::no_such_page()
            } else {
                StatusError::method_not_allowed(None)
            });
        }
        discovery::answer(self, &target, accept)
    }

    fn call(self: &Arc<Self>, parts: &Parts, at: Objects, accept: &str) -> Result<Call, StatusError> {
        let shown = self
            .registry
            .by_path(&at.group, &at.version, &at.plural)
            .ok_or_else(|| self.registry.nowhere(&at.group, &at.version))?
            .clone();
        let resource = match self.registry.by_family(shown.family) {
            Some(stored) if shown.group == event::GROUP => stored.clone(),
            _ => shown.clone(),
        };
        // A namespaced object has no address without its namespace, and the other way round.
        let reads = parts.method == Method::GET || parts.method == Method::HEAD;
        let custom = resource.family == Family::Custom;
        let misplaced =
            resource.namespaced && at.namespace.is_empty() && (!at.name.is_empty() || (custom && !reads));
        if misplaced || (!resource.namespaced && !at.namespace.is_empty()) {
            return Err(self.registry.nowhere(&at.group, &at.version));
        }
        let mut query = Query::parse(parts.uri.query().unwrap_or(""), options(&parts.method))?;
        if shown.group == event::GROUP {
            query.fields = event::stored_selector(&query.fields);
        }
        Ok(Call::new(
            self.clone(),
            resource,
            shown,
            at,
            query,
            Wanted::parse(accept)?,
        ))
    }
}

async fn act(call: &Call, parts: &Parts, body: Bytes) -> Result<Reply, StatusError> {
    let content_type = header(parts, http::header::CONTENT_TYPE.as_str());
    let (is_item, sub) = (!call.at.name.is_empty(), call.at.subresource.as_str());
    let part = call.part()?;
    if call.resource.family == Family::Review {
        return if parts.method == Method::POST && !is_item {
            review::answer(call, &body, content_type)
        } else {
            Err(call.not_allowed(verb(&parts.method, is_item)))
        };
    }
    match (&parts.method, is_item) {
        (&Method::GET | &Method::HEAD, true) if !call.query.watch => read::get(call),
        (&Method::GET | &Method::HEAD, false) if !call.query.watch => read::list(call),
        (&Method::GET, _) if sub.is_empty() => watch::start(call),
        _ if !call.resource.is_writable() => Err(call.not_allowed(verb(&parts.method, is_item))),
        (&Method::POST, false) if !call.resource.namespaced || !call.at.namespace.is_empty() => {
            write::create(call, &body, content_type).await
        }
        // Custom resources are also created at the address they will have.
        (&Method::POST, true) if sub.is_empty() && call.resource.family == Family::Custom => {
            write::create(call, &body, content_type).await
        }
        // The server looks for a name before it looks for the verb.
        (&Method::PUT | &Method::PATCH, false) if call.resource.family == Family::Custom => {
            Err(StatusError::bad_request("name must be provided"))
        }
        (&Method::PUT, true) => write::replace(call, part, &body, content_type).await,
        (&Method::PATCH, true) => patch::apply(call, part, body, content_type).await,
        (&Method::DELETE, true) if sub.is_empty() => delete::one(call, &body, content_type).await,
        (&Method::DELETE, false)
            if call.resource.verbs().contains(&"deletecollection")
                && (!call.resource.namespaced || !call.at.namespace.is_empty()) =>
        {
            delete::collection(call, &body, content_type).await
        }
        (method, _) => Err(call.not_allowed(verb(method, is_item))),
    }
}

/// The kind that a request's parameters make up, for methods that write.
fn options(method: &Method) -> &'static str {
    match method.as_str() {
        "POST" => "CreateOptions",
        "PUT" => "UpdateOptions",
        "PATCH" => "PatchOptions",
        "DELETE" => "DeleteOptions",
        _ => "",
    }
}

/// The verb of a request, as rules name it.
fn asked_verb(parts: &Parts, call: &Call) -> &'static str {
    let reads = parts.method == Method::GET || parts.method == Method::HEAD;
    if reads && call.query.watch {
        "watch"
    } else {
        verb(&parts.method, !call.at.name.is_empty())
    }
}

/// The verb of a method, as messages name it.
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

fn header<'a>(parts: &'a Parts, name: &str) -> &'a str {
    parts
        .headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("")
}

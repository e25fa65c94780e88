//! Answers: shaped and encoded as negotiated, with their warnings.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, BodyStream, Full, StreamBody, combinators::UnsyncBoxBody};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    Call, StatusError,
    negotiate::{Encoding, Shape},
    table,
};
use crate::resource::Family;

/// The body of every answer.
pub(crate) type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// The outcome of a request on objects.
pub(crate) enum Reply {
    /// One object.
    Object(StatusCode, Arc<Value>),
    /// Several, at a version.
    List(Vec<Arc<Value>>, u64),
    /// A `Status` or another value that is not shaped.
    Plain(StatusCode, Value),
    /// A watch.
    Stream(ResponseBody),
}

/// The answer to a request on objects.
pub(super) fn reply(call: &Call, reply: Reply) -> Response<ResponseBody> {
    let (code, body, content_type) = match reply {
        Reply::Object(code, object) => {
            let (body, content_type) = encode(call.wanted.encoding, &one(call, &object));
            (code, body, content_type)
        }
        Reply::List(objects, revision) => {
            let (body, content_type) = encode(call.wanted.encoding, &many(call, &objects, revision));
            (StatusCode::OK, body, content_type)
        }
        Reply::Plain(code, value) => {
            let (body, content_type) = encode(call.wanted.encoding, &value);
            (code, body, content_type)
        }
        Reply::Stream(body) => (StatusCode::OK, body, "application/json"),
    };
    let mut response = response(code, body, content_type);
    for text in call.warnings.texts() {
        let quoted = format!("299 - {}", quote(&text));
        if let Ok(value) = HeaderValue::from_str(&quoted) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    response
}

/// A quoted string of RFC 9110, without what a header cannot carry.
fn quote(text: &str) -> String {
    let clean: String = text
        .chars()
        .map(|c| {
            if c.is_ascii() && !c.is_ascii_control() {
                c
            } else {
                ' '
            }
        })
        .collect();
    format!("\"{}\"", clean.replace('\\', "\\\\").replace('"', "\\\""))
}

fn one(call: &Call, object: &Arc<Value>) -> Value {
    let object = call.present(object);
    match call.wanted.shape {
        Shape::Full => Value::clone(&object),
        Shape::Metadata => partial(&object),
        Shape::Table => {
            let version = object["metadata"]["resourceVersion"].clone();
            table::of(call, std::slice::from_ref(&object), &version, true)
        }
    }
}

fn many(call: &Call, objects: &[Arc<Value>], revision: u64) -> Value {
    let version = Value::from(revision.to_string());
    let objects: Vec<Arc<Value>> = objects.iter().map(|object| call.present(object)).collect();
    let mut metadata = json!({ "resourceVersion": version });
    if call.wanted.shape == Shape::Full && call.resource.family == Family::Custom {
        // Lists of custom resources always say that there is no more.
        metadata["continue"] = "".into();
    }
    match call.wanted.shape {
        Shape::Table => table::of(call, &objects, &version, true),
        Shape::Metadata => json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "items": objects.iter().map(|object| partial(object)).collect::<Vec<_>>(),
        }),
        Shape::Full => json!({
            "kind": call.resource.list_kind, "apiVersion": call.resource.api_version(), "metadata": metadata,
            "items": objects.iter().map(|object| Value::clone(object)).collect::<Vec<_>>(),
        }),
    }
}

/// meta.k8s.io/v1 PartialObjectMetadata of an object.
pub(super) fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

/// A failure: JSON, which every client reads, but for a path that belongs to nothing.
pub(crate) fn failure(error: &StatusError) -> Response<ResponseBody> {
    if error.is_page() {
        let mut response = text("404 page not found\n");
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    }
    let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json(code, &error.to_value())
}

/// A JSON document.
pub(super) fn json(code: StatusCode, value: &Value) -> Response<ResponseBody> {
    let (body, content_type) = encode(Encoding::Json, value);
    response(code, body, content_type)
}

/// A plain text.
pub(super) fn text(text: &'static str) -> Response<ResponseBody> {
    response(
        StatusCode::OK,
        Full::new(Bytes::from_static(text.as_bytes())).boxed_unsync(),
        "text/plain; charset=utf-8",
    )
}

fn encode(encoding: Encoding, value: &Value) -> (ResponseBody, &'static str) {
    let yaml = || serde_yaml_ng::to_string(value).ok();
    let (text, content_type) = match encoding {
        Encoding::Yaml if let Some(text) = yaml() => (text, "application/yaml"),
        _ => (value.to_string(), "application/json"),
    };
    (Full::new(Bytes::from(text)).boxed_unsync(), content_type)
}

fn response(code: StatusCode, body: ResponseBody, content_type: &'static str) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, private"),
    );
    response
}

/// An answer that ends early when the server stops: watches would outlive it.
pub(crate) fn until(response: Response<ResponseBody>, stop: CancellationToken) -> Response<ResponseBody> {
    response.map(|body| {
        let frames = BodyStream::new(body).take_until(stop.cancelled_owned());
        StreamBody::new(frames).boxed_unsync()
    })
}

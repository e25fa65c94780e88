//! Answers: shaped and encoded as negotiated, with their warnings.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody, combinators::UnsyncBoxBody};
use serde::{Serialize, Serializer};
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
    let (code, (body, content_type)) = match reply {
        Reply::Object(code, object) => (code, one(call, &object)),
        Reply::List(objects, revision) => (StatusCode::OK, many(call, &objects, revision)),
        Reply::Plain(code, value) => (code, encode(call.wanted.encoding, &value)),
        Reply::Stream(body) => (StatusCode::OK, (body, "application/json")),
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

/// A body and its content type.
type Encoded = (ResponseBody, &'static str);

fn one(call: &Call, object: &Arc<Value>) -> Encoded {
    let encoding = call.wanted.encoding;
    match call.wanted.shape {
        Shape::Full => encode(encoding, &*call.present(object)),
        Shape::Metadata => encode(encoding, &partial(object)),
        Shape::Table => {
            let version = object["metadata"]["resourceVersion"].clone();
            let table = table::of(call, std::slice::from_ref(object), &version, true);
            encode(encoding, &table)
        }
    }
}

/// A list of objects that lie in the store.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    kind: &'a str,
    api_version: &'a str,
    metadata: Value,
    items: Vec<Item<'a>>,
}

/// An object in a list.
struct Item<'a> {
    object: &'a Value,
    /// Whether it says its kind, which the list says too. Those of built-in kinds do not.
    typed: bool,
}

impl Serialize for Item<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.object.as_object().into_iter().flatten();
        serializer.collect_map(
            fields.filter(|(name, _)| self.typed || !matches!(name.as_str(), "apiVersion" | "kind")),
        )
    }
}

fn many(call: &Call, objects: &[Arc<Value>], revision: u64) -> Encoded {
    let version = Value::from(revision.to_string());
    let mut metadata = json!({ "resourceVersion": version });
    if call.wanted.shape == Shape::Full && call.resource.family == Family::Custom {
        // Lists of custom resources always say that there is no more.
        metadata["continue"] = "".into();
    }
    let encoding = call.wanted.encoding;
    match call.wanted.shape {
        Shape::Table => encode(encoding, &table::of(call, objects, &version, true)),
        Shape::Metadata => {
            let items: Vec<Value> = objects.iter().map(|object| partial(object)).collect();
            let list = List {
                kind: "PartialObjectMetadataList",
                api_version: "meta.k8s.io/v1",
                metadata,
                items: items.iter().map(|object| Item { object, typed: true }).collect(),
            };
            encode(encoding, &list)
        }
        Shape::Full => {
            let objects: Vec<Arc<Value>> = objects.iter().map(|object| call.present(object)).collect();
            let typed = call.resource.family == Family::Custom;
            let list = List {
                kind: &call.shown.list_kind,
                api_version: &call.shown.api_version(),
                metadata,
                items: objects.iter().map(|object| Item { object, typed }).collect(),
            };
            encode(encoding, &list)
        }
    }
}

/// meta.k8s.io/v1 PartialObjectMetadata of an object.
pub(super) fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

/// A failure: JSON, which every client reads, but for a path that belongs to nothing.
pub(crate) fn failure(error: &StatusError) -> Response<ResponseBody> {
    if error.is_page() {
        return text(StatusCode::NOT_FOUND, "404 page not found\n");
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
pub(super) fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<ResponseBody> {
    let body = Full::new(text.into()).boxed_unsync();
    let mut response = response(code, body, "text/plain; charset=utf-8");
    let headers = response.headers_mut();
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

fn encode(encoding: Encoding, value: &impl Serialize) -> Encoded {
    let yaml = || serde_yaml_ng::to_string(value).ok();
    let (text, content_type) = match encoding {
        Encoding::Yaml if let Some(text) = yaml() => (text.into_bytes(), "application/yaml"),
        _ => (serde_json::to_vec(value).unwrap_or_default(), "application/json"),
    };
    (Full::new(Bytes::from(text)).boxed_unsync(), content_type)
}

/// Any bytes.
pub(super) fn bytes(body: impl Into<Bytes>, content_type: &'static str) -> Response<ResponseBody> {
    response(
        StatusCode::OK,
        Full::new(body.into()).boxed_unsync(),
        content_type,
    )
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

/// An answer that ends early when the server stops: watches would outlive it. One that is complete keeps its length.
pub(crate) fn until(response: Response<ResponseBody>, stop: CancellationToken) -> Response<ResponseBody> {
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    response.map(|body| {
        let frames = BodyStream::new(body).take_until(stop.cancelled_owned());
        StreamBody::new(frames).boxed_unsync()
    })
}

//! Responses: shaped and encoded as negotiated, with warnings.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::negotiation::{Encoding, Shape};
use super::page::Page;
use super::request::ObjectRequest;
use super::table;
use crate::resource::Strategy;
use crate::status_error::StatusError;

/// The body of every response.
pub(crate) type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// The result of a request for objects.
pub(crate) enum Reply {
    /// One object.
    Object(StatusCode, Arc<Value>),
    /// A page of a list.
    List(Page),
    /// A `Status` or another value with a fixed shape.
    Plain(StatusCode, Value),
    /// A watch.
    Stream(ResponseBody),
}

/// Returns the response to a request for objects.
pub(super) fn response_to(request: &ObjectRequest, reply: Reply) -> Response<ResponseBody> {
    let (code, (body, content_type)) = match reply {
        Reply::Object(code, object) => (code, encode_object(request, &object)),
        Reply::List(page) => (StatusCode::OK, encode_list(request, &page)),
        Reply::Plain(code, value) => (code, encode(request.format.encoding, &value)),
        Reply::Stream(body) => (StatusCode::OK, (body, "application/json")),
    };
    let mut response = response(code, body, content_type);
    for text in request.warnings.texts() {
        let quoted = format!("299 - {}", quote(&text));
        if let Ok(value) = HeaderValue::from_str(&quoted) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    response
}

/// Returns a quoted string of RFC 9110; characters that a header cannot contain become spaces.
fn quote(text: &str) -> String {
    let clean: String = text
        .chars()
        .map(|c| if matches!(c, ' '..='~') { c } else { ' ' })
        .collect();
    format!("\"{}\"", clean.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A body and its content type.
type Encoded = (ResponseBody, &'static str);

fn encode_object(request: &ObjectRequest, object: &Arc<Value>) -> Encoded {
    let encoding = request.format.encoding;
    match request.format.shape {
        Shape::Full => encode(encoding, &*request.to_requested(object)),
        Shape::Metadata => encode(encoding, &partial_object_metadata(object)),
        Shape::Table => {
            let version = object["metadata"]["resourceVersion"].clone();
            let table = table::render(request, std::slice::from_ref(object), &version, true);
            encode(encoding, &table)
        }
    }
}

/// A list that borrows the stored objects.
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
    /// Whether apiVersion and kind are included. Lists of built-in kinds omit them in their items.
    has_type: bool,
}

impl Serialize for Item<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.object.as_object().into_iter().flatten();
        serializer.collect_map(
            fields.filter(|(name, _)| self.has_type || !matches!(name.as_str(), "apiVersion" | "kind")),
        )
    }
}

/// Returns the metadata of a list.
fn list_metadata(request: &ObjectRequest, page: &Page) -> Value {
    let mut metadata = json!({ "resourceVersion": page.revision.to_string() });
    // Lists of custom resources always have this field.
    let has_token = request.format.shape == Shape::Full && request.resource.strategy == Strategy::Custom;
    if has_token || !page.continue_token.is_empty() {
        metadata["continue"] = page.continue_token.clone().into();
    }
    if let Some(remaining) = page.remaining {
        metadata["remainingItemCount"] = remaining.into();
    }
    metadata
}

fn encode_list(request: &ObjectRequest, page: &Page) -> Encoded {
    let metadata = list_metadata(request, page);
    let (encoding, resource) = (request.format.encoding, &request.requested_resource);
    if request.format.shape == Shape::Table {
        let mut table = table::render(request, &page.objects, &Value::Null, true);
        table["metadata"] = metadata;
        return encode(encoding, &table);
    }
    let is_partial = request.format.shape == Shape::Metadata;
    let item = |object: &Arc<Value>| {
        if is_partial {
            Arc::new(partial_object_metadata(object))
        } else {
            request.to_requested(object)
        }
    };
    let objects: Vec<Arc<Value>> = page.objects.iter().map(item).collect();
    let has_type = is_partial || request.resource.strategy == Strategy::Custom;
    let requested_version = resource.api_version();
    let (kind, api_version) = if is_partial {
        ("PartialObjectMetadataList", "meta.k8s.io/v1")
    } else {
        (&*resource.list_kind, &*requested_version)
    };
    let list = List {
        kind,
        api_version,
        metadata,
        items: objects.iter().map(|object| Item { object, has_type }).collect(),
    };
    encode(encoding, &list)
}

/// Returns the meta.k8s.io/v1 PartialObjectMetadata of an object.
pub(super) fn partial_object_metadata(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

/// Returns the response of an error: JSON, or plain text for an unknown path.
pub(crate) fn error_response(error: &StatusError) -> Response<ResponseBody> {
    if error.is_plain_text() {
        return text(StatusCode::NOT_FOUND, "404 page not found\n");
    }
    let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(code, &error.to_value());
    if error.is_denial() {
        // As kube-apiserver: the message quotes the path.
        let nosniff = HeaderValue::from_static("nosniff");
        response
            .headers_mut()
            .insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    }
    response
}

/// Returns a JSON response.
pub(super) fn json(code: StatusCode, value: &Value) -> Response<ResponseBody> {
    let (body, content_type) = encode(Encoding::Json, value);
    response(code, body, content_type)
}

/// Returns a plain text response.
pub(super) fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<ResponseBody> {
    let body = Full::new(text.into()).boxed_unsync();
    let mut response = response(code, body, "text/plain; charset=utf-8");
    let nosniff = HeaderValue::from_static("nosniff");
    response
        .headers_mut()
        .insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

fn encode(encoding: Encoding, value: &impl Serialize) -> Encoded {
    let yaml = (encoding == Encoding::Yaml).then(|| serde_yaml_ng::to_string(value).ok());
    let (text, content_type) = yaml.flatten().map_or_else(
        || (serde_json::to_vec(value).unwrap_or_default(), "application/json"),
        |text| (text.into_bytes(), "application/yaml"),
    );
    (Full::new(Bytes::from(text)).boxed_unsync(), content_type)
}

/// Returns a response with this body.
pub(super) fn bytes(body: impl Into<Bytes>, content_type: &'static str) -> Response<ResponseBody> {
    let body = Full::new(body.into()).boxed_unsync();
    response(StatusCode::OK, body, content_type)
}

fn response(code: StatusCode, body: ResponseBody, content_type: &'static str) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, "no-cache, private"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Ends a streaming response when the server stops. A complete response keeps its length.
pub(crate) fn end_on_stop(
    response: Response<ResponseBody>,
    stop: CancellationToken,
) -> Response<ResponseBody> {
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    response.map(|body| {
        let frames = BodyStream::new(body).take_until(stop.cancelled_owned());
        StreamBody::new(frames).boxed_unsync()
    })
}

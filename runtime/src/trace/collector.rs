//! The collector: its URL, and the exporter of OpenTelemetry over the HTTP client of this crate.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use opentelemetry::{Key, KeyValue};
use opentelemetry_http::HttpError;
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};

use crate::args::proxy_environment;
use crate::failure::chain;
use crate::http::{EnvironmentError, HttpClient, Route, Settings, TlsError, client};
use crate::sync::lock;

/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes read from a response.
const MAX_RESPONSE: usize = 64 * 1024;
/// Path of traces below the endpoint.
const PATH: &str = "/v1/traces";

/// `--otlp-endpoint` is invalid.
#[derive(Debug, thiserror::Error)]
#[error(
    "--otlp-endpoint must be empty or an http or https URL with a host, without user, password and query, such as \
     http://collector:4318; credentials are for OTEL_EXPORTER_OTLP_HEADERS"
)]
pub struct InvalidEndpoint;

/// Traces cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The endpoint is invalid.
    #[error(transparent)]
    Endpoint(#[from] InvalidEndpoint),
    /// The environment has an invalid proxy.
    #[error(transparent)]
    Proxies(#[from] EnvironmentError),
    /// TLS cannot be set up.
    #[error("cannot create a client for --otlp-endpoint")]
    Tls(#[from] TlsError),
    /// A variable of OpenTelemetry has a value that is not supported.
    #[error("cannot export traces with these variables OTEL_EXPORTER_OTLP_*")]
    Variables(#[from] ExporterBuildError),
}

/// The URL of traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(Uri);

impl Endpoint {
    /// Parses the value of `--otlp-endpoint`, to which the path of traces is added; `None` for an empty text.
    ///
    /// # Errors
    /// [`InvalidEndpoint`].
    pub fn parse(url: &str) -> Result<Option<Self>, InvalidEndpoint> {
        if url.is_empty() {
            return Ok(None);
        }
        let uri: Uri = url.parse().map_err(|_| InvalidEndpoint)?;
        let known = matches!(uri.scheme_str(), Some("http" | "https"));
        let hosted = uri.host().is_some_and(|host| !host.is_empty());
        let has_user = uri.authority().is_some_and(|part| part.as_str().contains('@'));
        if !known || !hosted || has_user || uri.query().is_some() {
            return Err(InvalidEndpoint);
        }
        let full = format!("{}{PATH}", url.trim_end_matches('/'));
        Ok(Some(Self(full.parse().map_err(|_| InvalidEndpoint)?)))
    }

    /// Returns the host, for logs.
    fn host(&self) -> &str {
        self.0.host().unwrap_or_default()
    }
}

/// Sends batches to a collector.
#[derive(Debug)]
pub(super) struct Collector {
    endpoint: Endpoint,
    exporter: SpanExporter,
    transport: Arc<Transport>,
}

impl Collector {
    /// Creates a collector. The exporter reads the headers, which may contain credentials, and the timeout from the environment.
    pub(super) fn new(endpoint: Endpoint, component: &'static str) -> Result<Self, TraceError> {
        let settings = Settings {
            idle_per_host: 1,
            route: Route::Environment(Arc::new(proxy_environment()?)),
            ..Settings::default()
        };
        let transport = Arc::new(Transport {
            client: client(&settings)?,
            last_error: Mutex::default(),
        });
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint.0.to_string())
            .with_shared_http_client(Arc::clone(&transport) as Arc<dyn opentelemetry_http::HttpClient>)
            .build()?;
        exporter.set_resource(&resource(component));
        Ok(Self {
            endpoint,
            exporter,
            transport,
        })
    }

    /// Returns the host, for logs.
    pub(super) fn host(&self) -> &str {
        self.endpoint.host()
    }

    /// Exports a batch; fails with a text that contains no credentials.
    pub(super) async fn export(&self, batch: Vec<SpanData>) -> Result<(), String> {
        self.exporter.export(batch).await.map_err(|error| {
            let cause = lock(&self.transport.last_error).take();
            cause.unwrap_or_else(|| error.to_string())
        })
    }
}

/// Returns the resource from `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`; without a name there, with that of the program.
fn resource(component: &'static str) -> Resource {
    let read = Resource::builder().build();
    let name = read.get(&Key::from_static_str("service.name"));
    let named = name.is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    let builder = Resource::builder();
    let builder = if named {
        builder
    } else {
        builder.with_service_name(component)
    };
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    builder.with_attribute(version).build()
}

/// Sends the requests of the exporter.
#[derive(Debug)]
struct Transport {
    client: HttpClient<Full<Bytes>>,
    /// Why the last request had no response: the exporter does not say.
    last_error: Mutex<Option<String>>,
}

impl Transport {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, String> {
        let exchange = async {
            let sent = self.client.request(request.map(Full::new)).await;
            let (head, body) = sent.map_err(|error| chain(&error))?.into_parts();
            // Without its body, a response still has its status.
            let body = Limited::new(body, MAX_RESPONSE).collect().await;
            let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            Ok(Response::from_parts(head, body))
        };
        let late = |_| Err(format!("no response within {REQUEST_TIMEOUT:?}"));
        tokio::time::timeout(REQUEST_TIMEOUT, exchange)
            .await
            .unwrap_or_else(late)
    }
}

#[async_trait]
impl opentelemetry_http::HttpClient for Transport {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = self.send(request).await;
        *lock(&self.last_error) = sent.as_ref().err().cloned();
        Ok(sent?)
    }
}

//! Opens the bucket of the flags. Credentials come from the environment, from files that it names, or from the identity of the machine or
//! the pod, as `object_store` finds them; requests use the HTTP client of the workspace.

use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use sluice_runtime::args::proxy_environment;
use sluice_runtime::http::{EnvironmentError, Route, Settings, TlsError, client};

use super::Bucket;
use super::error::{InsufficientStorage, cause};
use crate::options::{BucketOptions, StorageBackend};

/// Maximum number of further tries of a request.
const RETRIES: usize = 3;
/// Maximum time for a request with its further tries.
const RETRY_LIMIT: Duration = Duration::from_secs(45);
/// Maximum time until the head of a response, with the body of the request.
const HEAD_LIMIT: Duration = Duration::from_mins(1);
/// Idle connections that are kept.
const IDLE: usize = 16;

/// The bucket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A flag is missing.
    #[error("--storage-backend={0} needs --storage-bucket")]
    NoName(&'static str),
    /// The flags or the environment are incomplete or invalid.
    #[error("cannot use the bucket {name:?} of --storage-bucket: {cause}")]
    Settings {
        /// Name of the bucket.
        name: String,
        /// What is wrong.
        cause: String,
    },
    /// The environment has an invalid proxy.
    #[error(transparent)]
    Proxies(#[from] EnvironmentError),
    /// The HTTP client cannot be created.
    #[error("cannot create a client for the bucket")]
    Tls(#[from] TlsError),
}

/// Opens the bucket of the flags; `None` for local storage. Sends no request.
///
/// # Errors
/// Flags or environment are incomplete or invalid.
pub(crate) fn connect(options: &BucketOptions) -> Result<Option<Bucket>, ConnectError> {
    let name = &*options.storage_bucket;
    let required = |backend| {
        if name.is_empty() {
            Err(ConnectError::NoName(backend))
        } else {
            Ok(())
        }
    };
    let store = match options.storage_backend {
        StorageBackend::Local => return Ok(None),
        StorageBackend::S3 => {
            required("s3")?;
            s3(AmazonS3Builder::from_env(), options, connector()?)
        }
        StorageBackend::Gcs => {
            required("gcs")?;
            gcs(GoogleCloudStorageBuilder::from_env(), options, connector()?)
        }
        StorageBackend::Azure => {
            required("azure")?;
            azure(MicrosoftAzureBuilder::from_env(), options, connector()?)
        }
    };
    let store = store.map_err(|error| ConnectError::Settings {
        name: name.to_owned(),
        cause: cause(&error),
    })?;
    Ok(Some(Bucket::new(store, name, &options.storage_bucket_prefix)))
}

/// Creates the client for requests to buckets.
pub(super) fn connector() -> Result<Connector, ConnectError> {
    let settings = Settings {
        idle_per_host: IDLE,
        route: Route::Environment(Arc::new(proxy_environment()?)),
        ..Settings::default()
    };
    Ok(Connector(client(&settings)?))
}

/// Opens a bucket of S3 with what the builder has already, which is what the environment says.
pub(super) fn s3(
    builder: AmazonS3Builder,
    options: &BucketOptions,
    connector: Connector,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    let mut builder = builder
        .with_bucket_name(&options.storage_bucket)
        .with_retry(retries())
        .with_http_connector(connector);
    if let Some(endpoint) = endpoint(options) {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(region) = set(&options.storage_bucket_region) {
        builder = builder.with_region(region);
    }
    Ok(Arc::new(builder.build()?))
}

/// As [`s3`], for Google Cloud Storage.
pub(super) fn gcs(
    builder: GoogleCloudStorageBuilder,
    options: &BucketOptions,
    connector: Connector,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    let mut builder = builder
        .with_bucket_name(&options.storage_bucket)
        .with_retry(retries())
        .with_http_connector(connector);
    if let Some(endpoint) = endpoint(options) {
        builder = builder.with_base_url(endpoint);
    }
    Ok(Arc::new(builder.build()?))
}

/// As [`s3`], for Azure Blob Storage. The URL of a server names the account in its path or its host.
pub(super) fn azure(
    builder: MicrosoftAzureBuilder,
    options: &BucketOptions,
    connector: Connector,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    let mut builder = builder
        .with_container_name(&options.storage_bucket)
        .with_retry(retries())
        .with_http_connector(connector);
    if let Some(endpoint) = endpoint(options) {
        builder = builder.with_endpoint(endpoint.to_owned());
    }
    Ok(Arc::new(builder.build()?))
}

/// Returns the URL of the flag, if it has one. A slash at its end would be doubled in the URLs of objects.
fn endpoint(options: &BucketOptions) -> Option<&str> {
    set(options.storage_bucket_endpoint.trim_end_matches('/'))
}

/// Returns the value of a flag, if it has one.
fn set(value: &str) -> Option<&str> {
    Some(value).filter(|value| !value.is_empty())
}

fn retries() -> RetryConfig {
    RetryConfig {
        max_retries: RETRIES,
        retry_timeout: RETRY_LIMIT,
        ..RetryConfig::default()
    }
}

/// The HTTP client of the workspace for `object_store`.
#[derive(Clone, Debug)]
pub(super) struct Connector(sluice_runtime::http::HttpClient<HttpRequestBody>);

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait::async_trait]
impl HttpService for Connector {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = tokio::time::timeout(HEAD_LIMIT, self.0.request(request)).await;
        let response = response.map_err(|late| HttpError::new(HttpErrorKind::Timeout, late))?;
        let response = response.map_err(|error| {
            let kind = if error.is_connect() {
                HttpErrorKind::Connect
            } else {
                HttpErrorKind::Interrupted
            };
            HttpError::new(kind, error)
        })?;
        // A server without space needs a user: the upload is not repeated.
        if response.status() == StatusCode::INSUFFICIENT_STORAGE {
            return Err(HttpError::new(HttpErrorKind::Unknown, InsufficientStorage));
        }
        let (head, body) = response.into_parts();
        let body = body.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error));
        Ok(Response::from_parts(head, HttpResponseBody::new(body)))
    }
}

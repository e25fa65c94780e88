//! The HTTP client of webhooks: certificates, timeout and size limit.
//!
//! As in tofu-controller, the certificates for a host are in `/etc/certs/<host>/` (`tls.crt` and `tls.key` of the client,
//! `ca.crt` of the server's authority). With `DISABLE_WEBHOOK_TLS_VERIFY=1` that directory is ignored and plain http is
//! allowed; servers are verified nevertheless.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use percent_encoding::percent_decode_str;
use serde_json::Value;
use sluice_runtime::failure::chain;
use sluice_runtime::http::{self as client, Environment, Identity, Route, Settings};
use url::Url;

use crate::run::lifecycle::context::Context;
use crate::run::lifecycle::error::WebhookError;

/// Timeout of a call.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of bytes of an answer.
const ANSWER_LIMIT: usize = 1024 * 1024;
/// Maximum number of bytes of a certificate file.
const FILE_LIMIT: u64 = 1024 * 1024;

/// The address of a webhook.
pub(super) struct Endpoint {
    pub(super) host: String,
    uri: Uri,
    /// From the user information of the URL, as Go's client sends it.
    authorization: Option<HeaderValue>,
}

/// The client of all webhooks of a run.
pub(super) struct WebhookClient {
    certificates: PathBuf,
    /// `DISABLE_WEBHOOK_TLS_VERIFY=1`
    without_certificates: bool,
    route: Route,
    timeout: Duration,
}

impl WebhookClient {
    pub(super) fn new(context: &Context) -> Self {
        let variable = |name: &str| context.environment.get(name).cloned();
        let route = match Environment::read(variable) {
            Ok(environment) => Route::Environment(Arc::new(environment)),
            Err(_) => Route::Direct,
        };
        Self {
            certificates: context.settings.webhook_certificates.clone(),
            without_certificates: variable("DISABLE_WEBHOOK_TLS_VERIFY").as_deref() == Some("1"),
            route,
            timeout: TIMEOUT,
        }
    }

    /// Parses the URL of a webhook.
    pub(super) fn endpoint(&self, index: usize, url: &str) -> Result<Endpoint, WebhookError> {
        let invalid = || WebhookError::Address { index };
        let mut url = Url::parse(url).map_err(|_| invalid())?;
        let host = url
            .host_str()
            .filter(|host| is_path_component(host))
            .ok_or_else(invalid)?
            .to_owned();
        match url.scheme() {
            "https" => {}
            "http" if self.without_certificates => {}
            "http" => return Err(WebhookError::PlainHttp { host }),
            _ => return Err(invalid()),
        }
        let authorization = authorization(&url).map_err(|()| invalid())?;
        url.set_username("")
            .and_then(|()| url.set_password(None))
            .map_err(|()| invalid())?;
        let uri = url.as_str().parse().map_err(|_| invalid())?;
        Ok(Endpoint {
            host,
            uri,
            authorization,
        })
    }

    /// Calls the webhook, and returns the JSON object of its answer.
    pub(super) async fn call(&self, endpoint: &Endpoint, body: Bytes) -> Result<Value, WebhookError> {
        let host = || endpoint.host.clone();
        match tokio::time::timeout(self.timeout, self.exchange(endpoint, body)).await {
            Err(_) => Err(WebhookError::Timeout {
                host: host(),
                limit: self.timeout,
            }),
            Ok(answer) => match serde_json::from_slice(&answer?) {
                Ok(object @ Value::Object(_)) => Ok(object),
                _ => Err(WebhookError::NotJsonObject { host: host() }),
            },
        }
    }

    async fn exchange(&self, endpoint: &Endpoint, body: Bytes) -> Result<Bytes, WebhookError> {
        let host = || endpoint.host.clone();
        let unreachable = |error: &(dyn std::error::Error + 'static)| WebhookError::Unreachable {
            host: host(),
            text: chain(error),
        };
        let settings = self.settings(&endpoint.host)?;
        let client = client::client(&settings).map_err(|error| WebhookError::Certificates {
            host: host(),
            directory: self.certificate_directory(&endpoint.host).display().to_string(),
            text: chain(&error),
        })?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(endpoint.uri.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONTENT_LENGTH, body.len())
            .body(Full::new(body));
        let mut request = request.map_err(|error| unreachable(&error))?;
        if let Some(authorization) = endpoint.authorization.clone() {
            request.headers_mut().insert(header::AUTHORIZATION, authorization);
        }
        let answer = client
            .request(request)
            .await
            .map_err(|error| unreachable(&error))?;
        if answer.status() != http::StatusCode::OK {
            return Err(WebhookError::Status {
                host: host(),
                status: answer.status().as_u16(),
            });
        }
        let read = Limited::new(answer.into_body(), ANSWER_LIMIT).collect().await;
        let read = read.map_err(|error| {
            if error.is::<http_body_util::LengthLimitError>() {
                WebhookError::AnswerTooLong {
                    host: host(),
                    limit: ANSWER_LIMIT,
                }
            } else {
                unreachable(&*error)
            }
        })?;
        Ok(read.to_bytes())
    }

    fn certificate_directory(&self, host: &str) -> PathBuf {
        self.certificates.join(host)
    }

    /// The settings with the client certificate and the authority of a host, if it has them.
    fn settings(&self, host: &str) -> Result<Settings, WebhookError> {
        let mut settings = Settings {
            route: self.route.clone(),
            ..Settings::default()
        };
        if self.without_certificates {
            return Ok(settings);
        }
        let directory = self.certificate_directory(host);
        let wrong = |text: String| WebhookError::Certificates {
            host: host.to_owned(),
            directory: directory.display().to_string(),
            text,
        };
        let file = |name: &str| {
            read_if_present(&directory.join(name)).map_err(|error| wrong(format!("{name}: {error}")))
        };
        settings.identity = match (file("tls.crt")?, file("tls.key")?) {
            (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
            (None, None) => None,
            _ => {
                return Err(wrong(
                    "tls.crt and tls.key are both required, and one is missing".to_owned(),
                ));
            }
        };
        if let Some(authority) = file("ca.crt")? {
            settings.extra_roots = client::certificates(&authority);
            settings.system_roots = false;
            if settings.extra_roots.is_empty() {
                return Err(wrong("ca.crt contains no PEM certificate".to_owned()));
            }
        }
        Ok(settings)
    }
}

/// The `Authorization` header of the user information in a URL, if it has one.
fn authorization(url: &Url) -> Result<Option<HeaderValue>, ()> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let name = percent_decode_str(url.username());
    let password = percent_decode_str(url.password().unwrap_or_default());
    let both: Vec<u8> = name.chain([b':']).chain(password).collect();
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(both))).map_err(|_| ())?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// Whether a host can be a file name: letters, digits, dots and dashes, or an IPv6 address.
fn is_path_component(host: &str) -> bool {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']');
    !host.is_empty() && host.bytes().all(plain) && host.bytes().any(|byte| byte.is_ascii_alphanumeric())
}

/// Reads a file; `None` if it is absent.
fn read_if_present(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    use std::io::Read;
    let file = match std::fs::File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(FILE_LIMIT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_LIMIT {
        return Err(std::io::Error::other(format!(
            "it is longer than {FILE_LIMIT} bytes"
        )));
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests;

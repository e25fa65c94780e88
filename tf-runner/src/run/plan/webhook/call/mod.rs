//! One call of a webhook: whom it trusts, how long it waits, how much it reads.
//!
//! As tofu-controller: certificates for a host lie in `/etc/certs/<host>/` (`tls.crt` and `tls.key` of the client, `ca.crt` of
//! the server's authority). With `DISABLE_WEBHOOK_TLS_VERIFY=1` that directory is not looked at, and plain http is allowed;
//! servers are verified all the same.

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

use super::WebhookError;
use crate::run::lifecycle::context::Context;

/// Longest wait for a whole answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest answer.
const ANSWER: usize = 1024 * 1024;
/// Longest certificate file.
const FILE: u64 = 1024 * 1024;

/// Where a webhook is.
pub(super) struct Place {
    pub(super) host: String,
    uri: Uri,
    /// Of the name and the password in the address, as Go's client sends them.
    authorization: Option<HeaderValue>,
}

/// What calls are made with.
pub(super) struct Caller {
    certificates: PathBuf,
    /// `DISABLE_WEBHOOK_TLS_VERIFY=1`
    without_certificates: bool,
    route: Route,
    patience: Duration,
}

impl Caller {
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
            patience: PATIENCE,
        }
    }

    /// Where the webhook is, if it may be called at all.
    pub(super) fn place(&self, index: usize, url: &str) -> Result<Place, WebhookError> {
        let wrong = || WebhookError::Address { index };
        let mut url = Url::parse(url).map_err(|_| wrong())?;
        let host = url
            .host_str()
            .filter(|host| is_plain(host))
            .ok_or_else(wrong)?
            .to_owned();
        match url.scheme() {
            "https" => {}
            "http" if self.without_certificates => {}
            "http" => return Err(WebhookError::Clear { host }),
            _ => return Err(wrong()),
        }
        let authorization = authorization(&url).map_err(|()| wrong())?;
        url.set_username("")
            .and_then(|()| url.set_password(None))
            .map_err(|()| wrong())?;
        let uri = url.as_str().parse().map_err(|_| wrong())?;
        Ok(Place {
            host,
            uri,
            authorization,
        })
    }

    /// The JSON object that it answers.
    pub(super) async fn call(&self, place: &Place, body: Bytes) -> Result<Value, WebhookError> {
        let host = || place.host.clone();
        match tokio::time::timeout(self.patience, self.exchange(place, body)).await {
            Err(_) => Err(WebhookError::Late {
                host: host(),
                limit: self.patience,
            }),
            Ok(answer) => match serde_json::from_slice(&answer?) {
                Ok(object @ Value::Object(_)) => Ok(object),
                _ => Err(WebhookError::NoObject { host: host() }),
            },
        }
    }

    async fn exchange(&self, place: &Place, body: Bytes) -> Result<Bytes, WebhookError> {
        let host = || place.host.clone();
        let unreachable = |error: &(dyn std::error::Error + 'static)| WebhookError::Unreachable {
            host: host(),
            text: chain(error),
        };
        let settings = self.settings(&place.host)?;
        let client = client::client(&settings).map_err(|error| WebhookError::Certificates {
            host: host(),
            directory: self.directory(&place.host).display().to_string(),
            text: chain(&error),
        })?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(place.uri.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONTENT_LENGTH, body.len())
            .body(Full::new(body));
        let mut request = request.map_err(|error| unreachable(&error))?;
        if let Some(authorization) = place.authorization.clone() {
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
        let read = Limited::new(answer.into_body(), ANSWER).collect().await;
        let read = read.map_err(|error| {
            if error.is::<http_body_util::LengthLimitError>() {
                WebhookError::Long {
                    host: host(),
                    limit: ANSWER,
                }
            } else {
                unreachable(&*error)
            }
        })?;
        Ok(read.to_bytes())
    }

    fn directory(&self, host: &str) -> PathBuf {
        self.certificates.join(host)
    }

    /// The client certificate and the authority for a host, as far as they are there.
    fn settings(&self, host: &str) -> Result<Settings, WebhookError> {
        let mut settings = Settings {
            route: self.route.clone(),
            ..Settings::default()
        };
        if self.without_certificates {
            return Ok(settings);
        }
        let directory = self.directory(host);
        let wrong = |text: String| WebhookError::Certificates {
            host: host.to_owned(),
            directory: directory.display().to_string(),
            text,
        };
        let file =
            |name: &str| read(&directory.join(name)).map_err(|error| wrong(format!("{name}: {error}")));
        settings.identity = match (file("tls.crt")?, file("tls.key")?) {
            (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
            (None, None) => None,
            _ => {
                return Err(wrong(
                    "tls.crt and tls.key go together, and one is missing".to_owned(),
                ));
            }
        };
        if let Some(authority) = file("ca.crt")? {
            settings.extra_roots = client::certificates(&authority);
            settings.system_roots = false;
            if settings.extra_roots.is_empty() {
                return Err(wrong("ca.crt holds no certificate in PEM form".to_owned()));
            }
        }
        Ok(settings)
    }
}

/// The header of the name and the password that stand in an address, if any do.
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

/// A host that is one word of a path: letters, digits, dots and dashes, or the form of an IPv6 address.
fn is_plain(host: &str) -> bool {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']');
    !host.is_empty() && host.bytes().all(plain) && host.bytes().any(|byte| byte.is_ascii_alphanumeric())
}

/// A file's bytes; `None` when it is not there.
fn read(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    use std::io::Read;
    let file = match std::fs::File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE {
        return Err(std::io::Error::other(format!("it is longer than {FILE} bytes")));
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests;

//! The probes of health checks: a TCP connection, or a GET that follows redirects as Go's client does.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{LOCATION, USER_AGENT};
use http::{HeaderValue, Request};
use http_body_util::Empty;
use sluice_runtime::failure::chain;
use sluice_runtime::http::{self as transport, Environment, HttpClient, Route, Settings};
use url::Url;

use super::address;

const MAX_REDIRECTS: usize = 10;

/// Opens a TCP connection.
pub(super) async fn tcp(target: &str) -> Result<(), String> {
    let (host, port) = address::parse(target)?;
    match tokio::net::TcpStream::connect((host, port)).await {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Sends a GET. It succeeds if the final answer has a status of 200 to 399. The environment configures the proxies.
pub(super) async fn http(target: &str, environment: &BTreeMap<String, String>) -> Result<(), String> {
    let mut url = parse(target)?;
    let client = client(environment)?;
    for _ in 0..=MAX_REDIRECTS {
        let uri: http::Uri = url
            .as_str()
            .parse()
            .map_err(|_| "the URL cannot be requested".to_owned())?;
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = uri;
        let agent = HeaderValue::from_static(concat!("sluice/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().insert(USER_AGENT, agent);
        let answer = client.request(request).await.map_err(|error| chain(&error))?;
        let status = answer.status();
        let next = answer.headers().get(LOCATION).filter(|_| status.is_redirection());
        let Some(next) = next else {
            return check_status(status);
        };
        let next = next
            .to_str()
            .map_err(|_| "the redirect cannot be read".to_owned())?;
        url = url
            .join(next)
            .map_err(|_| "the redirect is not a URL".to_owned())?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("the redirect does not lead to an http or https URL".to_owned());
        }
    }
    Err(format!("more than {MAX_REDIRECTS} redirects"))
}

fn check_status(status: http::StatusCode) -> Result<(), String> {
    if (200..400).contains(&status.as_u16()) {
        Ok(())
    } else {
        Err(format!("the answer is {}", status.as_u16()))
    }
}

/// The error does not quote the URL, which may be sensitive.
fn parse(target: &str) -> Result<Url, String> {
    if target.is_empty() {
        return Err("the URL is empty".to_owned());
    }
    let url = Url::parse(target).map_err(|error| format!("the URL is invalid: {error}"))?;
    if matches!(url.scheme(), "http" | "https") && url.has_host() {
        Ok(url)
    } else {
        Err("the scheme of the URL is not http or https".to_owned())
    }
}

fn client(environment: &BTreeMap<String, String>) -> Result<HttpClient<Empty<Bytes>>, String> {
    let proxies = Environment::read(|name| environment.get(name).cloned()).map_err(|error| chain(&error))?;
    let settings = Settings {
        route: Route::Environment(Arc::new(proxies)),
        ..Settings::default()
    };
    transport::client(&settings).map_err(|error| chain(&error))
}

//! Decides which requests are answered, by host name and token.
//!
//! A web page can reach a server on loopback through the browser of that machine: its own host name is resolved to
//! 127.0.0.1 (DNS rebinding). Such a request names the page's host.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use http::uri::Authority;
use http::{Request, header};
use sha2::{Digest as _, Sha256};
use sluice_runtime::redact::Secret;
use url::form_urlencoded;

use crate::storage::TOKEN_PARAMETER;

/// The requirements of a request.
#[derive(Clone, Default)]
pub(crate) struct Admission {
    /// Accepted host names; `None` accepts any.
    hosts: Option<BTreeSet<String>>,
    /// The token in artifact URLs; `None` if no token is required.
    token: Option<Secret<String>>,
}

impl Admission {
    /// Creates the rules of a server that listens on `bound` and is advertised as `advertised`, `host[:port]` with an
    /// optional scheme. `allowed` are additional host names; `*` accepts any. Without them, only a server on loopback
    /// checks host names.
    pub(crate) fn new(
        bound: SocketAddr,
        advertised: &str,
        allowed: &[String],
        token: Option<Secret<String>>,
    ) -> Self {
        let any = allowed.iter().any(|name| name == "*");
        let open = allowed.is_empty() && !bound.ip().to_canonical().is_loopback();
        let hosts = (!any && !open).then(|| {
            let allowed = allowed.iter().map(|name| normalize(host_of(name)));
            allowed
                .chain(service_names(&normalize(host_of(advertised))))
                .collect()
        });
        Self { hosts, token }
    }

    /// Returns whether the request's host name is accepted.
    pub(crate) fn allows_host<B>(&self, request: &Request<B>) -> bool {
        let Some(hosts) = &self.hosts else { return true };
        let allowed = match request.uri().authority() {
            Some(authority) => Some(authority.clone()),
            None => request
                .headers()
                .get(header::HOST)
                .and_then(|host| Authority::try_from(host.as_bytes()).ok()),
        };
        allowed.is_some_and(|allowed| {
            let host = normalize(allowed.host());
            is_loopback(&host) || hosts.contains(&host)
        })
    }

    /// Returns whether the request has the required token.
    pub(crate) fn allows_token<B>(&self, request: &Request<B>) -> bool {
        let Some(token) = &self.token else { return true };
        let query = request.uri().query().unwrap_or_default();
        let provided = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == TOKEN_PARAMETER);
        // Compare digests, so that timing reveals nothing about the token.
        let digest = |text: &str| Sha256::digest(text.as_bytes());
        provided.is_some_and(|(_, provided)| digest(&provided) == digest(token.expose()))
    }
}

/// Returns the host of an address, without scheme, path and port.
fn host_of(address: &str) -> &str {
    let address = address.split_once("://").map_or(address, |(_, rest)| rest);
    let address = address.split('/').next().unwrap_or_default();
    match address.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !host.ends_with(':') => host,
        _ => address,
    }
}

/// Normalizes a name to lower case, without brackets and trailing dot.
fn normalize(host: &str) -> String {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.trim_end_matches('.').to_ascii_lowercase()
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Returns a name and, if it is the name of a Service (`name.namespace.svc[.domain]`), its shorter forms.
fn service_names(name: &str) -> Vec<String> {
    let parts: Vec<&str> = name.split('.').collect();
    let shorter = match parts.get(2) {
        Some(&"svc") => 1..4,
        _ => 0..0,
    };
    let mut names: Vec<_> = shorter
        .map(|length| parts[..length.min(parts.len())].join("."))
        .collect();
    names.push(name.to_owned());
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(host: &str) -> Request<()> {
        Request::get("/x").header(header::HOST, host).body(()).unwrap()
    }

    fn on(bound: &str, advertised: &str, allowed: &[&str]) -> Admission {
        let allowed: Vec<_> = allowed.iter().map(|name| (*name).to_owned()).collect();
        Admission::new(bound.parse().unwrap(), advertised, &allowed, None)
    }

    fn refused<'a>(admission: &Admission, hosts: &[&'a str]) -> Vec<&'a str> {
        let refused = hosts.iter().filter(|host| !admission.allows_host(&request(host)));
        refused.copied().collect()
    }

    const LOOPBACK: [&str; 6] = [
        "localhost",
        "LocalHost:80",
        "127.0.0.1:80",
        "127.8.9.1",
        "[::1]:80",
        "[::ffff:127.0.0.1]",
    ];
    const SERVICE: [&str; 4] = [
        "sc",
        "sc.flux-system",
        "sc.flux-system.svc:80",
        "SC.flux-system.svc.cluster.local.",
    ];
    const FOREIGN: [&str; 5] = [
        "attacker.example",
        "localhost.attacker.example",
        "10.0.0.7",
        "127.0.0.1.attacker.example",
        "sc.other",
    ];

    #[test]
    fn foreign_host_names_are_refused_on_loopback() {
        for bound in ["127.0.0.1:80", "[::1]:80"] {
            let admission = on(bound, "127.0.0.1:80", &[]);
            assert!(refused(&admission, &LOOPBACK).is_empty());
            assert_eq!(refused(&admission, &FOREIGN), FOREIGN);
            assert_eq!(refused(&admission, &["", "a b", "@"]), ["", "a b", "@"]);
            assert!(!admission.allows_host(&Request::get("/x").body(()).unwrap()));
            let absolute = Request::get("http://attacker.example/x").header(header::HOST, "localhost");
            assert!(!admission.allows_host(&absolute.body(()).unwrap()));
        }
        let advertised = on("127.0.0.1:80", "https://files.example:8443/below/", &[]);
        assert!(refused(&advertised, &["files.example", "files.example:1"]).is_empty());
    }

    #[test]
    fn other_addresses_accept_any_host_name_unless_names_are_configured() {
        let advertised = "sc.flux-system.svc.cluster.local.";
        let open = on("0.0.0.0:9090", advertised, &[]);
        assert!(refused(&open, &[&FOREIGN[..], &SERVICE].concat()).is_empty());
        let strict = on("0.0.0.0:9090", advertised, &["files.example"]);
        assert!(refused(&strict, &[&SERVICE[..], &LOOPBACK, &["files.example"]].concat()).is_empty());
        assert_eq!(refused(&strict, &FOREIGN), FOREIGN);
        assert!(refused(&on("127.0.0.1:80", "", &["*"]), &FOREIGN).is_empty());
    }

    #[test]
    fn a_token_is_compared_as_a_whole() {
        let admission = Admission {
            hosts: None,
            token: Some(Secret::new("a1b2".to_owned())),
        };
        let knows = |uri: &str| admission.allows_token(&Request::get(uri).body(()).unwrap());
        assert!(knows("/x?token=a1b2") && knows("/x?a=b&token=a1b2"));
        for uri in [
            "/x",
            "/x?token=",
            "/x?token=a1b",
            "/x?token=a1b22",
            "/x?other=a1b2",
            "/x?token=A1B2",
        ] {
            assert!(!knows(uri), "{uri}");
        }
        assert!(Admission::default().allows_token(&Request::get("/x").body(()).unwrap()));
    }
}

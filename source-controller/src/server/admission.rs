//! Which requests are answered: by the name that they are made for, and by what they know.
//!
//! A server on loopback can be reached by every page that a browser of the machine shows: the page's own name is pointed at
//! 127.0.0.1, and then it reads as if it were that server's (DNS rebinding). Such a request names the page's host.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use http::uri::Authority;
use http::{Request, header};
use sha2::{Digest as _, Sha256};
use sluice_runtime::redact::Secret;
use url::form_urlencoded;

use crate::storage::TOKEN_PARAMETER;

/// What a request must name and know.
#[derive(Clone, Default)]
pub(crate) struct Admission {
    /// Names that the server is known by; nothing where it answers for any.
    hosts: Option<BTreeSet<String>>,
    /// What the URLs of artifacts carry; nothing where everybody who reaches the server may read.
    token: Option<Secret<String>>,
}

impl Admission {
    /// For a server that listens at `bound` and is known to consumers by `advertised`, `host[:port]` with or without a scheme.
    /// `named` are the names that the user allows besides; `*` allows any. Without them only a server on loopback is strict.
    pub(crate) fn new(
        bound: SocketAddr,
        advertised: &str,
        named: &[String],
        token: Option<Secret<String>>,
    ) -> Self {
        let any = named.iter().any(|name| name == "*");
        let open = named.is_empty() && !bound.ip().to_canonical().is_loopback();
        let hosts = (!any && !open).then(|| {
            let named = named.iter().map(|name| plain(host_of(name)));
            named
                .chain(names_of_service(&plain(host_of(advertised))))
                .collect()
        });
        Self { hosts, token }
    }

    /// Whether the server is known by the name that the request is made for.
    pub(crate) fn knows_host<B>(&self, request: &Request<B>) -> bool {
        let Some(hosts) = &self.hosts else { return true };
        let named = match request.uri().authority() {
            Some(authority) => Some(authority.clone()),
            None => request
                .headers()
                .get(header::HOST)
                .and_then(|host| Authority::try_from(host.as_bytes()).ok()),
        };
        named.is_some_and(|named| {
            let host = plain(named.host());
            is_loopback(&host) || hosts.contains(&host)
        })
    }

    /// Whether the request has the token, if there is one.
    pub(crate) fn knows_token<B>(&self, request: &Request<B>) -> bool {
        let Some(token) = &self.token else { return true };
        let query = request.uri().query().unwrap_or_default();
        let given = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == TOKEN_PARAMETER);
        // Digests are compared, so that time tells nothing about the token.
        let digest = |text: &str| Sha256::digest(text.as_bytes());
        given.is_some_and(|(_, given)| digest(&given) == digest(token.expose()))
    }
}

/// The host of an address: without scheme, path and port.
fn host_of(address: &str) -> &str {
    let address = address.split_once("://").map_or(address, |(_, rest)| rest);
    let address = address.split('/').next().unwrap_or_default();
    match address.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !host.ends_with(':') => host,
        _ => address,
    }
}

/// Names are compared in lower case, without brackets and without the dot of the root.
fn plain(host: &str) -> String {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.trim_end_matches('.').to_ascii_lowercase()
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback())
}

/// A name and, where it is that of a Service (`name.namespace.svc[.domain]`), what pods may call it instead.
fn names_of_service(name: &str) -> Vec<String> {
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

    fn asked(host: &str) -> Request<()> {
        Request::get("/x").header(header::HOST, host).body(()).unwrap()
    }

    fn on(bound: &str, advertised: &str, named: &[&str]) -> Admission {
        let named: Vec<_> = named.iter().map(|name| (*name).to_owned()).collect();
        Admission::new(bound.parse().unwrap(), advertised, &named, None)
    }

    fn refused<'a>(admission: &Admission, hosts: &[&'a str]) -> Vec<&'a str> {
        let refused = hosts.iter().filter(|host| !admission.knows_host(&asked(host)));
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
    fn on_loopback_names_of_others_are_refused() {
        for bound in ["127.0.0.1:80", "[::1]:80"] {
            let admission = on(bound, "127.0.0.1:80", &[]);
            assert!(refused(&admission, &LOOPBACK).is_empty());
            assert_eq!(refused(&admission, &FOREIGN), FOREIGN);
            assert_eq!(refused(&admission, &["", "a b", "@"]), ["", "a b", "@"]);
            assert!(!admission.knows_host(&Request::get("/x").body(()).unwrap()));
            let absolute = Request::get("http://attacker.example/x").header(header::HOST, "localhost");
            assert!(!admission.knows_host(&absolute.body(()).unwrap()));
        }
        let advertised = on("127.0.0.1:80", "https://files.example:8443/below/", &[]);
        assert!(refused(&advertised, &["files.example", "files.example:1"]).is_empty());
    }

    #[test]
    fn elsewhere_any_name_is_answered_until_names_are_given() {
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
        let knows = |uri: &str| admission.knows_token(&Request::get(uri).body(()).unwrap());
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
        assert!(Admission::default().knows_token(&Request::get("/x").body(()).unwrap()));
    }
}

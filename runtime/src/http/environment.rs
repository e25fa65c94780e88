//! Proxies from the environment: `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and the exceptions of `NO_PROXY`. The rules are
//! Go's, because users set the variables for Flux. Pure.

use std::net::IpAddr;

use url::Url;

use super::proxy::{Proxy, ProxyError, ProxyKind};

/// The proxies of the environment.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    http: Option<Proxy>,
    https: Option<Proxy>,
    all: Option<Proxy>,
    no: Vec<Exception>,
}

/// A variable contains an invalid proxy.
#[derive(Debug, thiserror::Error)]
#[error("environment variable {variable}: {source}")]
pub struct EnvironmentError {
    /// The variable.
    variable: &'static str,
    /// The error in its value.
    #[source]
    source: ProxyError,
}

/// An entry of `NO_PROXY`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Exception {
    /// `*`
    All,
    /// `10.0.0.0/8`
    Network(IpAddr, u8),
    /// `10.0.0.1`, `10.0.0.1:80`
    Address(IpAddr, Option<u16>),
    /// `example.org` with its subdomains, `.example.org` for the subdomains only; each with or without a port.
    Name {
        /// Subdomains only.
        suffix: String,
        itself: bool,
        port: Option<u16>,
    },
}

impl Environment {
    /// Reads the variables, upper case first, then lower case. Ignores `HTTP_PROXY` if `REQUEST_METHOD` is set, because in CGI
    /// the client controls that variable.
    ///
    /// # Errors
    /// A variable contains an invalid proxy address.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, EnvironmentError> {
        let either = |large: &str, small: &str| {
            let found = variable(large).filter(|text| !text.is_empty());
            found.or_else(|| variable(small)).filter(|text| !text.is_empty())
        };
        let is_cgi = variable("REQUEST_METHOD").is_some_and(|text| !text.is_empty());
        let proxy = |large: &'static str, small: &str| {
            let Some(text) = either(large, small) else {
                return Ok(None);
            };
            lenient(&text).map(Some).map_err(|source| EnvironmentError {
                variable: large,
                source,
            })
        };
        Ok(Self {
            http: if is_cgi {
                None
            } else {
                proxy("HTTP_PROXY", "http_proxy")?
            },
            https: proxy("HTTPS_PROXY", "https_proxy")?,
            // Used for ssh only, which requires SOCKS.
            all: either("ALL_PROXY", "all_proxy")
                .and_then(|text| Proxy::new(&text, None, None).ok())
                .filter(|proxy| proxy.kind() == ProxyKind::Socks5),
            no: exceptions(&either("NO_PROXY", "no_proxy").unwrap_or_default()),
        })
    }

    /// Returns the proxy for a URL: `HTTP_PROXY` for http, `HTTPS_PROXY` for https, `ALL_PROXY` for ssh; `None` for loopback
    /// addresses and the exceptions of `NO_PROXY`.
    #[must_use]
    pub fn proxy(&self, url: &Url) -> Option<&Proxy> {
        self.choose(url.scheme(), url.host_str()?, url.port())
    }

    /// Returns the proxy for the parts of a URL, see [`Self::proxy`].
    pub(super) fn choose(&self, scheme: &str, host: &str, port: Option<u16>) -> Option<&Proxy> {
        let (proxy, usual_port) = match scheme {
            "http" => (&self.http, 80),
            "https" => (&self.https, 443),
            "ssh" => (&self.all, 22),
            _ => return None,
        };
        let proxy = proxy.as_ref()?;
        (!self.is_exempt(host, port.unwrap_or(usual_port))).then_some(proxy)
    }

    fn is_exempt(&self, host: &str, port: u16) -> bool {
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_ascii_lowercase();
        let address = host.parse::<IpAddr>().ok();
        host == "localhost"
            || address.is_some_and(|address| address.is_loopback())
            || self
                .no
                .iter()
                .any(|exception| exception.covers(&host, address, port))
    }
}

impl Exception {
    fn covers(&self, host: &str, address: Option<IpAddr>, port: u16) -> bool {
        let same_port = |wanted: &Option<u16>| wanted.is_none_or(|wanted| wanted == port);
        match self {
            Self::All => true,
            Self::Network(network, bits) => address.is_some_and(|address| within(address, *network, *bits)),
            Self::Address(wanted, on) => address == Some(*wanted) && same_port(on),
            Self::Name {
                suffix,
                itself,
                port: on,
            } => (host.ends_with(suffix) || (*itself && host == &suffix[1..])) && same_port(on),
        }
    }
}

fn exceptions(list: &str) -> Vec<Exception> {
    let entries = list.split(',').map(|entry| entry.trim().to_ascii_lowercase());
    entries.filter_map(|entry| exception(&entry)).collect()
}

fn exception(entry: &str) -> Option<Exception> {
    if entry.is_empty() {
        return None;
    }
    if entry == "*" {
        return Some(Exception::All);
    }
    if let Some((network, bits)) = entry.split_once('/')
        && let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u8>())
    {
        let longest = if network.is_ipv4() { 32 } else { 128 };
        return (bits <= longest).then_some(Exception::Network(network, bits));
    }
    let (host, port) = match entry.rsplit_once(':') {
        Some((host, "")) => (host, None),
        // An invalid port matches nothing.
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port.parse().ok()?)),
        _ => (entry, None),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = host.parse() {
        return Some(Exception::Address(address, port));
    }
    let host = if host.starts_with("*.") { &host[1..] } else { host };
    let itself = !host.starts_with('.');
    (!host.is_empty()).then(|| Exception::Name {
        suffix: if itself {
            format!(".{host}")
        } else {
            host.to_owned()
        },
        itself,
        port,
    })
}

fn within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let differs = address.to_bits() ^ network.to_bits();
            differs.checked_shr(32 - u32::from(bits)).unwrap_or(0) == 0
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let differs = address.to_bits() ^ network.to_bits();
            differs.checked_shr(128 - u32::from(bits)).unwrap_or(0) == 0
        }
        _ => false,
    }
}

/// Parses the value of a variable, whose scheme is optional.
fn lenient(text: &str) -> Result<Proxy, ProxyError> {
    if text.contains("://") {
        return Proxy::new(text, None, None);
    }
    Proxy::new(&format!("http://{text}"), None, None)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Result<Environment, EnvironmentError> {
        Environment::read(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn chosen(variables: &[(&str, &str)], url: &str) -> Option<String> {
        let environment = environment(variables).unwrap();
        let proxy = environment.proxy(&Url::parse(url).unwrap());
        proxy.map(ToString::to_string)
    }

    #[test]
    fn each_scheme_has_its_variable_in_both_cases() {
        let all = [
            ("HTTP_PROXY", "http://one:1"),
            ("https_proxy", "two:2"),
            ("ALL_PROXY", "socks5://three"),
        ];
        assert_eq!(chosen(&all, "http://h/").unwrap(), "http://one:1");
        assert_eq!(chosen(&all, "https://h/").unwrap(), "http://two:2");
        assert_eq!(chosen(&all, "ssh://git@h/").unwrap(), "socks5://three:1080");
        assert_eq!(chosen(&all[2..], "https://h/"), None);
        assert_eq!(chosen(&[("all_proxy", "http://curl")], "ssh://git@h/"), None);
        let both = [("HTTP_PROXY", "http://large"), ("http_proxy", "http://small")];
        assert_eq!(chosen(&both, "http://h/").unwrap(), "http://large:80");
        let empty = [("HTTP_PROXY", ""), ("http_proxy", "http://small")];
        assert_eq!(chosen(&empty, "http://h/").unwrap(), "http://small:80");
    }

    #[test]
    fn a_web_servers_client_does_not_choose_the_proxy() {
        let set = [
            ("HTTP_PROXY", "http://evil"),
            ("HTTPS_PROXY", "http://good"),
            ("REQUEST_METHOD", "GET"),
        ];
        assert_eq!(chosen(&set, "http://h/"), None);
        assert_eq!(chosen(&set, "https://h/").unwrap(), "http://good:80");
    }

    #[test]
    fn an_invalid_proxy_is_reported_with_its_variable() {
        let error = environment(&[("https_proxy", "ftp://u:secret@h")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "environment variable HTTPS_PROXY: the address 'ftp://u:***@h/' has the scheme 'ftp': it must be http, \
             https or socks5"
        );
    }

    #[test]
    fn no_proxy_exempts_hosts() {
        for (list, url, direct) in [
            ("", "http://h/", false),
            ("*", "http://h/", true),
            ("example.org", "http://example.org/", true),
            ("example.org", "http://EXAMPLE.org:8080/", true),
            ("example.org", "http://a.b.example.org/", true),
            ("example.org", "http://badexample.org/", false),
            (".example.org", "http://a.example.org/", true),
            (".example.org", "http://example.org/", false),
            ("*.example.org", "http://a.example.org/", true),
            ("*.example.org", "http://example.org/", false),
            ("example.org:80", "http://example.org/", true),
            ("example.org:8080", "http://example.org/", false),
            ("example.org:", "http://example.org/", true),
            ("example.org:http", "http://example.org/", false),
            ("example.org:443", "https://a.example.org/", true),
            (" a , example.org ,", "http://example.org/", true),
            ("10.0.0.0/8", "http://10.200.3.4/", true),
            ("10.0.0.0/8", "http://11.0.0.1/", false),
            ("10.0.0.0/8", "http://ten/", false),
            ("0.0.0.0/0", "http://1.2.3.4/", true),
            ("10.0.0.1/32", "http://10.0.0.1/", true),
            ("10.0.0.1/33", "http://10.0.0.1/", false),
            ("10.0.0.1", "http://10.0.0.1/", true),
            ("10.0.0.1:81", "http://10.0.0.1/", false),
            ("fd00::/8", "http://[fd12::1]/", true),
            ("fd00::/8", "http://10.0.0.1/", false),
            ("fd12::1", "http://[fd12::1]/", true),
            ("[fd12::1]:80", "http://[fd12::1]/", true),
            ("[fd12::1]:81", "http://[fd12::1]/", false),
            ("", "http://localhost:3000/", true),
            ("", "http://127.0.0.9/", true),
            ("", "http://[::1]/", true),
        ] {
            let set = [
                ("HTTP_PROXY", "http://p"),
                ("HTTPS_PROXY", "http://p"),
                ("NO_PROXY", list),
            ];
            assert_eq!(chosen(&set, url).is_none(), direct, "{list:?} {url}");
        }
    }

    proptest! {
        #[test]
        fn any_list_is_read(list in "[a-z0-9.:/*,\\[\\] ]{0,60}", host in "[a-z0-9.:\\[\\]]{0,20}", port: u16) {
            let exceptions = Environment { no: exceptions(&list), ..Environment::default() };
            exceptions.is_exempt(&host, port);
        }
    }
}

//! The address of a TCP check (pure): `host:port`, as upstream takes it.

/// Parses host and port. The host is an IP address (IPv6 in brackets) or labels of letters, digits and `-`.
///
/// # Errors
/// A message that does not quote the address.
pub(super) fn parse(address: &str) -> Result<(&str, u16), String> {
    if address.is_empty() {
        return Err("the address is empty".to_owned());
    }
    if address.contains("://") {
        return Err("a TCP check takes host:port, not a URL".to_owned());
    }
    let (host, port) = address.rsplit_once(':').ok_or("the address has no port")?;
    let port = port.parse::<u16>().ok().filter(|port| *port > 0);
    let port = port.ok_or("the port is not a number from 1 to 65535")?;
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_valid = match inner {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => is_name(host),
    };
    if is_valid {
        Ok((inner.unwrap_or(host), port))
    } else {
        Err("the host is neither an IP address nor a name".to_owned())
    }
}

fn is_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    !host.is_empty() && host.len() <= 253 && host.split('.').all(is_label)
}

fn is_label(label: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = label.as_bytes();
    bytes.len() <= 63
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn host_and_port_are_parsed_and_other_text_is_reported() {
        for (address, host, port) in [
            ("127.0.0.1:80", "127.0.0.1", 80),
            ("[::1]:65535", "::1", 65535),
            ("localhost:1", "localhost", 1),
            (
                "db.prod.svc.cluster.local:5432",
                "db.prod.svc.cluster.local",
                5432,
            ),
            ("1.2.3.4.5:80", "1.2.3.4.5", 80),
            ("example.org.:443", "example.org.", 443),
        ] {
            assert_eq!(parse(address), Ok((host, port)), "{address}");
        }
        for address in [
            "",
            "localhost",
            "localhost:",
            "localhost:http",
            "localhost:0",
            "localhost:65536",
            "localhost:80808",
            "a+b:80",
            "a_b:80",
            "-a:80",
            ":80",
            "a..b:80",
            "http://localhost:80",
            "::1:80",
            "[::1:80",
        ] {
            assert!(parse(address).is_err(), "{address}");
        }
        let long = format!("{}:80", "a".repeat(64));
        assert!(parse(&long).is_err());
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in ".{0,300}") {
            if let Ok((host, port)) = parse(&text) {
                prop_assert!(!host.is_empty() && port > 0);
            }
        }
    }
}

//! Addresses of submodules, and whether they are on the host of the parent.

use std::borrow::Cow;
use std::sync::Arc;

use sluice_api::source::expand_ssh_short_form;
use url::Url;

use crate::git::{Access, Address, Credentials, Owner, Remote};

/// A relative address that leaves the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it leaves the host of the repository")]
pub struct LeavesHostError;

/// Converts an address of `.gitmodules` to an absolute one. As in Git, only an address that begins with `./` or `../`
/// is relative. It is resolved as if the address of the parent repository were a directory: `https://h/team/app.git`
/// and `../lib.git` give `https://h/team/lib.git`. The short form of ssh, `git@h:team/lib`, is expanded.
///
/// # Errors
/// The path climbs above the root of the host. (Git would change the host.)
pub fn absolute<'a>(parent: &Address, written: &'a str) -> Result<Cow<'a, str>, LeavesHostError> {
    if !written.starts_with("./") && !written.starts_with("../") {
        return Ok(expand_ssh_short_form(written));
    }
    let (root, path) = {
        let url = parent.url();
        let path = url.path();
        let root = url.as_str().split_at(url[..url::Position::BeforePath].len()).0;
        (root.to_owned(), path.trim_matches('/').to_owned())
    };
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let mut rest = written;
    loop {
        if let Some(more) = rest.strip_prefix("../") {
            parts.pop().ok_or(LeavesHostError)?;
            rest = more;
        } else if let Some(more) = rest.strip_prefix("./") {
            rest = more;
        } else {
            break;
        }
    }
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    // A later `..` would climb when the address is parsed.
    if rest.split('/').any(|part| part == "..") || rest == ".." {
        return Err(LeavesHostError);
    }
    parts.push(rest);
    Ok(Cow::Owned(format!("{root}/{}", parts.join("/"))))
}

/// Whether two addresses have the same scheme, host and port. Only then the credentials for one are sent to the other.
#[must_use]
pub fn is_same_host(one: &Address, other: &Address) -> bool {
    let server = |url: &Url| {
        let port = url.port_or_known_default().unwrap_or(22);
        (
            url.scheme().to_owned(),
            url.host_str().unwrap_or_default().to_ascii_lowercase(),
            port,
        )
    };
    server(one.url()) == server(other.url())
}

/// Returns the remote of a submodule. On the parent's host it uses the settings of the parent. On another host it uses
/// none of them (credentials, certificates, authorities, proxy), only the userinfo of its own address.
#[must_use]
pub fn remote(parent: &Remote, address: Address) -> Remote {
    if is_same_host(&parent.address, &address) {
        return parent.clone().with_access(|access| access.address = address);
    }
    let access = Access {
        credentials: Credentials::resolve(&address, None).unwrap_or_default(),
        address,
        tls: Arc::default(),
        proxy: None,
        owner: Owner {
            namespace: parent.owner.namespace.clone(),
            principal: None,
        },
    };
    Remote {
        transport: parent.transport.clone(),
        access: access.into(),
        timeout: parent.timeout,
        limits: parent.limits,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(url: &str) -> Address {
        Address::parse(url).unwrap()
    }

    fn joined(parent: &str, written: &str) -> Result<String, LeavesHostError> {
        absolute(&at(parent), written).map(Cow::into_owned)
    }

    #[test]
    fn relative_addresses_are_resolved_like_git() {
        for (parent, written, expected) in [
            ("https://h/team/app.git", "../lib.git", "https://h/team/lib.git"),
            ("https://h/team/app.git/", "../lib.git/", "https://h/team/lib.git"),
            ("https://h/team/app", "../../other/lib", "https://h/other/lib"),
            ("https://h/team/app", "./sub", "https://h/team/app/sub"),
            ("https://h/team/app", ".././../x", "https://h/x"),
            ("https://u:p@h:8443/a/b", "../c", "https://h:8443/a/c"),
            ("ssh://git@h:2222/a/b.git", "../c.git", "ssh://h:2222/a/c.git"),
        ] {
            assert_eq!(
                joined(parent, written).as_deref(),
                Ok(expected),
                "{parent} {written}"
            );
        }
    }

    #[test]
    fn a_relative_address_never_leaves_its_host() {
        for (parent, written) in [
            ("https://h/a", "../../evil.example/x"),
            ("https://h/a/b", "../../../x"),
            ("https://h/a/b", "../x/../../../y"),
            ("https://h/a/b", "../.."),
        ] {
            assert_eq!(joined(parent, written), Err(LeavesHostError), "{written}");
        }
    }

    #[test]
    fn absolute_addresses_are_unchanged_and_the_ssh_short_form_is_expanded() {
        for (written, expected) in [
            ("https://other/x.git", "https://other/x.git"),
            ("git@h:team/lib.git", "ssh://git@h/team/lib.git"),
            ("h:/abs/lib", "ssh://h/abs/lib"),
            ("ssh://git@h/lib", "ssh://git@h/lib"),
            ("/srv/git/lib", "/srv/git/lib"),
            ("lib", "lib"),
            ("dir/x:y", "dir/x:y"),
        ] {
            assert_eq!(
                joined("https://h/a", written).as_deref(),
                Ok(expected),
                "{written}"
            );
        }
    }

    #[test]
    fn equal_hosts_have_equal_scheme_name_and_port() {
        for (one, other, same) in [
            ("https://h/a", "https://h/b", true),
            ("https://H/a", "https://h:443/b", true),
            ("https://h/a", "http://h/a", false),
            ("https://h/a", "https://h:8443/a", false),
            ("https://h/a", "https://h.evil/a", false),
            ("https://h/a", "https://x.h/a", false),
            ("ssh://git@h/a", "ssh://h:22/a", true),
            ("ssh://git@H/a", "ssh://h/a", true),
            ("ssh://git@h/a", "https://h/a", false),
        ] {
            assert_eq!(is_same_host(&at(one), &at(other)), same, "{one} {other}");
        }
    }

    proptest! {
        #[test]
        fn relative_addresses_stay_on_their_host(written in "\\.\\.?/[a-z:@/.?#%\\\\]{0,20}") {
            let parent = at("https://user:secret@h:8443/team/app.git");
            if let Ok(text) = absolute(&parent, &written)
                && let Ok(address) = Address::parse(&text)
            {
                prop_assert!(is_same_host(&parent, &address), "{}", text);
            }
        }
    }
}

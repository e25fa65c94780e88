//! Where the address of a submodule leads, and whether that is where its parent comes from.

use std::borrow::Cow;
use std::sync::Arc;

use url::Url;

use crate::git::{Address, Credentials, Owner, Remote};

/// A relative address that leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it leads above the root of the host that the repository comes from")]
pub struct RelativeError;

/// What is written in `.gitmodules` as an absolute address. As in Git, only what begins with `./` or `../` is relative, and
/// it is resolved against the address of the repository that holds the file as if that were a directory:
/// `https://h/team/app.git` and `../lib.git` give `https://h/team/lib.git`. The short form of ssh, `git@h:team/lib`, is
/// written out.
///
/// # Errors
/// The path climbs above the root of the host. (Git would make another host of it.)
pub fn absolute<'a>(parent: &Address, written: &'a str) -> Result<Cow<'a, str>, RelativeError> {
    if !written.starts_with("./") && !written.starts_with("../") {
        return Ok(written_out(written));
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
            parts.pop().ok_or(RelativeError)?;
            rest = more;
        } else if let Some(more) = rest.strip_prefix("./") {
            rest = more;
        } else {
            break;
        }
    }
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    // What stands further behind would climb when the address is read.
    if rest.split('/').any(|part| part == "..") || rest == ".." {
        return Err(RelativeError);
    }
    parts.push(rest);
    Ok(Cow::Owned(format!("{root}/{}", parts.join("/"))))
}

/// `user@host:path` as `ssh://user@host/path`; everything else as it is.
fn written_out(text: &str) -> Cow<'_, str> {
    let short = || {
        let (host, path) = text.split_once(':')?;
        let is_short = !host.is_empty() && !host.contains('/') && !path.starts_with("//");
        is_short.then(|| format!("ssh://{host}/{}", path.trim_start_matches('/')))
    };
    short().map_or(Cow::Borrowed(text), Cow::Owned)
}

/// Whether two addresses are of one server: the same scheme, host and port. Credentials given for the one are only then
/// sent to the other.
#[must_use]
pub fn same_host(one: &Address, other: &Address) -> bool {
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

/// The remote of a submodule: as the parent's, with the same credentials, if it is on the same host. Elsewhere nothing that
/// was given for the parent goes along (credentials, certificates, authorities, proxy), and the address alone says who is
/// asking.
#[must_use]
pub fn remote(parent: &Remote, address: Address) -> Remote {
    let Remote {
        transport,
        address: own,
        credentials,
        tls,
        proxy,
        timeout,
        limits,
        owner,
    } = parent.clone();
    let (credentials, tls, proxy, owner) = if same_host(&own, &address) {
        (credentials, tls, proxy, owner)
    } else {
        let credentials = Credentials::resolve(&address, None).unwrap_or_default();
        let owner = Owner {
            principal: None,
            ..owner
        };
        (credentials, Arc::default(), None, owner)
    };
    Remote {
        transport,
        address,
        credentials,
        tls,
        proxy,
        timeout,
        limits,
        owner,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(url: &str) -> Address {
        Address::parse(url).unwrap()
    }

    fn joined(parent: &str, written: &str) -> Result<String, RelativeError> {
        absolute(&at(parent), written).map(Cow::into_owned)
    }

    #[test]
    fn relative_addresses_are_resolved_as_git_does() {
        for (parent, written, wanted) in [
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
                Ok(wanted),
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
            assert_eq!(joined(parent, written), Err(RelativeError), "{written}");
        }
    }

    #[test]
    fn absolute_addresses_stay_and_the_short_form_of_ssh_is_written_out() {
        for (written, wanted) in [
            ("https://other/x.git", "https://other/x.git"),
            ("git@h:team/lib.git", "ssh://git@h/team/lib.git"),
            ("h:/abs/lib", "ssh://h/abs/lib"),
            ("ssh://git@h/lib", "ssh://git@h/lib"),
            ("/srv/git/lib", "/srv/git/lib"),
            ("lib", "lib"),
            ("dir/x:y", "dir/x:y"),
        ] {
            assert_eq!(joined("https://h/a", written).as_deref(), Ok(wanted), "{written}");
        }
    }

    #[test]
    fn a_host_is_scheme_name_and_port() {
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
            assert_eq!(same_host(&at(one), &at(other)), same, "{one} {other}");
        }
    }

    proptest! {
        #[test]
        fn what_is_relative_stays_on_its_host(written in "\\.\\.?/[a-z:@/.?#%\\\\]{0,20}") {
            let parent = at("https://user:secret@h:8443/team/app.git");
            if let Ok(text) = absolute(&parent, &written)
                && let Ok(address) = Address::parse(&text)
            {
                prop_assert!(same_host(&parent, &address), "{}", text);
            }
        }
    }
}

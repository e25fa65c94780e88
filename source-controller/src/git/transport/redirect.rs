//! Rules for redirects of the first request. Pure.
//!
//! The rules are Git's own (`http.followRedirects=initial`): only `GET info/refs` may be redirected, the target must be
//! an `info/refs` again, and all later requests use the target.

use url::Url;

/// Maximum number of consecutive redirects.
pub(super) const MAX_REDIRECTS: usize = 10;

const SERVICE: (&str, &str) = ("service", "git-upload-pack");

/// Returns the URL of the first request for a repository.
pub(super) fn info_refs_url(repository: &Url) -> Url {
    let mut url = append_path(repository, "info/refs");
    url.query_pairs_mut().append_pair(SERVICE.0, SERVICE.1);
    url
}

/// Returns the URL of the repository's commands.
pub(super) fn upload_pack_url(repository: &Url) -> Url {
    append_path(repository, "git-upload-pack")
}

fn append_path(repository: &Url, name: &str) -> Url {
    let mut url = repository.clone();
    let path = format!("{}/{name}", repository.path().trim_end_matches('/'));
    url.set_path(&path);
    url
}

/// Returns the target of `location` relative to `current`.
///
/// # Errors
/// The target is not a URL, its scheme is not http or https, or it leads from https to http.
pub(super) fn follow(current: &Url, location: &str) -> Result<Url, String> {
    let mut next = current
        .join(location)
        .map_err(|error| format!("the Location is not a URL: {error}"))?;
    match (current.scheme(), next.scheme()) {
        ("https", "http") => return Err("from https to http".into()),
        (_, "http" | "https") => {}
        (_, other) => return Err(format!("to the scheme '{other}'")),
    }
    // Userinfo in a Location would be credentials that the user did not provide.
    next.set_username("")
        .and_then(|()| next.set_password(None))
        .map_err(|()| "to no host".to_owned())?;
    Ok(next)
}

/// Returns the repository of an `info/refs` URL after redirects.
///
/// # Errors
/// The path does not end in `/info/refs`.
pub(super) fn repository_url(found: &Url) -> Result<Url, String> {
    let path = found.path().strip_suffix("/info/refs");
    let path = path
        .ok_or_else(|| "the path does not end in '/info/refs'".to_owned())?
        .to_owned();
    let mut url = found.clone();
    let pairs: Vec<_> = found
        .query_pairs()
        .into_owned()
        .filter(|(name, _)| name != SERVICE.0)
        .collect();
    url.set_path(&path);
    url.set_query(None);
    if !pairs.is_empty() {
        url.query_pairs_mut().extend_pairs(pairs);
    }
    Ok(url)
}

/// Whether credentials for `one` may be sent to `other`: same scheme, host and port.
pub(super) fn is_same_origin(one: &Url, other: &Url) -> bool {
    one.origin() == other.origin()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn requests_go_below_the_repository() {
        assert_eq!(
            info_refs_url(&url("http://h/a.git/")).as_str(),
            "http://h/a.git/info/refs?service=git-upload-pack"
        );
        assert_eq!(
            info_refs_url(&url("http://h")).as_str(),
            "http://h/info/refs?service=git-upload-pack"
        );
        assert_eq!(
            info_refs_url(&url("http://h/a?k=v")).as_str(),
            "http://h/a/info/refs?k=v&service=git-upload-pack"
        );
        assert_eq!(
            upload_pack_url(&url("http://h/a.git")).as_str(),
            "http://h/a.git/git-upload-pack"
        );
    }

    #[test]
    fn redirects_are_followed_or_refused() {
        let current = url("https://h/a/info/refs?service=git-upload-pack");
        assert_eq!(
            follow(&current, "/b/info/refs").unwrap().as_str(),
            "https://h/b/info/refs"
        );
        assert_eq!(
            follow(&current, "https://u:p@other/b").unwrap().as_str(),
            "https://other/b"
        );
        assert!(
            follow(&current, "http://h/b")
                .unwrap_err()
                .contains("from https to http")
        );
        assert!(follow(&current, "file:///etc/passwd").is_err());
        assert!(follow(&url("http://h/a"), "https://h/a").is_ok());
    }

    #[test]
    fn the_repository_url_is_recovered() {
        let found = repository_url(&url("https://h/b.git/info/refs?service=git-upload-pack")).unwrap();
        assert_eq!(found.as_str(), "https://h/b.git");
        assert_eq!(
            repository_url(&url("https://h/b/info/refs?k=v&service=x"))
                .unwrap()
                .as_str(),
            "https://h/b?k=v"
        );
        assert!(repository_url(&url("https://h/login")).is_err());
    }

    #[test]
    fn credentials_are_bound_to_scheme_host_and_port() {
        for (one, other, same) in [
            ("http://h/a", "http://h/b", true),
            ("http://h/a", "http://h:80/b", true),
            ("http://h/a", "https://h/a", false),
            ("http://h/a", "http://h:8080/a", false),
            ("http://h/a", "http://sub.h/a", false),
        ] {
            assert_eq!(is_same_origin(&url(one), &url(other)), same, "{one} {other}");
        }
    }

    proptest! {
        #[test]
        fn any_location_is_followed_or_refused(location in "\\PC{0,80}") {
            if let Ok(next) = follow(&url("https://h/a/info/refs"), &location) {
                prop_assert_eq!(next.scheme(), "https");
                let _ = repository_url(&next);
            }
        }
    }
}

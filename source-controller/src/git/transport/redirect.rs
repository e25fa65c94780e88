//! Which redirections of the first request are followed: pure.
//!
//! The rules are Git's own (`http.followRedirects=initial`): only `GET info/refs` may be redirected, what it leads to
//! must be an `info/refs` again, and everything after it goes to the place that was found.

use url::Url;

/// Redirections followed in a row.
pub(super) const LONGEST_CHAIN: usize = 10;

const SERVICE: (&str, &str) = ("service", "git-upload-pack");

/// The first request's URL of a repository.
pub(super) fn info_refs(repository: &Url) -> Url {
    let mut url = below(repository, "info/refs");
    url.query_pairs_mut().append_pair(SERVICE.0, SERVICE.1);
    url
}

/// The URL of the repository's commands.
pub(super) fn upload_pack(repository: &Url) -> Url {
    below(repository, "git-upload-pack")
}

fn below(repository: &Url, name: &str) -> Url {
    let mut url = repository.clone();
    let path = format!("{}/{name}", repository.path().trim_end_matches('/'));
    url.set_path(&path);
    url
}

/// Where `location` leads from `here`.
///
/// # Errors
/// It leads to no URL, to a scheme that is not http, or from https to http.
pub(super) fn follow(here: &Url, location: &str) -> Result<Url, String> {
    let mut next = here
        .join(location)
        .map_err(|error| format!("the Location is no URL: {error}"))?;
    match (here.scheme(), next.scheme()) {
        ("https", "http") => return Err("from https to http".into()),
        (_, "http" | "https") => {}
        (_, other) => return Err(format!("to the scheme '{other}'")),
    }
    // Userinfo in a Location would be credentials that the user did not give.
    next.set_username("")
        .and_then(|()| next.set_password(None))
        .map_err(|()| "to no host".to_owned())?;
    Ok(next)
}

/// The repository that a followed `info/refs` URL belongs to.
///
/// # Errors
/// The path does not end in `/info/refs`.
pub(super) fn repository(found: &Url) -> Result<Url, String> {
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

/// Whether credentials for `one` may go to `other`: same scheme, host and port.
pub(super) fn same_place(one: &Url, other: &Url) -> bool {
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
            info_refs(&url("http://h/a.git/")).as_str(),
            "http://h/a.git/info/refs?service=git-upload-pack"
        );
        assert_eq!(
            info_refs(&url("http://h")).as_str(),
            "http://h/info/refs?service=git-upload-pack"
        );
        assert_eq!(
            info_refs(&url("http://h/a?k=v")).as_str(),
            "http://h/a/info/refs?k=v&service=git-upload-pack"
        );
        assert_eq!(
            upload_pack(&url("http://h/a.git")).as_str(),
            "http://h/a.git/git-upload-pack"
        );
    }

    #[test]
    fn redirections_are_judged() {
        let here = url("https://h/a/info/refs?service=git-upload-pack");
        assert_eq!(
            follow(&here, "/b/info/refs").unwrap().as_str(),
            "https://h/b/info/refs"
        );
        assert_eq!(
            follow(&here, "https://u:p@other/b").unwrap().as_str(),
            "https://other/b"
        );
        assert!(
            follow(&here, "http://h/b")
                .unwrap_err()
                .contains("from https to http")
        );
        assert!(follow(&here, "file:///etc/passwd").is_err());
        assert!(follow(&url("http://h/a"), "https://h/a").is_ok());
    }

    #[test]
    fn the_repository_is_found_again() {
        let found = repository(&url("https://h/b.git/info/refs?service=git-upload-pack")).unwrap();
        assert_eq!(found.as_str(), "https://h/b.git");
        assert_eq!(
            repository(&url("https://h/b/info/refs?k=v&service=x"))
                .unwrap()
                .as_str(),
            "https://h/b?k=v"
        );
        assert!(repository(&url("https://h/login")).is_err());
    }

    #[test]
    fn credentials_stay_with_their_scheme_host_and_port() {
        for (one, other, same) in [
            ("http://h/a", "http://h/b", true),
            ("http://h/a", "http://h:80/b", true),
            ("http://h/a", "https://h/a", false),
            ("http://h/a", "http://h:8080/a", false),
            ("http://h/a", "http://sub.h/a", false),
        ] {
            assert_eq!(same_place(&url(one), &url(other)), same, "{one} {other}");
        }
    }

    proptest! {
        #[test]
        fn any_location_is_judged(location in "\\PC{0,80}") {
            if let Ok(next) = follow(&url("https://h/a/info/refs"), &location) {
                prop_assert_eq!(next.scheme(), "https");
                let _ = repository(&next);
            }
        }
    }
}

//! Redaction of URLs with credentials and of secrets.

use std::fmt;

/// A URL that prints without credentials and query values, e.g. `https://user:***@host/path`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct MaskedUrl(String);

impl MaskedUrl {
    /// Masks a text that should be a URL. A text that does not parse is masked by patterns, so that a typo does not print the
    /// password.
    #[must_use]
    pub fn new(text: &str) -> Self {
        url::Url::parse(text).map_or_else(|_| Self(mask_text(text)), |url| Self(mask_url(url)))
    }

    /// Returns the masked text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&url::Url> for MaskedUrl {
    fn from(url: &url::Url) -> Self {
        Self(mask_url(url.clone()))
    }
}

impl fmt::Display for MaskedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for MaskedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

const MASK: &str = "***";

fn mask_url(mut url: url::Url) -> String {
    if url.cannot_be_a_base() {
        // `user:password@host` parses as a URL with the scheme `user`.
        return mask_text(url.as_str());
    }
    if url.password().is_some() && url.set_password(Some(MASK)).is_err() {
        return mask_text(url.as_str());
    }
    if url.query().is_some() {
        // Query values contain signatures and tokens; the names help to recognize the URL.
        let names: Vec<String> = url.query_pairs().map(|(name, _)| name.into_owned()).collect();
        url.query_pairs_mut()
            .clear()
            .extend_pairs(names.iter().map(|name| (name, MASK)));
    }
    url.set_fragment(None);
    url.into()
}

/// Masks `a:b@c` as `a:***@c` and `x?y` as `x?***`.
fn mask_text(text: &str) -> String {
    let text = text
        .split_once('?')
        .map_or_else(|| text.to_owned(), |(front, _)| format!("{front}?{MASK}"));
    let Some((credentials, rest)) = text.rsplit_once('@') else {
        return text;
    };
    let (scheme, credentials) = credentials
        .split_once("://")
        .map_or(("", credentials), |(s, c)| (&credentials[..s.len() + 3], c));
    let user = credentials
        .split_once(':')
        .map_or_else(|| credentials.to_owned(), |(user, _)| format!("{user}:{MASK}"));
    format!("{scheme}{user}@{rest}")
}

/// A value that is never printed: `Debug` hides it, and there is no `Display`.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Wraps the value.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// Returns the value.
    pub const fn expose(&self) -> &T {
        &self.0
    }

    /// Unwraps the value.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> From<T> for Secret<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn credentials_are_masked_in_urls() {
        for (url, masked) in [
            ("https://git.example/a/b.git", "https://git.example/a/b.git"),
            (
                "https://user:pa55@git.example/a",
                "https://user:***@git.example/a",
            ),
            ("https://:pa55@git.example/a", "https://:***@git.example/a"),
            ("ssh://git@git.example/a", "ssh://git@git.example/a"),
            (
                "https://s3.example/a?X-Sig=pa55&b=pa55",
                "https://s3.example/a?X-Sig=***&b=***",
            ),
            ("https://git.example/a#pa55", "https://git.example/a"),
            ("user:pa55@git example/a", "user:***@git example/a"),
            (
                "https://user:pa55@git example/a?pa55",
                "https://user:***@git example/a?***",
            ),
            ("not a url", "not a url"),
        ] {
            assert_eq!(MaskedUrl::new(url).to_string(), masked);
            assert!(!format!("{:?}", MaskedUrl::new(url)).contains("pa55"));
        }
    }

    #[test]
    fn a_secret_is_never_printed() {
        #[derive(Debug)]
        #[expect(dead_code, reason = "only its Debug form is read")]
        struct Holder {
            token: Secret<String>,
        }
        let holder = Holder {
            token: Secret::new("pa55".to_owned()),
        };
        assert_eq!(format!("{holder:?}"), "Holder { token: Secret(***) }");
        assert_eq!(Secret::new(3).expose(), &3);
        assert_eq!(Secret::from("x").into_inner(), "x");
    }

    proptest! {
        #[test]
        fn masking_never_panics(text in "\\PC{0,64}") {
            let _ = MaskedUrl::new(&text);
        }

        #[test]
        fn the_password_is_masked(password in "[A-Z0-9!$&'()*+,;=._~-]{6,20}", host in "[a-z]{1,8}( [a-z]{1,3})?") {
            let url = format!("https://user:{password}@{host}/path");
            prop_assert!(!MaskedUrl::new(&url).as_str().contains(&password));
        }
    }
}

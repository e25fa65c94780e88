//! The reference that an object specifies, the commit that it named at a lookup, and the format of its revision.

use git2::Oid;

/// Maximum length of a ref name that is sent, in bytes. Git's own limit is that of a path.
const MAX_NAME_BYTES: usize = 1024;
/// Namespace of tags.
pub(super) const TAGS_PREFIX: &str = "refs/tags/";
/// Suffix of a tag's name for the peeled object.
const PEELED_SUFFIX: &str = "^{}";

/// The reference of an object. Of several fields in `spec.ref`, the most specific one counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reference {
    /// The head of a branch.
    Branch(String),
    /// The commit to which a tag is peeled.
    Tag(String),
    /// The tag of the highest version that satisfies a constraint. It resolves to a [`Reference::Tag`].
    Semver(String),
    /// Any ref by its full name; the revision contains it unchanged.
    Name(String),
    /// A pinned commit, independent of refs.
    Commit {
        /// The full object name as the user wrote it.
        commit: String,
        /// The branch in the revision. The commit is searched on it if the server does not serve it by its hash.
        branch: Option<String>,
        /// The full name of a ref that replaces the branch in the revision.
        name: Option<String>,
    },
}

/// The fields of `spec.ref`; an empty string counts as absent.
#[derive(Clone, Copy, Debug, Default)]
pub struct RefFields<'a> {
    /// `spec.ref.branch`
    pub branch: Option<&'a str>,
    /// `spec.ref.tag`
    pub tag: Option<&'a str>,
    /// `spec.ref.semver`
    pub semver: Option<&'a str>,
    /// `spec.ref.name`
    pub name: Option<&'a str>,
    /// `spec.ref.commit`
    pub commit: Option<&'a str>,
}

impl Reference {
    /// Returns the effective reference: `commit`, then `name`, `tag`, `semver`, `branch`, and the branch `master`
    /// without any of them. (Flux's documentation puts `semver` before `tag`; its code does not.)
    #[must_use]
    pub fn resolve(fields: RefFields<'_>) -> Self {
        let non_empty = |field: Option<&str>| field.filter(|text| !text.is_empty()).map(str::to_owned);
        let (branch, name) = (non_empty(fields.branch), non_empty(fields.name));
        if let Some(commit) = non_empty(fields.commit) {
            return Self::Commit { commit, branch, name };
        }
        let by_name = name.map(Self::Name);
        by_name
            .or_else(|| non_empty(fields.tag).map(Self::Tag))
            .or_else(|| non_empty(fields.semver).map(Self::Semver))
            .unwrap_or_else(|| Self::Branch(branch.unwrap_or_else(|| "master".to_owned())))
    }

    /// Returns the ref to look up at the remote; `None` for a pinned commit or a version constraint.
    #[must_use]
    pub(crate) fn remote_name(&self) -> Option<String> {
        match self {
            Self::Branch(branch) => Some(format!("refs/heads/{branch}")),
            Self::Tag(tag) => Some(format!("refs/tags/{tag}")),
            // A lookup always returns the peeled object.
            Self::Name(name) => Some(name.strip_suffix(PEELED_SUFFIX).unwrap_or(name).to_owned()),
            Self::Commit { .. } | Self::Semver(_) => None,
        }
    }

    /// Whether a lookup of the reference sends a request: not for a pinned commit without a tag.
    #[must_use]
    pub(crate) fn needs_request(&self) -> bool {
        !matches!(self, Self::Commit { .. }) || self.tag().is_some()
    }

    /// Returns the short name of the tag that this reference names.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        match self {
            Self::Tag(name) => Some(name),
            Self::Name(name) => name
                .strip_suffix(PEELED_SUFFIX)
                .unwrap_or(name)
                .strip_prefix(TAGS_PREFIX),
            // With the suffix, the name means the commit, not the tag.
            Self::Commit { name: Some(name), .. } => name
                .strip_prefix(TAGS_PREFIX)
                .filter(|name| !name.ends_with(PEELED_SUFFIX)),
            Self::Commit { name: None, .. } | Self::Branch(_) | Self::Semver(_) => None,
        }
    }

    /// Whether the name is a valid ref name. Invalid names are never sent.
    #[must_use]
    pub(crate) fn is_well_formed(&self) -> bool {
        let tag = || self.tag().map(str::to_owned);
        self.remote_name().or_else(tag).is_none_or(|name| {
            name.len() <= MAX_NAME_BYTES
                && !name.contains(|c: char| c.is_ascii_control() || " ~^:?*[\\".contains(c))
                && !name.contains("..")
        })
    }

    /// Returns the revision of `commit` under this reference, by Flux's rule: with the full name that the user set in `spec.ref.name`,
    /// otherwise with the short name of the branch or tag (`main@sha1:…`), or `sha1:…` without any of them.
    #[must_use]
    pub fn revision(&self, commit: Oid) -> String {
        let name: &str = match self {
            Self::Name(name)
            | Self::Branch(name)
            | Self::Tag(name)
            | Self::Commit { name: Some(name), .. }
            | Self::Commit {
                branch: Some(name), ..
            } => name,
            Self::Semver(_) | Self::Commit { .. } => "",
        };
        let separator = if name.is_empty() { "sha1:" } else { "@sha1:" };
        [name, separator, &commit.to_string()].concat()
    }
}

/// The commit that a reference named at the time of the lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The commit; tags are peeled.
    pub commit: Oid,
    /// The object that the ref points to: the commit, or an annotated tag.
    pub object: Oid,
    /// The reference; for a version constraint, the selected tag.
    pub reference: Reference,
}

/// A tag from a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagRef<'a> {
    /// Its name, without `refs/tags/`.
    pub name: &'a str,
    /// The annotated tag object; `None` for a lightweight tag, or if the tag was not looked up.
    pub object: Option<Oid>,
}

impl Head {
    /// Returns the tag by which the commit was found, if any.
    #[must_use]
    pub fn tag(&self) -> Option<TagRef<'_>> {
        Some(TagRef {
            name: self.reference.tag()?,
            object: (self.object != self.commit).then_some(self.object),
        })
    }

    /// Returns the revision for the artifact: `main@sha1:…`.
    #[must_use]
    pub fn revision(&self) -> String {
        self.reference.revision(self.commit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::protocol::parse_object_id;

    const A: &str = "0123456789abcdef0123456789abcdef01234567";

    fn commit(branch: Option<&str>, name: Option<&str>) -> Reference {
        Reference::Commit {
            commit: A.into(),
            branch: branch.map(Into::into),
            name: name.map(Into::into),
        }
    }

    #[test]
    fn the_most_specific_field_is_used() {
        let all = RefFields {
            branch: Some("b"),
            tag: Some("t"),
            semver: Some("*"),
            name: Some("refs/pull/1/head"),
            commit: Some(A),
        };
        let without_commit = RefFields {
            commit: Some(""),
            ..all
        };
        let without_name = RefFields {
            name: None,
            ..without_commit
        };
        let without_tag = RefFields {
            tag: Some(""),
            ..without_name
        };
        let without_semver = RefFields {
            semver: None,
            ..without_tag
        };
        let cases = [
            (all, commit(Some("b"), Some("refs/pull/1/head"))),
            (
                RefFields { branch: None, ..all },
                commit(None, Some("refs/pull/1/head")),
            ),
            (
                RefFields {
                    name: Some(""),
                    ..all
                },
                commit(Some("b"), None),
            ),
            (without_commit, Reference::Name("refs/pull/1/head".into())),
            (without_name, Reference::Tag("t".into())),
            (without_tag, Reference::Semver("*".into())),
            (without_semver, Reference::Branch("b".into())),
            (
                RefFields {
                    branch: Some(""),
                    ..RefFields::default()
                },
                Reference::Branch("master".into()),
            ),
            (RefFields::default(), Reference::Branch("master".into())),
        ];
        for (fields, expected) in cases {
            assert_eq!(Reference::resolve(fields), expected, "{fields:?}");
        }
    }

    #[test]
    fn revisions_name_the_ref_and_the_commit() {
        let id = parse_object_id(A.as_bytes()).unwrap();
        let cases = [
            (Reference::Branch("master".into()), format!("master@sha1:{A}")),
            (
                Reference::Branch("feature/x".into()),
                format!("feature/x@sha1:{A}"),
            ),
            (Reference::Tag("v1.0.0".into()), format!("v1.0.0@sha1:{A}")),
            (
                Reference::Name("refs/heads/main".into()),
                format!("refs/heads/main@sha1:{A}"),
            ),
            (
                Reference::Name("refs/tags/v1^{}".into()),
                format!("refs/tags/v1^{{}}@sha1:{A}"),
            ),
            (
                Reference::Name("refs/pull/420/head".into()),
                format!("refs/pull/420/head@sha1:{A}"),
            ),
            (Reference::Name("HEAD".into()), format!("HEAD@sha1:{A}")),
            (commit(None, None), format!("sha1:{A}")),
            (commit(Some("b"), None), format!("b@sha1:{A}")),
            (
                commit(Some("b"), Some("refs/tags/v1")),
                format!("refs/tags/v1@sha1:{A}"),
            ),
        ];
        for (reference, revision) in cases {
            assert_eq!(reference.revision(id), revision);
        }
    }

    #[test]
    fn a_peeled_name_is_looked_up_as_the_tag() {
        let peeled = Reference::Name("refs/tags/v1^{}".into());
        assert_eq!(peeled.remote_name().as_deref(), Some("refs/tags/v1"));
        assert!(peeled.is_well_formed());
        assert!(!Reference::Name("refs/tags/v1^{}^{}".into()).is_well_formed());
    }

    #[test]
    fn tags_are_recognized_in_every_field() {
        for (reference, tag) in [
            (Reference::Tag("v1".into()), Some("v1")),
            (Reference::Name("refs/tags/a/v1".into()), Some("a/v1")),
            (Reference::Name("refs/tags/v1^{}".into()), Some("v1")),
            (Reference::Name("refs/heads/main".into()), None),
            (Reference::Branch("v1".into()), None),
            (commit(None, Some("refs/tags/v1")), Some("v1")),
            (commit(None, Some("refs/tags/v1^{}")), None),
            (commit(Some("v1"), None), None),
        ] {
            assert_eq!(reference.tag(), tag, "{reference:?}");
        }
    }

    #[test]
    fn invalid_ref_names_are_detected() {
        for (name, good) in [
            ("main", true),
            ("a/b-c_d.e", true),
            ("ä", true),
            ("a b", false),
            ("a\nb", false),
            ("a..b", false),
            ("a*", false),
        ] {
            assert_eq!(Reference::Branch(name.into()).is_well_formed(), good, "{name:?}");
        }
        assert!(!Reference::Tag("x".repeat(2000)).is_well_formed());
    }
}

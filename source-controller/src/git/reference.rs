//! Which commit an object asks for, and how its revision is written.

use git2::Oid;
use sluice_api::revision::Revision;

/// Longest ref name that is sent, in bytes; Git's own limit is that of a path.
const LONGEST_NAME: usize = 1024;
/// Where tags are.
const TAGS: &str = "refs/tags/";
/// What may follow the name of a tag: "the object that it leads to".
const PEELED: &str = "^{}";

/// What an object follows. Of several fields of `spec.ref` the most exact one counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reference {
    /// The head of a branch.
    Branch(String),
    /// The commit that a tag leads to.
    Tag(String),
    /// The tag of the highest version that satisfies a constraint. What is found is a [`Reference::Tag`].
    Semver(String),
    /// Any ref by its full name, which the revision shows as it is written.
    Name(String),
    /// One commit, whatever refs say.
    Commit {
        /// The full object name, as the user wrote it.
        commit: String,
        /// The branch that the revision names, and on which the commit is looked for if it cannot be asked for by its
        /// hash.
        branch: Option<String>,
        /// The full name of a ref that the revision names instead.
        name: Option<String>,
    },
}

/// The fields of `spec.ref`; an empty string counts as absent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fields<'a> {
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
    /// The reference that counts: `commit`, then `name`, `tag`, `semver`, `branch`, and the branch `master` without
    /// any of them. (Flux's documentation puts `semver` before `tag`; its code does not.)
    #[must_use]
    pub fn resolve(fields: Fields<'_>) -> Self {
        let set = |field: Option<&str>| field.filter(|text| !text.is_empty()).map(str::to_owned);
        let (branch, name) = (set(fields.branch), set(fields.name));
        if let Some(commit) = set(fields.commit) {
            return Self::Commit { commit, branch, name };
        }
        let by_name = name.map(Self::Name);
        by_name
            .or_else(|| set(fields.tag).map(Self::Tag))
            .or_else(|| set(fields.semver).map(Self::Semver))
            .unwrap_or_else(|| Self::Branch(branch.unwrap_or_else(|| "master".to_owned())))
    }

    /// The ref to look up at the remote; none where a commit is named outright, or a tag has to be picked.
    #[must_use]
    pub fn remote_name(&self) -> Option<String> {
        match self {
            Self::Branch(branch) => Some(format!("refs/heads/{branch}")),
            Self::Tag(tag) => Some(format!("refs/tags/{tag}")),
            // A lookup tells in any case what a tag leads to.
            Self::Name(name) => Some(name.strip_suffix(PEELED).unwrap_or(name).to_owned()),
            Self::Commit { .. } | Self::Semver(_) => None,
        }
    }

    /// The tag that is followed, or by whose name a commit goes: its short name.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        match self {
            Self::Tag(name) => Some(name),
            Self::Name(name) => name.strip_suffix(PEELED).unwrap_or(name).strip_prefix(TAGS),
            // With the suffix the commit itself is meant, not the tag.
            Self::Commit { name: Some(name), .. } => {
                name.strip_prefix(TAGS).filter(|name| !name.ends_with(PEELED))
            }
            Self::Commit { name: None, .. } | Self::Branch(_) | Self::Semver(_) => None,
        }
    }

    /// Whether the name has a form that a ref can have at all. A name that has not is never sent.
    #[must_use]
    pub fn is_well_formed(&self) -> bool {
        let tag = || self.tag().map(str::to_owned);
        self.remote_name().or_else(tag).is_none_or(|name| {
            name.len() <= LONGEST_NAME
                && !name.contains(|c: char| c.is_ascii_control() || " ~^:?*[\\".contains(c))
                && !name.contains("..")
        })
    }

    /// The revision of `commit` under this reference: `main@sha1:…`, or `sha1:…` for a commit without a branch.
    #[must_use]
    pub fn revision(&self, commit: Oid) -> String {
        let (recorded, named) = match self {
            Self::Name(name) | Self::Commit { name: Some(name), .. } => (name.clone(), true),
            Self::Branch(name)
            | Self::Commit {
                branch: Some(name), ..
            } => (format!("refs/heads/{name}"), false),
            Self::Tag(name) => (format!("refs/tags/{name}"), false),
            Self::Semver(_) | Self::Commit { .. } => ("HEAD".to_owned(), false),
        };
        Revision::of_commit(&recorded, named, &commit.to_string()).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::protocol::object_id;

    const A: &str = "0123456789abcdef0123456789abcdef01234567";

    fn commit(branch: Option<&str>, name: Option<&str>) -> Reference {
        Reference::Commit {
            commit: A.into(),
            branch: branch.map(Into::into),
            name: name.map(Into::into),
        }
    }

    #[test]
    fn the_most_exact_field_counts() {
        let all = Fields {
            branch: Some("b"),
            tag: Some("t"),
            semver: Some("*"),
            name: Some("refs/pull/1/head"),
            commit: Some(A),
        };
        let without_commit = Fields {
            commit: Some(""),
            ..all
        };
        let without_name = Fields {
            name: None,
            ..without_commit
        };
        let without_tag = Fields {
            tag: Some(""),
            ..without_name
        };
        let without_semver = Fields {
            semver: None,
            ..without_tag
        };
        let cases = [
            (all, commit(Some("b"), Some("refs/pull/1/head"))),
            (
                Fields { branch: None, ..all },
                commit(None, Some("refs/pull/1/head")),
            ),
            (
                Fields {
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
                Fields {
                    branch: Some(""),
                    ..Fields::default()
                },
                Reference::Branch("master".into()),
            ),
            (Fields::default(), Reference::Branch("master".into())),
        ];
        for (fields, wanted) in cases {
            assert_eq!(Reference::resolve(fields), wanted, "{fields:?}");
        }
    }

    #[test]
    fn revisions_name_the_ref_and_the_commit() {
        let id = object_id(A.as_bytes()).unwrap();
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
    fn tags_are_known_by_whichever_field_names_them() {
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
    fn names_that_no_ref_has_are_told_apart() {
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

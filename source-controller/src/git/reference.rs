//! Which commit an object asks for, and how its revision is written.

use git2::Oid;
use sluice_api::revision::Revision;

/// Longest ref name that is sent, in bytes; Git's own limit is that of a path.
const LONGEST_NAME: usize = 1024;

/// The ref that an object follows. Of several fields of `spec.ref` the most exact one counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reference {
    /// The head of a branch.
    Branch(String),
    /// The commit that a tag leads to.
    Tag(String),
    /// One commit, whatever refs say.
    Commit {
        /// The full object name, as the user wrote it.
        commit: String,
        /// The branch that the revision names; it does not decide which commit is taken.
        branch: Option<String>,
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

/// A field that would decide, and is not built yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("spec.ref.{0} is not supported yet")]
pub struct UnsupportedField(pub &'static str);

impl Reference {
    /// The reference that counts: `commit`, then `name`, `tag`, `semver`, `branch`, and the branch `master` without
    /// any of them. (Flux's documentation puts `semver` before `tag`; its code does not.)
    ///
    /// # Errors
    /// A field that would have a part in the revision is not built yet.
    pub fn resolve(fields: Fields<'_>) -> Result<Self, UnsupportedField> {
        let set = |field: Option<&str>| field.filter(|text| !text.is_empty()).map(str::to_owned);
        if set(fields.name).is_some() {
            return Err(UnsupportedField("name"));
        }
        let branch = set(fields.branch);
        if let Some(commit) = set(fields.commit) {
            return Ok(Self::Commit { commit, branch });
        }
        if let Some(tag) = set(fields.tag) {
            return Ok(Self::Tag(tag));
        }
        if set(fields.semver).is_some() {
            return Err(UnsupportedField("semver"));
        }
        Ok(Self::Branch(branch.unwrap_or_else(|| "master".to_owned())))
    }

    /// The ref to look up at the remote; none where a commit is named outright.
    #[must_use]
    pub fn remote_name(&self) -> Option<String> {
        match self {
            Self::Branch(branch) => Some(format!("refs/heads/{branch}")),
            Self::Tag(tag) => Some(format!("refs/tags/{tag}")),
            Self::Commit { .. } => None,
        }
    }

    /// Whether the name has a form that a ref can have at all. A name that has not is never sent.
    #[must_use]
    pub fn is_well_formed(&self) -> bool {
        let name = match self {
            Self::Branch(name) | Self::Tag(name) => name,
            Self::Commit { commit, .. } => commit,
        };
        name.len() <= LONGEST_NAME
            && !name.contains(|c: char| c.is_ascii_control() || " ~^:?*[\\".contains(c))
            && !name.contains("..")
    }

    /// The revision of `commit` under this reference: `main@sha1:…`, or `sha1:…` for a commit without a branch.
    #[must_use]
    pub fn revision(&self, commit: Oid) -> String {
        let recorded = match self {
            Self::Branch(name)
            | Self::Commit {
                branch: Some(name), ..
            } => format!("refs/heads/{name}"),
            Self::Tag(name) => format!("refs/tags/{name}"),
            Self::Commit { branch: None, .. } => "HEAD".to_owned(),
        };
        Revision::of_commit(&recorded, false, &commit.to_string()).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::protocol::object_id;

    const A: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn the_most_exact_field_counts() {
        let all = Fields {
            branch: Some("b"),
            tag: Some("t"),
            semver: Some("*"),
            name: None,
            commit: Some(A),
        };
        let pinned = |branch: Option<&str>| Reference::Commit {
            commit: A.into(),
            branch: branch.map(Into::into),
        };
        let cases = [
            (all, Ok(pinned(Some("b")))),
            (Fields { branch: None, ..all }, Ok(pinned(None))),
            (
                Fields {
                    name: Some("refs/pull/1/head"),
                    ..all
                },
                Err(UnsupportedField("name")),
            ),
            (Fields { commit: None, ..all }, Ok(Reference::Tag("t".into()))),
            (
                Fields {
                    commit: Some(""),
                    tag: Some(""),
                    ..all
                },
                Err(UnsupportedField("semver")),
            ),
            (
                Fields {
                    branch: Some("b"),
                    ..Fields::default()
                },
                Ok(Reference::Branch("b".into())),
            ),
            (
                Fields {
                    branch: Some(""),
                    name: Some(""),
                    ..Fields::default()
                },
                Ok(Reference::Branch("master".into())),
            ),
            (Fields::default(), Ok(Reference::Branch("master".into()))),
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
                Reference::Commit {
                    commit: A.into(),
                    branch: None,
                },
                format!("sha1:{A}"),
            ),
            (
                Reference::Commit {
                    commit: A.into(),
                    branch: Some("b".into()),
                },
                format!("b@sha1:{A}"),
            ),
        ];
        for (reference, revision) in cases {
            assert_eq!(reference.revision(id), revision);
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

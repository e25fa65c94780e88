//! The stores of the embedded API.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use sluice_embedded::{GitOptions, StatusLocation, Store};

/// Where an embedded API keeps its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StoreType {
    /// In memory.
    Memory,
    /// In a file.
    File,
    /// On a branch of a bare repository, and Secrets and other local kinds in a file.
    Git,
}

impl StoreType {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Memory, Self::File, Self::Git];

    /// Returns its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::File => "file",
            Self::Git => "git",
        }
    }

    /// Creates an empty store below a directory. `definitions` are those of the server.
    pub(crate) fn open(self, dir: &Path, definitions: &[CustomResourceDefinition]) -> Store {
        match self {
            Self::Memory => Store::memory(),
            Self::File => Store::file(dir.join("objects.redb")).unwrap(),
            Self::Git => {
                let repository = dir.join("objects.git");
                let created = Command::new("git")
                    .args(["init", "--quiet", "--bare", "--initial-branch=main"])
                    .arg(&repository)
                    .status();
                assert!(created.unwrap().success(), "git init");
                let options = GitOptions {
                    repository,
                    remote: None,
                    branch: "main".to_owned(),
                    status: StatusLocation::default(),
                    subdir: String::new(),
                    interval: Duration::from_secs(30),
                    signing_key: None,
                    shared: BTreeSet::new(),
                    local: dir.join("local.redb"),
                };
                Store::git(options, definitions).unwrap()
            }
        }
    }
}

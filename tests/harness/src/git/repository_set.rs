//! Many small repositories with one object store. A few calls of `git` create all of them.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use super::repository::{AUTHOR, EMAIL, GitError, Repository};

/// The date of each commit, in seconds since 1970.
const DATE: u64 = 1_700_000_000;

/// Bare repositories with one commit each on branch `main`. They are removed with the value.
#[derive(Debug)]
pub struct RepositorySet {
    /// Has the objects of all of them, and a branch for each.
    store: Repository,
    count: usize,
}

impl RepositorySet {
    /// Creates `count` repositories with one file each, whose contents depend on the number of the repository.
    ///
    /// # Errors
    /// When `git` is missing or fails, or a file cannot be written.
    pub fn create(count: usize, file: &str, contents: impl Fn(usize) -> String) -> Result<Self, GitError> {
        let store = Repository::create()?;
        let mut stream = String::new();
        for number in 0..count {
            write_commit(&mut stream, number, file, &contents(number));
        }
        store.import(&stream)?;
        let set = Self { store, count };
        let format = "--format=%(refname:lstrip=2) %(objectname)";
        for line in set.store.git(["for-each-ref", format, "refs/heads"])?.lines() {
            if let Some((number, commit)) = line.split_once(' ') {
                set.write_repository(&set.path(number), commit)?;
            }
        }
        Ok(set)
    }

    /// Returns the folders of the repositories in their order.
    pub fn git_dirs(&self) -> impl Iterator<Item = PathBuf> + '_ {
        (0..self.count).map(|number| self.path(&number.to_string()))
    }

    fn path(&self, number: &str) -> PathBuf {
        self.store
            .path()
            .join("repositories")
            .join(format!("{number}.git"))
    }

    /// Writes a bare repository that has one branch and borrows its objects.
    fn write_repository(&self, path: &Path, commit: &str) -> Result<(), GitError> {
        let objects = self.store.git_dir().join("objects");
        let write = || -> io::Result<()> {
            std::fs::create_dir_all(path.join("objects/info"))?;
            std::fs::create_dir_all(path.join("refs/heads"))?;
            let alternates = format!("{}\n", objects.display());
            std::fs::write(path.join("objects/info/alternates"), alternates)?;
            std::fs::write(path.join("refs/heads/main"), format!("{commit}\n"))?;
            std::fs::write(path.join("HEAD"), "ref: refs/heads/main\n")?;
            let config = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n";
            std::fs::write(path.join("config"), config)
        };
        write().map_err(|source| GitError::File {
            path: path.to_owned(),
            source,
        })
    }
}

/// Adds a commit to the input of `git fast-import`, on a branch whose name is the number.
fn write_commit(stream: &mut String, number: usize, file: &str, contents: &str) {
    let (size, message) = (contents.len(), "First");
    // Writing to a String cannot fail.
    let _infallible = write!(
        stream,
        "commit refs/heads/{number}\ncommitter {AUTHOR} <{EMAIL}> {DATE} +0000\ndata {}\n{message}\n\
         M 100644 inline {file}\ndata {size}\n{contents}\n",
        message.len()
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::GitServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn each_repository_is_cloned_with_its_own_contents() {
        let set = RepositorySet::create(12, "main.tf", |number| format!("# {number}\n")).unwrap();
        let (server, clones) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
        let mut commits = Vec::new();
        for (number, git_dir) in set.git_dirs().enumerate() {
            let (name, url) = (
                format!("clone{number}"),
                server.serve_git_dir(&format!("r{number}"), &git_dir),
            );
            clones.git(["clone", "--quiet", &url, &name]).unwrap();
            let text = std::fs::read_to_string(clones.path().join(&name).join("main.tf")).unwrap();
            assert_eq!(text, format!("# {number}\n"));
            let shown = clones
                .git(["-C", &name, "for-each-ref", "--format=%(refname)"])
                .unwrap();
            assert_eq!(
                shown
                    .lines()
                    .filter(|name| !name.contains("HEAD"))
                    .collect::<Vec<_>>(),
                ["refs/heads/main", "refs/remotes/origin/main"],
                "a client sees no branch of another repository"
            );
            commits.push(clones.git(["-C", &name, "rev-parse", "HEAD"]).unwrap());
        }
        commits.sort();
        commits.dedup();
        assert_eq!(commits.len(), 12);
    }
}

//! `sluice up` with the repository of all stacks, for the parts that start the CLI.

use std::path::Path;

use sluice_harness::git::{GitServer, Repository};
use sluice_tests::BoxError;
use sluice_tests::program::{Program, Setup};
use tempfile::TempDir;

use crate::stacks::{self, Stacks};

/// The program with its source. Everything ends with the value, or with [`Environment::end`].
pub(crate) struct Environment {
    pub(crate) program: Program,
    pub(crate) repository: Repository,
    pub(crate) stacks: Stacks,
    _server: GitServer,
    folder: TempDir,
}

impl Environment {
    /// Starts the program in memory with a repository of `modules` small modules.
    pub(crate) async fn start(modules: usize) -> Result<Self, BoxError> {
        let repository = Repository::create()?;
        stacks::write(&repository, modules)?;
        Self::serve(repository).await
    }

    /// Starts the program in memory with this repository.
    pub(crate) async fn serve(repository: Repository) -> Result<Self, BoxError> {
        let server = GitServer::start().await?;
        let folder = tempfile::tempdir()?;
        let setup = Setup::new(folder.path()).without_state();
        setup.write(&[("source.yaml", stacks::source(&server.serve("bench", &repository)))])?;
        let program = Program::start(setup).await?;
        Ok(Self {
            stacks: Stacks::new(&program.client()),
            program,
            repository,
            _server: server,
            folder,
        })
    }

    /// Returns the folder of its files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends the program.
    pub(crate) async fn end(self) -> Result<(), BoxError> {
        self.program.end().await
    }
}

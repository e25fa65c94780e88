//! Git for the tests: repositories created by the real `git` and served by the real `git http-backend`.

pub mod pack;
mod repository;
mod repository_set;
mod server;

pub use repository::{GitError, Repository, run_git};
pub use repository_set::RepositorySet;
pub use server::{Fault, Gate, GitServer, Injection, Request, Scope, ServeError, Step};

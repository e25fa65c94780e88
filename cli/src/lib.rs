//! The command line of Sluice: what a user sees of sources, stacks and runs, and what a user decides about them.
//!
//! A command reads objects ([`cluster`]), builds a view of them without effects ([`stack`], [`run`]), and prints it ([`output`]).
//! Standard output has data only; questions, progress and errors go to standard error. The exit code is an [`ExitStatus`].

mod api_table;
pub mod change;
pub mod cluster;
pub mod command;
mod connection;
mod error;
mod file;
#[cfg(test)]
mod fixture;
pub mod manifest;
pub mod object;
pub mod output;
mod permission;
pub mod run;
pub mod run_row;
pub mod stack;
pub mod wait;

pub use command::state::{StateCommand, current_state};
pub use command::{BeginCommand, Command, begin, execute, execute_state, finish};
pub use error::{CliError, ExitStatus};

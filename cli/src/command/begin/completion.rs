//! `sluice completion`: a script that completes commands and flags in a shell.

use clap_complete::generate;

use crate::output::Console;
use crate::{CliError, ExitStatus};

/// The name of the program that is completed.
const PROGRAM: &str = "sluice";

/// Arguments of `sluice completion`.
#[derive(clap::Args, Debug)]
pub struct CompletionArgs {
    /// The shell.
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

/// The shells with a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Prints the script of a shell.
pub(super) fn completion(
    args: &CompletionArgs,
    tree: clap::Command,
    console: Console,
) -> Result<ExitStatus, CliError> {
    console.data(&script(args.shell, tree)?)?;
    Ok(ExitStatus::Success)
}

fn script(shell: Shell, mut tree: clap::Command) -> Result<String, CliError> {
    let mut script = Vec::new();
    let generator = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    generate(generator, &mut tree, PROGRAM, &mut script);
    String::from_utf8(script).map_err(|error| CliError::Format(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_has_a_script_with_commands_and_flags() {
        let tree = || {
            let flag = clap::Arg::new("all-namespaces").long("all-namespaces");
            clap::Command::new(PROGRAM).subcommand(clap::Command::new("status").arg(flag))
        };
        for (shell, beginning) in [
            (Shell::Bash, "_sluice()"),
            (Shell::Zsh, "#compdef sluice"),
            (Shell::Fish, "complete -c sluice"),
        ] {
            let script = script(shell, tree()).unwrap();
            for part in [beginning, "status", "all-namespaces"] {
                assert!(script.contains(part), "{shell:?}: no {part} in {script}");
            }
        }
    }
}

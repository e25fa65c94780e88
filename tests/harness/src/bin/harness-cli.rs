//! `harness-cli` prints the CLI of the suites, as selected by `SLUICE_CLI`, and its version.

use std::io::Write;
use std::process::ExitCode;

use sluice_harness::cli;

fn main() -> ExitCode {
    let found = match cli::terraform() {
        Ok(found) => found,
        Err(error) => {
            eprintln!("harness-cli: {error}");
            return ExitCode::FAILURE;
        }
    };
    let Some(version) = cli::version(&found) else {
        eprintln!("harness-cli: {} does not report its version", found.display());
        return ExitCode::FAILURE;
    };
    let name = found.file_name().unwrap_or_default().display();
    let written = writeln!(std::io::stdout(), "{name} {version} ({})", found.display());
    if written.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

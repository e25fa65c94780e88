//! `harness-build NAME…` builds the named programs from their pinned Go modules and prints their paths.

use std::io::Write;
use std::process::ExitCode;

use sluice_harness::gobuild::{Tool, build};

fn main() -> ExitCode {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let known = Tool::ALL.map(Tool::name).join(" ");
    if names.is_empty() {
        eprintln!("usage: harness-build NAME…   (of: {known})");
        return ExitCode::from(2);
    }
    for name in names {
        let Some(tool) = Tool::named(&name) else {
            eprintln!("harness-build: unknown program {name} (known: {known})");
            return ExitCode::from(2);
        };
        match build(tool, &mut |line| eprintln!("{line}")) {
            Ok(path) => drop(writeln!(std::io::stdout(), "{}", path.display())),
            Err(error) => {
                eprintln!("harness-build: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

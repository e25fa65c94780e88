//! `compatibility DOCUMENT LOG`: fails unless every test that the document's tables name is in the log as passed.

use std::process::ExitCode;

use sluice_tests::Failed;
use sluice_tests::compatibility::{Claim, outcomes, problems, rows};

fn main() -> ExitCode {
    match check() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("compatibility: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Checks, says what came of it, and gives the number of problems.
fn check() -> Result<usize, Failed> {
    let mut arguments = std::env::args().skip(1);
    let (Some(document), Some(log)) = (arguments.next(), arguments.next()) else {
        return Err("usage: compatibility DOCUMENT LOG".into());
    };
    let read = |path: &str| std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let rows = rows(&read(&document)?).map_err(|problem| format!("{document}: {problem}"))?;
    let problems = problems(&rows, &outcomes(&read(&log)?));
    for problem in &problems {
        eprintln!("{document}: {problem}");
    }
    let count = |claim: Claim| rows.iter().filter(|row| row.claim == claim).count();
    eprintln!(
        "{document}: {} cases: {} pass, {} differ on purpose, {} not yet, {} do not apply; {} problems",
        rows.len(),
        count(Claim::Passes),
        count(Claim::Differs),
        count(Claim::NotYet),
        count(Claim::DoesNotApply),
        problems.len()
    );
    Ok(problems.len())
}

//! `compatibility LOG DOCUMENT…` fails unless every test in the documents' tables has passed according to the log.

use std::collections::BTreeMap;
use std::process::ExitCode;

use sluice_tests::BoxError;
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

fn read(path: &str) -> Result<String, BoxError> {
    Ok(std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?)
}

/// Checks every document; returns the number of problems.
fn check() -> Result<usize, BoxError> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [log, documents @ ..] = &arguments[..] else {
        return Err("usage: compatibility LOG DOCUMENT...".into());
    };
    if documents.is_empty() {
        return Err("no document is given".into());
    }
    let outcomes = outcomes(&read(log)?);
    let mut found = 0;
    for document in documents {
        found += check_one(document, &outcomes)?;
    }
    Ok(found)
}

/// Checks one document and prints a summary; returns the number of problems.
fn check_one(document: &str, outcomes: &BTreeMap<String, String>) -> Result<usize, BoxError> {
    let rows = rows(&read(document)?).map_err(|problem| format!("{document}: {problem}"))?;
    let problems = problems(&rows, outcomes);
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

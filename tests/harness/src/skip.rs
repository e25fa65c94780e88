//! Tests that cannot run on this machine: each prints a line, `make` repeats the lines at its end, and under `CI` it is an error.

use std::fs::OpenOptions;
use std::io::{self, Write};

/// The environment variable that names the file with the list of skipped tests; `make` sets it.
const LIST_VARIABLE: &str = "SLUICE_SKIPPED";

/// Why a test cannot be skipped.
#[derive(Debug, thiserror::Error)]
pub enum SkipError {
    /// Tests must not be skipped under `CI`.
    #[error("{test} is skipped ({reason}), but CI is set, which forbids skipped tests")]
    Forbidden {
        /// The test.
        test: String,
        /// Why it cannot run.
        reason: String,
    },
    /// The list cannot be written.
    #[error("{LIST_VARIABLE}={path}: {source}")]
    List {
        /// The file.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
}

/// Whether the environment sets `CI`.
#[must_use]
pub fn is_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

/// Records that the current test is skipped; `reason` is a few words on one line.
///
/// # Errors
/// Under `CI`, and when the list cannot be written.
pub fn skip(reason: &str) -> Result<(), SkipError> {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    record(
        &test,
        reason,
        is_ci(),
        std::env::var(LIST_VARIABLE).ok().as_deref(),
    )
}

/// Skips the current test, which needs the built kube-apiserver, if `SLUICE_CLUSTER=0`. Returns whether it is skipped.
///
/// # Errors
/// As [`skip`].
pub fn without_cluster() -> Result<bool, SkipError> {
    let disabled = std::env::var("SLUICE_CLUSTER").is_ok_and(|value| value == "0");
    if disabled {
        skip("SLUICE_CLUSTER=0, but it needs the built kube-apiserver")?;
    }
    Ok(disabled)
}

fn record(test: &str, reason: &str, ci: bool, list: Option<&str>) -> Result<(), SkipError> {
    let (test, reason) = (test.to_owned(), reason.to_owned());
    if ci {
        return Err(SkipError::Forbidden { test, reason });
    }
    let line = format!("skipped: {test}: {reason}\n");
    eprint!("{line}");
    let Some(path) = list else { return Ok(()) };
    let file = OpenOptions::new().create(true).append(true).open(path);
    // A single write, so that lines of two test processes do not mix.
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .map_err(|source| SkipError::List {
            path: path.to_owned(),
            source,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_test_is_listed_and_is_an_error_under_ci() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("skipped").display().to_string();
        record("one", "no kubectl", false, Some(&list)).unwrap();
        record("two", "no sshd", false, Some(&list)).unwrap();
        record("three", "no gpg", false, None).unwrap();
        let error = record("four", "no gpg", true, Some(&list)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "four is skipped (no gpg), but CI is set, which forbids skipped tests"
        );
        assert_eq!(
            std::fs::read_to_string(&list).unwrap(),
            "skipped: one: no kubectl\nskipped: two: no sshd\n"
        );
    }
}

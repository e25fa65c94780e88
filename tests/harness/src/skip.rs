//! Tests that cannot run on this machine. Each says so, `make` repeats it in its last lines, and under `CI` it is a failure.

use std::fs::OpenOptions;
use std::io::{self, Write};

/// The environment's word for the file that collects what was skipped; `make` names it.
const LIST: &str = "SLUICE_SKIPPED";

/// A test may not be skipped, or it cannot be said that it was.
#[derive(Debug, thiserror::Error)]
pub enum SkipError {
    /// Under `CI` nothing is skipped.
    #[error("{test} is skipped ({reason}), and CI is set: nothing may be skipped there")]
    Forbidden {
        /// The test.
        test: String,
        /// Why it cannot run.
        reason: String,
    },
    /// The list cannot be written.
    #[error("{LIST}={path}: {source}")]
    List {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Whether the environment says `CI`.
#[must_use]
pub fn is_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

/// Says that the test of this thread is skipped, and why, in a few words on one line.
///
/// # Errors
/// Under `CI`, and when the list that the environment names cannot be written.
pub fn skip(reason: &str) -> Result<(), SkipError> {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    record(&test, reason, is_ci(), std::env::var(LIST).ok().as_deref())
}

/// Whether the test of this thread, which needs the built kube-apiserver, is skipped: `SLUICE_CLUSTER=0` asks for that.
///
/// # Errors
/// As [`skip`].
pub fn without_cluster() -> Result<bool, SkipError> {
    let off = std::env::var("SLUICE_CLUSTER").is_ok_and(|value| value == "0");
    if off {
        skip("SLUICE_CLUSTER=0, and it needs the built kube-apiserver")?;
    }
    Ok(off)
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
    // One write, so that lines of two test processes do not mix.
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
        let refused = record("four", "no gpg", true, Some(&list)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "four is skipped (no gpg), and CI is set: nothing may be skipped there"
        );
        assert_eq!(
            std::fs::read_to_string(&list).unwrap(),
            "skipped: one: no kubectl\nskipped: two: no sshd\n"
        );
    }
}

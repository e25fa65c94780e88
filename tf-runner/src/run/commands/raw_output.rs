//! What a command said, word for word, as it stood before it was cleaned of what nobody may read: decisions are made on it. A
//! value of a Secret may be a word of the CLI's own or the name of a lock's holder, and where there are too many values nothing
//! is left of a text that is cleaned. None of it is ever shown or told: there is no way to print it.

use std::fmt;
use std::path::Path;

use sluice_api::run::LockInfo;

use crate::run::workdir;
use sluice_tf_core::cli::lock;
use sluice_tf_core::cli::process::tail;
use sluice_tf_core::cli::text::strip_formatting;

/// Most that a command said that began nothing: a line.
const SAID_LIMIT: u64 = 64 * 1024;
/// What a command says while it waits for a state lock.
const WAITS: &str = "Acquiring state lock";
/// What it says where it takes long to give one back.
const RELEASES: &str = "Releasing state lock";
/// Ends what a command says as it begins a step: `terraform_data.it: Creating...`.
const STEP: &str = "ing...";

/// The words of a command that has ended.
pub struct RawOutput {
    /// The end of its error output; `None` where that cannot be read.
    errors: Option<String>,
    /// It has said nothing but that it waits for the lock.
    told_of_nothing: bool,
    /// It has said that a step begins, or more than is read.
    told_of_a_step: bool,
}

impl RawOutput {
    /// Reads them from the files of its output, before these are cleaned.
    pub(crate) fn read(stdout: &Path, stderr: &Path) -> Self {
        let said = workdir::read_limited(stdout, SAID_LIMIT);
        let said = said
            .map(|said| strip_formatting(&String::from_utf8_lossy(&said)))
            .ok();
        Self {
            errors: tail(stderr).ok(),
            told_of_nothing: said.as_deref().is_some_and(told_of_nothing),
            told_of_a_step: said.as_deref().is_none_or(told_of_a_step),
        }
    }

    /// Whether this is so of its error output.
    pub(crate) fn is(&self, so: impl FnOnce(&str) -> bool) -> bool {
        self.errors.as_deref().is_some_and(so)
    }

    /// Whether it has told of no step: what is not known has begun.
    pub(crate) const fn told_of_nothing(&self) -> bool {
        self.told_of_nothing
    }

    /// Whether it has told of a step, or may have.
    pub(crate) const fn told_of_a_step(&self) -> bool {
        self.told_of_a_step
    }

    /// Whether it speaks of a lock, or might.
    pub(crate) fn may_be_about_a_lock(&self) -> bool {
        self.errors.as_deref().is_none_or(lock::mentions_lock)
    }

    /// The lock that it met. Whoever tells of it hides what is to be hidden.
    pub(crate) fn lock(&self) -> Option<LockInfo> {
        let held = lock::parse(self.errors.as_deref()?)?;
        Some(LockInfo {
            id: held.id,
            who: held.who,
            created: held.created,
            operation: held.operation,
        })
    }
}

impl fmt::Debug for RawOutput {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("RawOutput")
    }
}

fn told_of_nothing(said: &str) -> bool {
    said.lines()
        .all(|line| line.trim().is_empty() || line.starts_with(WAITS))
}

fn told_of_a_step(said: &str) -> bool {
    let of_the_lock = |line: &str| line.starts_with(WAITS) || line.starts_with(RELEASES);
    said.lines().any(|line| line.contains(STEP) && !of_the_lock(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_apply_that_told_of_a_step_has_begun() {
        let dir = tempfile::tempdir().unwrap();
        let told = |text: &str| {
            let file = dir.path().join("out");
            std::fs::write(&file, text).unwrap();
            let told = RawOutput::read(&file, &file);
            (told.told_of_nothing(), told.told_of_a_step())
        };
        let waits = "\nAcquiring state lock. This may take a few moments...\n";
        for nothing in ["", waits] {
            assert_eq!(told(nothing), (true, false), "{nothing}");
        }
        let releases = format!("{waits}Releasing state lock. This may take a few moments...\n");
        for remark in [
            releases.as_str(),
            "Warning: Deprecated Parameter\n\nUse use_lockfile.\n",
        ] {
            assert_eq!(told(remark), (false, false), "{remark}");
        }
        let begun = (false, true);
        assert_eq!(told("terraform_data.it: Creating...\n"), begun);
        assert_eq!(
            told(&"\n".repeat(100_000)),
            begun,
            "what says more than is read has begun"
        );
        let none = dir.path().join("none");
        let unknown = RawOutput::read(&none, &none);
        assert!(
            !unknown.told_of_nothing() && unknown.told_of_a_step(),
            "and so has what is not known"
        );
    }

    #[test]
    fn what_cannot_be_read_may_be_about_a_lock_and_nothing_is_printed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("err");
        let unknown = RawOutput::read(&file, &file);
        assert!(unknown.may_be_about_a_lock() && !unknown.is(|_| true) && unknown.lock().is_none());
        std::fs::write(&file, "hunter2").unwrap();
        let known = RawOutput::read(&file, &file);
        assert!(!known.may_be_about_a_lock() && known.is(|text| text == "hunter2"));
        assert_eq!(format!("{known:?}"), "RawOutput");
    }
}

//! The output of a command before redaction. Decisions are made on it, because redaction may replace the CLI's own words, the
//! holder of a lock, or the entire text. It is never printed or logged.

use std::fmt;
use std::path::Path;

use sluice_api::run::LockInfo;
use sluice_tf_core::cli::lock;
use sluice_tf_core::cli::process::tail;
use sluice_tf_core::cli::text::strip_formatting;
use sluice_tf_core::workdir::read_limited;

/// Maximum number of bytes of standard output that are read. A command that reports no step prints less.
const STDOUT_LIMIT: u64 = 64 * 1024;
/// Printed while the CLI waits for a state lock.
const LOCK_WAIT: &str = "Acquiring state lock";
/// Printed when the release of a state lock takes long.
const LOCK_RELEASE: &str = "Releasing state lock";
/// The end of the line that reports the start of a step: `terraform_data.it: Creating...`.
const STEP_SUFFIX: &str = "ing...";

/// The output of a command that has ended.
pub(crate) struct RawOutput {
    /// The end of its error output; `None` if that cannot be read.
    errors: Option<String>,
    reports_nothing: bool,
    may_report_a_step: bool,
}

impl RawOutput {
    /// Reads the output files before they are redacted.
    pub(crate) fn read(stdout: &Path, stderr: &Path) -> Self {
        let output = read_limited(stdout, STDOUT_LIMIT);
        let output = output
            .map(|bytes| strip_formatting(&String::from_utf8_lossy(&bytes)))
            .ok();
        Self {
            errors: tail(stderr).ok(),
            reports_nothing: output.as_deref().is_some_and(reports_nothing),
            may_report_a_step: output.as_deref().is_none_or(reports_a_step),
        }
    }

    /// Whether the error output is readable and matches.
    pub(crate) fn errors_match(&self, predicate: impl FnOnce(&str) -> bool) -> bool {
        self.errors.as_deref().is_some_and(predicate)
    }

    /// Whether the output is certain to report nothing but the wait for the lock.
    pub(crate) const fn reports_nothing(&self) -> bool {
        self.reports_nothing
    }

    /// Whether the output reports the start of a step, or is too long or unreadable.
    pub(crate) const fn may_report_a_step(&self) -> bool {
        self.may_report_a_step
    }

    /// Whether the error output mentions a lock, or is unreadable.
    pub(crate) fn may_mention_lock(&self) -> bool {
        self.errors.as_deref().is_none_or(lock::mentions_lock)
    }

    /// The lock that the command met. The caller redacts it before it reports it.
    pub(crate) fn lock(&self) -> Option<LockInfo> {
        let found = lock::parse(self.errors.as_deref()?)?;
        Some(LockInfo {
            id: found.id,
            who: found.who,
            created: found.created,
            operation: found.operation,
        })
    }
}

impl fmt::Debug for RawOutput {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("RawOutput")
    }
}

fn reports_nothing(output: &str) -> bool {
    output
        .lines()
        .all(|line| line.trim().is_empty() || line.starts_with(LOCK_WAIT))
}

fn reports_a_step(output: &str) -> bool {
    let is_about_lock = |line: &str| line.starts_with(LOCK_WAIT) || line.starts_with(LOCK_RELEASE);
    output
        .lines()
        .any(|line| line.contains(STEP_SUFFIX) && !is_about_lock(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_apply_with_a_reported_step_has_begun() {
        let dir = tempfile::tempdir().unwrap();
        let reports = |text: &str| {
            let file = dir.path().join("out");
            std::fs::write(&file, text).unwrap();
            let output = RawOutput::read(&file, &file);
            (output.reports_nothing(), output.may_report_a_step())
        };
        let waits = "\nAcquiring state lock. This may take a few moments...\n";
        for nothing in ["", waits] {
            assert_eq!(reports(nothing), (true, false), "{nothing}");
        }
        let releases = format!("{waits}Releasing state lock. This may take a few moments...\n");
        for remark in [
            releases.as_str(),
            "Warning: Deprecated Parameter\n\nUse use_lockfile.\n",
        ] {
            assert_eq!(reports(remark), (false, false), "{remark}");
        }
        let begun = (false, true);
        assert_eq!(reports("terraform_data.it: Creating...\n"), begun);
        assert_eq!(
            reports(&"\n".repeat(100_000)),
            begun,
            "what says more than is read has begun"
        );
        let none = dir.path().join("none");
        let unknown = RawOutput::read(&none, &none);
        assert!(
            !unknown.reports_nothing() && unknown.may_report_a_step(),
            "and so has what is not known"
        );
    }

    #[test]
    fn unreadable_output_may_mention_a_lock_and_is_not_printed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("err");
        let unknown = RawOutput::read(&file, &file);
        assert!(unknown.may_mention_lock() && !unknown.errors_match(|_| true) && unknown.lock().is_none());
        std::fs::write(&file, "hunter2").unwrap();
        let known = RawOutput::read(&file, &file);
        assert!(!known.may_mention_lock() && known.errors_match(|text| text == "hunter2"));
        assert_eq!(format!("{known:?}"), "RawOutput");
    }
}

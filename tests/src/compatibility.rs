//! Compares the tables of `docs/contributing/compatibility*.md`, `docs/security.md` and `docs/reference/benchmarks.md` with the output of the
//! tests: every test in a row must exist, run and pass.

use std::collections::BTreeMap;
use std::fmt;

/// The claim of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Behaves as upstream's case expects.
    Passes,
    /// Differs on purpose; the test shows how.
    Differs,
    /// Not implemented.
    NotYet,
    /// Has no counterpart here.
    DoesNotApply,
}

/// One row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Line in the document, from 1.
    pub line: usize,
    /// Upstream's test and case.
    pub case: String,
    /// Our tests: `<test binary>::<path of the test>`.
    pub tests: Vec<String>,
    /// The claim.
    pub claim: Claim,
}

/// A false or malformed row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line in the document, from 1; 0 for the document as a whole.
    pub line: usize,
    /// The error.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

/// The columns of tables of cases.
const CASES: &[&str] = &["Row", "Case", "Test", "Result"];
/// The columns of tables of guarantees.
const GUARANTEES: &[&str] = &["Statement", "Shown by"];

/// Reads the tables with the columns Row, Case, Test, Result and those with the columns Statement, Shown by. A row names its
/// tests in backquotes. The result of a case begins with `passes`, `differs`, `not yet` or `does not apply`; a guarantee needs at
/// least one test.
///
/// # Errors
/// A malformed row, or a document without a table.
pub fn rows(document: &str) -> Result<Vec<Row>, Problem> {
    let mut rows = Vec::new();
    let mut within = None;
    for (line, text) in (1..).zip(document.lines()) {
        let cells = cells(text);
        if let Some(columns) = [CASES, GUARANTEES].into_iter().find(|columns| cells == **columns) {
            within = Some(columns);
        } else if !text.starts_with('|') {
            within = None;
        } else if let Some(columns) = within.filter(|_| !text.starts_with("|---")) {
            rows.push(if columns == CASES {
                case(line, &cells)?
            } else {
                guarantee(line, &cells)?
            });
        }
    }
    if rows.is_empty() {
        let message = "no table with the columns Row, Case, Test, Result or Statement, Shown by".to_owned();
        return Err(Problem { line: 0, message });
    }
    Ok(rows)
}

/// Splits a table line into cells; `\\|` within a cell is not a border.
fn cells(line: &str) -> Vec<String> {
    let line = line.replace("\\|", "\u{1}");
    let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
    inner
        .split('|')
        .map(|cell| cell.trim().replace('\u{1}', "|"))
        .collect()
}

/// Returns the texts in backquotes.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn guarantee(line: usize, cells: &[String]) -> Result<Row, Problem> {
    let [sentence, shown] = cells else {
        let message = "the row must have two cells".to_owned();
        return Err(Problem { line, message });
    };
    let tests = quoted(shown);
    if tests.is_empty() {
        let message = "the row names no test".to_owned();
        return Err(Problem { line, message });
    }
    Ok(Row {
        line,
        case: sentence.clone(),
        tests,
        claim: Claim::Passes,
    })
}

fn case(line: usize, cells: &[String]) -> Result<Row, Problem> {
    let problem = |message: &str| Problem {
        line,
        message: message.to_owned(),
    };
    let [name, case, test, result] = cells else {
        return Err(problem("the row must have four cells"));
    };
    let claims = [
        ("passes", Claim::Passes),
        ("differs", Claim::Differs),
        ("not yet", Claim::NotYet),
        ("does not apply", Claim::DoesNotApply),
    ];
    let claim = claims.iter().find(|(word, _)| result.starts_with(word));
    let (_, claim) = claim.ok_or_else(|| {
        problem("the result must begin with one of: passes, differs, not yet, does not apply")
    })?;
    let tests = quoted(test);
    let shown = matches!(claim, Claim::Passes | Claim::Differs);
    if shown == tests.is_empty() {
        return Err(problem(if shown {
            "the row names no test"
        } else {
            "the row must not name a test"
        }));
    }
    Ok(Row {
        line,
        case: format!("{name}: {case}"),
        tests,
        claim: *claim,
    })
}

/// Parses the output of cargo and the test binaries: the outcome of each test, by `<test binary>::<path>`.
#[must_use]
pub fn outcomes(log: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut binary = String::new();
    for line in log.lines().map(str::trim) {
        if let Some(program) = line
            .strip_prefix("Running ")
            .and_then(|rest| rest.rsplit_once('(')?.1.strip_suffix(')'))
        {
            let file = program.rsplit('/').next().unwrap_or(program);
            let name = file.rsplit_once('-').map_or(file, |(name, _hash)| name);
            name.clone_into(&mut binary);
        } else if let Some((test, outcome)) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.rsplit_once(" ... "))
        {
            found.insert(format!("{binary}::{test}"), outcome.to_owned());
        }
    }
    found
}

/// Returns the rows whose tests did not run or pass.
#[must_use]
pub fn problems(rows: &[Row], outcomes: &BTreeMap<String, String>) -> Vec<Problem> {
    let problem = |row: &Row, test: &String| {
        let message = match outcomes.get(test).map(String::as_str) {
            Some("ok") => return None,
            Some(outcome) => format!("{}: {test} ended with: {outcome}", row.case),
            None => format!("{}: {test} did not run", row.case),
        };
        Some(Problem {
            line: row.line,
            message,
        })
    };
    rows.iter()
        .flat_map(|row| row.tests.iter().filter_map(move |test| problem(row, test)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "   Compiling sluice v0.1.0\n\
        \x20    Running unittests src/lib.rs (target/debug/deps/sluice_api-0a1b2c)\n\
        running 2 tests\n\
        test digest::tests::a ... ok\n\
        test digest::tests::b ... FAILED\n\
        \x20    Running tests/served/main.rs (target/debug/deps/served-ffee)\n\
        test churn::c ... ok\n\
        test churn::d ... ignored, needs a cluster\n";

    fn table(row: &str) -> String {
        format!(
            "# Title\n\n| Row | Case | Test | Result |\n|---|---|---|---|\n{row}\n\n| Other | Table |\n| a | b |\n"
        )
    }

    fn verdict(row: &str) -> String {
        match rows(&table(row)) {
            Err(problem) => problem.to_string(),
            Ok(rows) => problems(&rows, &outcomes(LOG))
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; "),
        }
    }

    #[test]
    fn a_row_is_correct_if_all_its_tests_ran_and_passed() {
        for row in [
            "| x | y | `sluice_api::digest::tests::a` | passes |",
            "| x | y | `sluice_api::digest::tests::a`, `served::churn::c` | differs: [why](differences.md) |",
            "| x | a \\| b | | does not apply: no such thing |",
            "| x | y | | not yet |",
        ] {
            assert_eq!(verdict(row), "", "{row}");
        }
    }

    #[test]
    fn a_row_is_wrong_if_a_test_failed_was_ignored_or_does_not_exist() {
        for (row, expected) in [
            (
                "| x | y | `sluice_api::digest::tests::b` | passes |",
                "line 5: x: y: sluice_api::digest::tests::b ended with: FAILED",
            ),
            (
                "| x | y | `served::churn::d` | passes |",
                "line 5: x: y: served::churn::d ended with: ignored, needs a cluster",
            ),
            (
                "| x | y | `served::churn::e` | passes |",
                "line 5: x: y: served::churn::e did not run",
            ),
            ("| x | y | | passes |", "line 5: the row names no test"),
            (
                "| x | y | `served::churn::c` | not yet |",
                "line 5: the row must not name a test",
            ),
            (
                "| x | y | `served::churn::c` | perhaps |",
                "line 5: the result must begin with one of: passes, differs, not yet, does not apply",
            ),
            ("| x | y |", "line 5: the row must have four cells"),
        ] {
            assert_eq!(verdict(row), expected, "{row}");
        }
    }

    #[test]
    fn a_guarantee_needs_a_test_that_passed() {
        let verdict = |row: &str| {
            let page = format!("| Statement | Shown by |\n|---|---|\n{row}\n");
            rows(&page).map_or_else(
                |problem| problem.to_string(),
                |rows| {
                    problems(&rows, &outcomes(LOG))
                        .iter()
                        .map(ToString::to_string)
                        .collect()
                },
            )
        };
        assert_eq!(verdict("| `a` is kept | `served::churn::c` |"), "");
        assert_eq!(verdict("| a | by hand |"), "line 3: the row names no test");
        assert_eq!(
            verdict("| a | `served::churn::c`, `served::churn::e` |"),
            "line 3: a: served::churn::e did not run"
        );
        assert_eq!(verdict("| a | b | c |"), "line 3: the row must have two cells");
    }

    #[test]
    fn a_document_without_rows_is_a_problem() {
        assert_eq!(rows("# Nothing\n").unwrap_err().line, 0);
    }
}

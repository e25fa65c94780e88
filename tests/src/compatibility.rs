//! The tables of `docs/compatibility*.md` and `docs/security.md` against what the tests printed: every test that a row names
//! exists, ran and passed.

use std::collections::BTreeMap;
use std::fmt;

/// What a row claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// We do what upstream's case asks for.
    Passes,
    /// We do something else, on purpose; the test shows what.
    Differs,
    /// Not built yet.
    NotYet,
    /// There is nothing here that the case could be about.
    DoesNotApply,
}

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Line in the document, from 1.
    pub line: usize,
    /// Upstream's test and its case.
    pub case: String,
    /// Tests of ours: `<test binary>::<path of the test>`.
    pub tests: Vec<String>,
    /// What is claimed.
    pub claim: Claim,
}

/// Something in the table that is not so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line in the document, from 1; 0 for the document as a whole.
    pub line: usize,
    /// What.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// The columns of tables of cases.
const CASES: &[&str] = &["Row", "Case", "Test", "Result"];
/// The columns of tables of promises.
const PROMISES: &[&str] = &["Sentence", "Shown by"];

/// Reads every table with the columns Row, Case, Test, Result, and every one with the columns Sentence, Shown by. A row names
/// its tests in backquotes. A case begins its result with `passes`, `differs`, `not yet` or `does not apply`; a promise is
/// shown by one test at least.
///
/// # Errors
/// A row that cannot be read, or a document without any.
pub fn rows(document: &str) -> Result<Vec<Row>, Problem> {
    let mut rows = Vec::new();
    let mut within = None;
    for (line, text) in (1..).zip(document.lines()) {
        let cells = cells(text);
        if let Some(columns) = [CASES, PROMISES].into_iter().find(|columns| cells == **columns) {
            within = Some(columns);
        } else if !text.starts_with('|') {
            within = None;
        } else if let Some(columns) = within.filter(|_| !text.starts_with("|---")) {
            rows.push(if columns == CASES {
                case(line, &cells)?
            } else {
                promise(line, &cells)?
            });
        }
    }
    if rows.is_empty() {
        let what = "no table with the columns Row, Case, Test, Result or Sentence, Shown by".to_owned();
        return Err(Problem { line: 0, what });
    }
    Ok(rows)
}

/// The cells of a table's line; `\\|` within a cell is no border.
fn cells(line: &str) -> Vec<String> {
    let line = line.replace("\\|", "\u{1}");
    let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
    inner
        .split('|')
        .map(|cell| cell.trim().replace('\u{1}', "|"))
        .collect()
}

/// What stands in backquotes.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn promise(line: usize, cells: &[String]) -> Result<Row, Problem> {
    let [sentence, shown] = cells else {
        let what = "a row has two cells".to_owned();
        return Err(Problem { line, what });
    };
    let tests = quoted(shown);
    if tests.is_empty() {
        let what = "the sentence is shown by no test".to_owned();
        return Err(Problem { line, what });
    }
    Ok(Row {
        line,
        case: sentence.clone(),
        tests,
        claim: Claim::Passes,
    })
}

fn case(line: usize, cells: &[String]) -> Result<Row, Problem> {
    let problem = |what: &str| Problem {
        line,
        what: what.to_owned(),
    };
    let [name, case, test, result] = cells else {
        return Err(problem("a row has four cells"));
    };
    let claims = [
        ("passes", Claim::Passes),
        ("differs", Claim::Differs),
        ("not yet", Claim::NotYet),
        ("does not apply", Claim::DoesNotApply),
    ];
    let claim = claims.iter().find(|(word, _)| result.starts_with(word));
    let (_, claim) = claim
        .ok_or_else(|| problem("the result begins with none of: passes, differs, not yet, does not apply"))?;
    let tests = quoted(test);
    let shown = matches!(claim, Claim::Passes | Claim::Differs);
    if shown == tests.is_empty() {
        return Err(problem(if shown {
            "the row names no test"
        } else {
            "the row names a test that it does not need"
        }));
    }
    Ok(Row {
        line,
        case: format!("{name}: {case}"),
        tests,
        claim: *claim,
    })
}

/// What cargo and the test binaries printed: each test as `<test binary>::<path>`, and its outcome.
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

/// What is wrong with the rows, given what ran.
#[must_use]
pub fn problems(rows: &[Row], outcomes: &BTreeMap<String, String>) -> Vec<Problem> {
    let problem = |row: &Row, test: &String| {
        let what = match outcomes.get(test).map(String::as_str) {
            Some("ok") => return None,
            Some(outcome) => format!("{}: {test} ended with: {outcome}", row.case),
            None => format!("{}: {test} is no test that ran", row.case),
        };
        Some(Problem { line: row.line, what })
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
    fn a_row_stands_when_all_its_tests_ran_and_passed() {
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
    fn a_row_falls_when_a_test_failed_was_ignored_or_is_not_there() {
        for (row, wanted) in [
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
                "line 5: x: y: served::churn::e is no test that ran",
            ),
            ("| x | y | | passes |", "line 5: the row names no test"),
            (
                "| x | y | `served::churn::c` | not yet |",
                "line 5: the row names a test that it does not need",
            ),
            (
                "| x | y | `served::churn::c` | perhaps |",
                "line 5: the result begins with none of: passes, differs, not yet, does not apply",
            ),
            ("| x | y |", "line 5: a row has four cells"),
        ] {
            assert_eq!(verdict(row), wanted, "{row}");
        }
    }

    #[test]
    fn a_promise_is_shown_by_a_test_that_passed() {
        let verdict = |row: &str| {
            let page = format!("| Sentence | Shown by |\n|---|---|\n{row}\n");
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
        assert_eq!(
            verdict("| a | by hand |"),
            "line 3: the sentence is shown by no test"
        );
        assert_eq!(
            verdict("| a | `served::churn::c`, `served::churn::e` |"),
            "line 3: a: served::churn::e is no test that ran"
        );
        assert_eq!(verdict("| a | b | c |"), "line 3: a row has two cells");
    }

    #[test]
    fn a_document_without_rows_is_a_problem() {
        assert_eq!(rows("# Nothing\n").unwrap_err().line, 0);
    }
}

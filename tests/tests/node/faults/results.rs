//! The results of the trials: a row for each, in a file of JSON lines, and the table of the rows. The files of all shards of a sample give
//! one table.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Trial;
use super::fault::pairs;
use super::moment::Moment;

/// The environment variable that names the file; `make chaos` sets it to `chaos-<shard>-of-<shards>.jsonl`.
const FILE_VARIABLE: &str = "SLUICE_RESULTS";
/// The separator between the number of the shard and the number of shards in the name of a file.
const SHARD_SEPARATOR: &str = "-of-";

/// The result of a trial that passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TrialResult {
    /// How many processes, pods, components or objects the fault hit.
    pub(super) hits: usize,
    /// Seconds from the end of the fault until the stack was applied, or its namespace was deleted.
    pub(super) seconds: u64,
    /// Runs beyond those of an undisturbed apply; `None`: the namespace was deleted.
    pub(super) more_runs: Option<usize>,
    /// Resources that no state had.
    pub(super) orphans: usize,
}

impl TrialResult {
    /// Returns the content of a cell of the table.
    fn describe(&self) -> String {
        let mut text = format!("{} s", self.seconds);
        if let Some(more) = self.more_runs {
            let _ = write!(text, ", +{more}");
        }
        match self.orphans {
            0 => {}
            1 => text.push_str(", 1 orphan"),
            more => {
                let _ = write!(text, ", {more} orphans");
            }
        }
        text
    }
}

/// A trial and its result.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    number: usize,
    fault: String,
    moment: String,
    is_manual: bool,
    release: String,
    delay_ms: u64,
    /// The faults of other trials that were caused after its own.
    later: Vec<String>,
    took: Option<TrialResult>,
    /// Why it failed.
    error: Option<String>,
}

impl Row {
    pub(super) fn new(trial: Trial, later: Vec<String>, result: Result<TrialResult, String>) -> Self {
        Self {
            number: trial.number,
            fault: format!("{:?}", trial.fault),
            moment: format!("{:?}", trial.moment),
            is_manual: trial.is_manual,
            release: format!("{:?}", trial.release),
            delay_ms: u64::try_from(trial.delay.as_millis()).unwrap_or(u64::MAX),
            later,
            took: result.as_ref().ok().copied(),
            error: result.err(),
        }
    }

    /// Adds it to the file of the results, if there is one.
    pub(super) fn record(&self) -> io::Result<()> {
        let Ok(path) = std::env::var(FILE_VARIABLE) else {
            return Ok(());
        };
        let mut line = serde_json::to_string(self)?;
        line.push('\n');
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        // One write: trials end at the same time.
        io::Write::write_all(&mut file, line.as_bytes())
    }

    /// Returns what a developer reads about a trial that failed.
    pub(super) fn failure(&self) -> Option<String> {
        let error = self.error.as_ref()?;
        Some(format!(
            "trial {} ({} {}, {}, manual: {}, {} ms): {error}; later faults: {:?}",
            self.number, self.fault, self.moment, self.release, self.is_manual, self.delay_ms, self.later
        ))
    }
}

/// Returns the table of these trials, together with those of the other shards of the sample that are beside the file of the results.
pub(super) fn table_of_all_shards(own: &[Row]) -> io::Result<String> {
    match std::env::var(FILE_VARIABLE) {
        Ok(path) => Ok(table(&rows_of_shards(Path::new(&path))?)),
        Err(_) => Ok(table(own)),
    }
}

/// Returns the rows of the files beside this one whose names end in the same number of shards.
fn rows_of_shards(path: &Path) -> io::Result<Vec<Row>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let Some((_, shards)) = name.split_once(SHARD_SEPARATOR) else {
        return rows(path);
    };
    let suffix = format!("{SHARD_SEPARATOR}{shards}");
    let mut all = Vec::new();
    for entry in fs::read_dir(path.parent().unwrap_or_else(|| Path::new(".")))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().ends_with(&suffix) {
            all.extend(rows(&entry.path())?);
        }
    }
    Ok(all)
}

fn rows(path: &Path) -> io::Result<Vec<Row>> {
    let text = fs::read_to_string(path)?;
    let rows: Result<Vec<Row>, serde_json::Error> = text.lines().map(serde_json::from_str).collect();
    Ok(rows?)
}

/// Returns the table of the trials in Markdown: a line for each fault, a column for each moment, and in each cell the slowest trial.
fn table(rows: &[Row]) -> String {
    let mut cells: BTreeMap<(&str, &str), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let cell = cells
            .entry((row.fault.as_str(), row.moment.as_str()))
            .or_default();
        cell.push(row);
    }
    let known = pairs();
    let mut faults: Vec<_> = known.iter().map(|(fault, _)| *fault).collect();
    faults.dedup();
    let names = Moment::ALL.map(|moment| format!("{moment:?}"));
    let mut text = format!(
        "| Fault | {} |\n|{}\n",
        names.join(" | "),
        "---|".repeat(names.len() + 1)
    );
    for fault in faults {
        let name = format!("{fault:?}");
        let _ = write!(text, "| {name} |");
        for (moment, moment_name) in Moment::ALL.iter().zip(&names) {
            let found = cells.get(&(name.as_str(), moment_name.as_str()));
            let content = match found {
                Some(found) => cell(found),
                None if known.contains(&(fault, *moment)) => "not run".to_owned(),
                None => "–".to_owned(),
            };
            let _ = write!(text, " {content} |");
        }
        text.push('\n');
    }
    text
}

/// Returns the content of the cell of these trials.
fn cell(rows: &[&Row]) -> String {
    let took: Option<Vec<&TrialResult>> = rows.iter().map(|row| row.took.as_ref()).collect();
    let slowest = took.and_then(|took| took.into_iter().max_by_key(|took| took.seconds));
    slowest.map_or_else(|| "failed".to_owned(), TrialResult::describe)
}

#[cfg(test)]
mod tests {
    use super::super::fault::Fault;
    use super::super::moment::Release;
    use super::*;

    fn row(number: usize, fault: Fault, moment: Moment, result: Result<TrialResult, String>) -> Row {
        let trial = Trial {
            number,
            fault,
            moment,
            is_manual: true,
            delay: std::time::Duration::ZERO,
            release: Release::After,
        };
        Row::new(trial, Vec::new(), result)
    }

    fn took(seconds: u64, more_runs: Option<usize>, orphans: usize) -> TrialResult {
        TrialResult {
            hits: 1,
            seconds,
            more_runs,
            orphans,
        }
    }

    fn some_rows() -> Vec<Row> {
        vec![
            row(0, Fault::KillRunner, Moment::Plan, Ok(took(9, Some(1), 0))),
            row(1, Fault::KillRunner, Moment::Plan, Ok(took(40, Some(2), 1))),
            row(2, Fault::KillCli, Moment::Init, Ok(took(3, Some(0), 0))),
            row(
                3,
                Fault::KillCli,
                Moment::Init,
                Err("it was not applied".to_owned()),
            ),
            row(4, Fault::DeleteNamespace, Moment::Any, Ok(took(53, None, 0))),
        ]
    }

    #[test]
    fn a_cell_has_the_slowest_trial_and_a_failed_one_is_not_hidden() {
        let table = table(&some_rows());
        let line = |name: &str| {
            let mut lines = table.lines();
            lines
                .find(|line| line.starts_with(&format!("| {name} |")))
                .unwrap()
        };
        let runner = "| KillRunner | not run | not run | not run | 40 s, +2, 1 orphan | not run | not run | not run | not run | not run |";
        assert_eq!(line("KillRunner"), runner);
        let cli = "| KillCli | – | – | failed | not run | not run | not run | not run | – | not run |";
        assert_eq!(line("KillCli"), cli);
        assert!(line("DeleteNamespace").ends_with("| 53 s |"));
        let columns = |line: &str| line.matches('|').count();
        assert!(
            table.lines().all(|line| columns(line) == columns(runner)),
            "{table}"
        );
    }

    #[test]
    fn the_rows_of_all_shards_of_a_sample_are_joined() {
        let folder = tempfile::tempdir().unwrap();
        let rows = some_rows();
        for (name, rows) in [
            ("chaos-1-of-2.jsonl", &rows[..2]),
            ("chaos-2-of-2.jsonl", &rows[2..]),
            ("chaos-1-of-3.jsonl", &rows[..1]),
        ] {
            let lines = rows.iter().map(|row| serde_json::to_string(row).unwrap() + "\n");
            fs::write(folder.path().join(name), lines.collect::<String>()).unwrap();
        }
        let found = rows_of_shards(&folder.path().join("chaos-1-of-2.jsonl")).unwrap();
        assert_eq!(found.len(), 5);
        assert_eq!(table(&found), table(&rows));
        let failures: Vec<_> = found.iter().filter_map(Row::failure).collect();
        assert_eq!(failures.len(), 1);
        assert!(failures[0].contains("KillCli Init") && failures[0].contains("it was not applied"));
    }
}

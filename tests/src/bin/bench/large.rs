//! Measures the private memory of source-controller with large inputs: first artifacts of several repositories at once, whose packages wait
//! for each other's memory, and the artifact of one large file, which is read as a stream.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use sluice_harness::git::{GitServer, Repository};
use sluice_tests::BoxError;

use crate::controller::{Controller, definitions, own_program};
use crate::curve::MEMORY_OF_FIRST;
use crate::objects;
use crate::results::{Goal, Results, Row, Unit, number};
use crate::text::{self, Text};
use crate::usage::PeakMemory;

/// Repositories that are new at once. Each is the same one under its own URL, and has a mirror of its own.
const REPOSITORIES: usize = 8;
/// Files of the repository, and bytes of each: 100 MB.
const FILES: usize = 4_000;
const FILE_BYTES: usize = 25_000;
/// Bytes of the large file.
const LARGE_FILE: usize = 300_000_000;
/// Limit for a file: the default is less.
const MAX_FILE: &str = "--git-max-blob-bytes=314572800";
/// What a failed reconciliation writes to the log.
const FAILED: &str = "reconciliation failed";

/// What first artifacts took.
struct Artifacts {
    time: Duration,
    /// The largest private memory meanwhile.
    memory: u64,
    /// Failed reconciliations.
    failed: usize,
}

/// Measures `rounds` times one and several repositories at once, and a large file.
pub(crate) async fn measure(rounds: usize, results: &mut Results) -> Result<(), BoxError> {
    let rounds = rounds.max(1);
    let mut text = Text::new();
    let repository = text::create_repository(&mut text, FILES, FILE_BYTES)?;
    let (mut one, mut all) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        one.push(measure_once(&repository, 1).await?);
        all.push(measure_once(&repository, REPOSITORIES).await?);
    }
    drop(repository);
    report_repositories(&one, &all, results);
    let repository = Repository::create()?;
    repository.commit_files(&[("large.txt", text.next(LARGE_FILE))], "A large file")?;
    let mut files = Vec::new();
    for _ in 0..rounds {
        files.push(measure_once(&repository, 1).await?);
    }
    report_file(&files, results);
    Ok(())
}

/// Measures the first artifacts of this many sources in a new controller.
async fn measure_once(repository: &Repository, count: usize) -> Result<Artifacts, BoxError> {
    let server = GitServer::start().await?;
    let folder = tempfile::tempdir()?;
    let mut program = own_program()?;
    program.extend([format!("--concurrent={count}"), MAX_FILE.to_owned()].map(PathBuf::from));
    let controller = Controller::start(&program, folder.path(), definitions()?).await?;
    let (sources, head) = (controller.sources(), repository.head()?);
    let remotes = (0..count).map(|number| {
        let name = format!("large{number}");
        let url = server.serve(&name, repository);
        (name, url)
    });
    let remotes: Vec<_> = remotes.collect();
    let watched = PeakMemory::watch(controller.id()?);
    let began = Instant::now();
    let creations = remotes
        .iter()
        .map(|(name, url)| objects::create(sources, name, url, "1h", &head));
    try_join_all(creations).await?;
    let (time, memory) = (began.elapsed(), watched.end());
    let log = std::fs::read_to_string(folder.path().join("log"))?;
    controller.end().await?;
    Ok(Artifacts {
        time,
        memory,
        failed: log.matches(FAILED).count(),
    })
}

/// Returns the largest private memory of each round.
fn memory(rounds: &[Artifacts]) -> Vec<f64> {
    rounds.iter().map(|round| number(round.memory)).collect()
}

/// Returns the row of failed reconciliations, of which there must be none: what has no memory waits.
fn failures(rounds: &[Artifacts]) -> Row {
    let failed = rounds.iter().map(|round| number(round.failed as u64));
    let row = Row::new("failed reconciliations meanwhile", Unit::Count, failed.collect());
    row.goal(Goal::AtMost(0.0))
}

fn report_repositories(one: &[Artifacts], all: &[Artifacts], results: &mut Results) {
    let goal = Goal::AtMost(number(MEMORY_OF_FIRST));
    let title = format!("{REPOSITORIES} first artifacts of 100 MB at once: private memory, at most");
    let row = Row::new(title, Unit::Bytes, memory(all)).beside("one of them alone", memory(one));
    results.add(row.goal(goal));
    results.add(failures(all));
    let times: Vec<_> = all.iter().map(|round| round.time).collect();
    let alone = one.iter().map(|round| round.time.as_secs_f64()).collect();
    let row = Row::times("time until all are served", &times);
    results.add(row.beside("one of them alone", alone));
}

fn report_file(files: &[Artifacts], results: &mut Results) {
    let goal = Goal::AtMost(number(MEMORY_OF_FIRST));
    let title = "first artifact of one file of 300 MB: private memory, at most";
    results.add(Row::new(title, Unit::Bytes, memory(files)).goal(goal));
    results.add(failures(files));
    let times: Vec<_> = files.iter().map(|round| round.time).collect();
    results.add(Row::times("time until it is served", &times));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Timeout of a test.
    const LIMIT: Duration = Duration::from_mins(2);

    #[tokio::test(flavor = "multi_thread")]
    async fn repositories_at_once_become_artifacts_without_a_failure() {
        let mut text = Text::new();
        let repository = text::create_repository(&mut text, 20, FILE_BYTES).unwrap();
        // Large enough to be read as a stream.
        let large = [("large.txt", text.next(4 << 20))];
        repository.commit_files(&large, "A large file").unwrap();
        let measuring = Box::pin(measure_once(&repository, 2));
        let measured = tokio::time::timeout(LIMIT, measuring).await.unwrap().unwrap();
        assert_eq!(measured.failed, 0);
        assert!(measured.memory > 0);
        let mut results = Results::default();
        report_repositories(&[], std::slice::from_ref(&measured), &mut results);
        report_file(&[measured], &mut results);
        assert_eq!(results.titles().len(), 6);
    }
}

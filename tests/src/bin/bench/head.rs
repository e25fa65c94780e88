//! Measures lookups of unchanged heads: of a repository with many references beside `git`, and of many objects with one URL.
//!
//! The time of a lookup is the time of whole reconciliations, from the metric of source-controller: they send one request and no request to
//! the API.

use std::path::Path;
use std::time::{Duration, Instant};

use sluice_harness::git::{GitServer, Repository, Step};
use sluice_tests::BoxError;

use crate::controller::{Controller, definitions, own_program};
use crate::objects::bytes_of;
use crate::results::{Goal, Results, Row, Unit, number, seconds};
use crate::sources::call;
use crate::{fleet, objects};

/// References of the repository.
const REFS: usize = 10_000;
/// How long a round observes the reconciliations; their interval is a second.
const OBSERVED: Duration = Duration::from_secs(4);
/// Objects with one URL.
const OBJECTS: usize = 500;
/// The names under which the repository is served, so that its requests can be distinguished.
const OWN: &str = "head";
const BY_HAND: &str = "by-hand";
/// The steps of a lookup.
const LOOKUP: [Step; 2] = [Step::InfoRefs, Step::LsRefs];

/// Measures `rounds` rounds.
pub(crate) async fn measure(rounds: usize, results: &mut Results) -> Result<(), BoxError> {
    let repository = create_repository()?;
    let server = GitServer::start().await?;
    let folder = tempfile::tempdir()?;
    let (url, by_hand) = (server.serve(OWN, &repository), server.serve(BY_HAND, &repository));
    let controller = Controller::start(&own_program()?, folder.path(), definitions()?).await?;
    objects::create(controller.sources(), OWN, &url, "1s", &repository.head()?).await?;
    let clone = folder.path().join("clone");
    std::fs::create_dir(&clone)?;
    call(
        &clone,
        "git",
        &["clone", "--quiet", "--bare", "--depth", "1", &by_hand, "."],
    )?;
    let (mut times, mut bytes) = (Vec::new(), Vec::new());
    let (mut lists, mut list_bytes, mut fetches) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds.max(1) {
        let (time, response) = observe_passes(&controller, &server).await?;
        times.push(time);
        bytes.push(response);
        server.clear_requests();
        lists.push(time_of_git(&clone, &["ls-remote", &by_hand, "refs/heads/main"])?);
        list_bytes.push(number(bytes_of(&server, BY_HAND, &LOOKUP)));
        fetches.push(time_of_git(
            &clone,
            &["fetch", "--quiet", "--depth", "1", "origin", "main"],
        )?);
    }
    controller.end().await?;
    let title = format!("lookup of an unchanged head among {REFS} references");
    let row = Row::new(&title, Unit::Seconds, times.clone()).beside("git ls-remote", seconds(&lists));
    results.add(row.goal(Goal::RatioAtMost(0.25)));
    let row = Row::new("its response", Unit::Bytes, bytes).beside("git ls-remote", list_bytes);
    results.add(row.goal(Goal::RatioAtMost(0.25)));
    let row = Row::new("the same, to a fetch of nothing", Unit::Seconds, times);
    let row = row.beside("git fetch --depth 1", seconds(&fetches));
    results.add(row.goal(Goal::RatioAtMost(0.15)));
    measure_one_url(&server, &url, results).await
}

/// Creates a repository of one commit and many tags.
fn create_repository() -> Result<Repository, BoxError> {
    let repository = Repository::create()?;
    let commit = repository.commit_files(&[("main.tf", "locals {}\n")], "Many tags")?;
    let lines: Vec<_> = (0..REFS)
        .map(|number| format!("{commit} refs/tags/v0.{number:05}\n"))
        .collect();
    std::fs::write(repository.git_dir().join("packed-refs"), lines.concat())?;
    Ok(repository)
}

/// Returns the time of a reconciliation in seconds and the bytes of the response to its lookup.
async fn observe_passes(controller: &Controller, server: &GitServer) -> Result<(f64, f64), BoxError> {
    server.clear_requests();
    let before = controller.reconciliation_time(OWN).await?;
    tokio::time::sleep(OBSERVED).await;
    let time = controller.reconciliation_time(OWN).await? - before;
    let lookups = server.count(Step::LsRefs);
    if lookups == 0 || server.count(Step::Fetch) > 0 {
        return Err(format!("no passes without changes: {lookups} lookups").into());
    }
    let lookups = number(lookups as u64);
    Ok((time / lookups, number(bytes_of(server, OWN, &LOOKUP)) / lookups))
}

/// Runs git in a folder. Returns how long it took.
pub(crate) fn time_of_git(folder: &Path, arguments: &[&str]) -> Result<Duration, BoxError> {
    let began = Instant::now();
    call(folder, "git", arguments)?;
    Ok(began.elapsed())
}

/// Counts the requests of many objects with one URL in an interval.
async fn measure_one_url(server: &GitServer, url: &str, results: &mut Results) -> Result<(), BoxError> {
    let folder = tempfile::tempdir()?;
    let controller = Controller::start(&own_program()?, folder.path(), definitions()?).await?;
    let sources = controller.sources();
    let urls = vec![url.to_owned(); OBJECTS];
    fleet::create(sources, &urls).await?;
    fleet::wait_for_all(sources, fleet::is_ready).await?;
    let (interval, intervals) = fleet::INTERVAL;
    fleet::shorten_intervals(sources, interval).await?;
    server.clear_requests();
    fleet::observe_passes(&controller).await?;
    let requests = number(server.requests().len() as u64) / f64::from(intervals);
    controller.end().await?;
    let title = format!("{OBJECTS} objects with one URL: Git requests in an interval");
    results.add(Row::new(title, Unit::Count, vec![requests]).goal(Goal::AtMost(2.0)));
    Ok(())
}

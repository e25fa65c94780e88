//! Measures a new source and a push to it for repositories of several sizes: the time until the artifact is served, the bytes of the
//! fetch, the memory, and the fetch beside `git`. The curve of a push is to be flat but for the hash of the artifact.

use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use sluice_harness::git::{GitServer, Repository, Step};
use sluice_tests::BoxError;

use crate::controller::{Controller, definitions, own_program};
use crate::head::time_of_git;
use crate::objects::{self, bytes_of};
use crate::packages::last_package;
use crate::results::{Goal, Results, Row, Unit, median, number, seconds};
use crate::text::{self, Text};
use crate::usage::PeakMemory;

/// Megabytes of the repositories.
const SIZES: [usize; 4] = [1, 10, 100, LARGE];
/// The size with limits for everything.
const LARGE: usize = 473;
/// The size that is measured on request only.
const GIGABYTE: usize = 1_000;
/// Bytes of a file.
const FILE_BYTES: usize = 24_000;
/// The file that changes.
const CHANGED_FILE: usize = 20;
/// The longest time until a push is served, and until the first artifact of the large repository is, in seconds.
const PUSH: f64 = 0.25;
const FIRST: f64 = 5.0;
/// The most bytes of the fetch of one changed file.
const FETCHED: f64 = 65_536.0;
/// The most private memory of a first artifact, and what a push may add to that of the waiting program.
pub(crate) const MEMORY_OF_FIRST: u64 = 96 << 20;
const MEMORY_OF_PUSH: u64 = 32 << 20;
/// The name of the repository for git.
const BY_HAND: &str = "by-hand";
/// The name of the object and its repository.
const OWN: &str = "curve";

/// The samples of one size.
#[derive(Default)]
struct Samples {
    first: Vec<Duration>,
    /// The first artifact without its package.
    fetch: Vec<Duration>,
    fetch_by_hand: Vec<Duration>,
    push: Vec<Duration>,
    package: Vec<Duration>,
    hash: Vec<Duration>,
    fetched: Vec<f64>,
    fetched_by_hand: Vec<f64>,
    memory_of_first: Vec<f64>,
    memory_of_push: Vec<f64>,
}

/// Measures `rounds` new sources of each size, and a push to each.
pub(crate) async fn measure(rounds: usize, gigabyte: bool, results: &mut Results) -> Result<(), BoxError> {
    let mut text = Text::new();
    for size in SIZES.into_iter().chain(gigabyte.then_some(GIGABYTE)) {
        eprintln!("a repository of {size} MB");
        let files = size * 1_000_000 / FILE_BYTES;
        let repository = text::create_repository(&mut text, files, FILE_BYTES)?;
        let mut samples = Samples::default();
        for _ in 0..rounds.max(1) {
            measure_once(&repository, &mut text, &mut samples).await?;
        }
        report(size, samples, results);
    }
    Ok(())
}

/// Measures a new source in a new controller, and a push to it.
async fn measure_once(
    repository: &Repository,
    text: &mut Text,
    samples: &mut Samples,
) -> Result<(), BoxError> {
    let server = GitServer::start().await?;
    let (url, by_hand) = (server.serve(OWN, repository), server.serve(BY_HAND, repository));
    let folder = tempfile::tempdir()?;
    let clone = folder.path().join("clone");
    std::fs::create_dir(&clone)?;
    let arguments = [
        "clone",
        "--quiet",
        "--bare",
        "--depth",
        "1",
        by_hand.as_str(),
        ".",
    ];
    samples.fetch_by_hand.push(time_of_git(&clone, &arguments)?);
    let controller = Controller::start(&own_program()?, folder.path(), definitions()?).await?;
    let (id, sources, log) = (controller.id()?, controller.sources(), folder.path().join("log"));
    let watched = PeakMemory::watch(id);
    let first = objects::create(sources, OWN, &url, "1h", &repository.head()?).await?;
    samples.memory_of_first.push(number(watched.end()));
    let package = last_package(&std::fs::read_to_string(&log)?, OWN)?;
    samples.first.push(first);
    samples.fetch.push(first.saturating_sub(package.time));
    samples.hash.push(time_of_hash(package.bytes));
    let path = text::path(CHANGED_FILE);
    let head = repository.commit_files(&[(path.as_str(), text.next(FILE_BYTES))], "One file")?;
    server.clear_requests();
    let before = controller.usage()?.private;
    let watched = PeakMemory::watch(id);
    samples.push.push(objects::request(sources, OWN, &head).await?);
    samples
        .memory_of_push
        .push(number(watched.end().saturating_sub(before)));
    samples
        .package
        .push(last_package(&std::fs::read_to_string(&log)?, OWN)?.time);
    let fetched = |name: &str| number(bytes_of(&server, name, &[Step::Fetch]));
    samples.fetched.push(fetched(OWN));
    time_of_git(&clone, &["fetch", "--quiet", "--depth", "1", "origin", "main"])?;
    samples.fetched_by_hand.push(fetched(BY_HAND));
    controller.end().await
}

/// Returns the time of the SHA-256 of this many bytes: the least that a new artifact of this size costs.
fn time_of_hash(bytes: u64) -> Duration {
    let piece = vec![7_u8; 64 * 1024];
    let pieces = bytes / 65_536;
    let began = Instant::now();
    let mut hasher = Sha256::new();
    for _ in 0..pieces {
        hasher.update(&piece);
    }
    std::hint::black_box(hasher.finalize());
    began.elapsed()
}

/// Adds the points and rows of a size. Only the push has a limit in each size.
fn report(size: usize, samples: Samples, results: &mut Results) {
    let megabytes = number(size as u64);
    let curves = [
        ("push until its artifact is served", &samples.push),
        ("its package", &samples.package),
        ("SHA-256 of the artifact alone", &samples.hash),
    ];
    for (curve, times) in curves {
        if let Some(time) = median(&seconds(times)) {
            results.point(curve, megabytes, time);
        }
    }
    let is_large = size >= LARGE;
    let of_large = |limit: f64| is_large.then_some(Goal::AtMost(limit));
    let row = Row::times(format!("{size} MB: first artifact"), &samples.first);
    results.add(row.goal_if_known(of_large(FIRST)));
    if is_large {
        let row = Row::times("its fetch, all but the package", &samples.fetch);
        let row = row.beside("git clone --bare --depth 1", seconds(&samples.fetch_by_hand));
        results.add(row.goal(Goal::RatioAtMost(0.85)));
    }
    let title = "private memory for the first artifact, at most";
    let row = Row::new(title, Unit::Bytes, samples.memory_of_first);
    results.add(row.goal_if_known(of_large(number(MEMORY_OF_FIRST))));
    let title = format!("{size} MB: push of one file until its artifact is served");
    results.add(Row::times(title, &samples.push).goal(Goal::AtMost(PUSH)));
    let title = "private memory for the push, more than before";
    let row = Row::new(title, Unit::Bytes, samples.memory_of_push);
    results.add(row.goal_if_known(of_large(number(MEMORY_OF_PUSH))));
    let title = "bytes of its fetch";
    let row = Row::new(title, Unit::Bytes, samples.fetched.clone());
    let row = row.beside("git fetch --depth 1", samples.fetched_by_hand);
    results.add(row.goal(Goal::RatioAtMost(1.25)));
    if is_large {
        let row = Row::new("the same, in bytes", Unit::Bytes, samples.fetched);
        results.add(row.goal(Goal::AtMost(FETCHED)));
        results.add(Row::times("SHA-256 of its artifact alone", &samples.hash));
    }
}

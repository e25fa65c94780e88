//! Measures how long a large tree takes to become an artifact, from the log of the program, without fetch and status: the first one, and
//! one after a change of one file. The manual equivalent is `git archive` and `pigz`, or `gzip` where that is not installed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use sluice_harness::compared;
use sluice_harness::git::GitServer;
use sluice_tests::BoxError;
use sluice_tests::program::Setup;

use crate::results::{Goal, Results, Row, Unit, number, seconds};
use crate::sources::Build;
use crate::text::{self, Text};

/// Files of the repository.
const FILES: usize = 6_000;
/// Bytes of a file, nearly 90 MB together.
const FILE_BYTES: usize = 15_000;
/// The compressor whose size is compared.
const GZIP: &str = "gzip -6";

/// The record of an archive in the log.
pub(crate) struct Package {
    /// How long it took, without fetch and status.
    pub(crate) time: Duration,
    /// Size of the file.
    pub(crate) bytes: u64,
    /// Its segments.
    pub(crate) segments: u64,
    /// Those that were copied from the previous archive.
    pub(crate) copied: u64,
}

/// Measures `rounds` packages of a new object, and as many after a push that changes one file.
pub(crate) async fn measure(rounds: usize, results: &mut Results) -> Result<(), BoxError> {
    let mut text = Text::new();
    let repository = text::create_repository(&mut text, FILES, FILE_BYTES)?;
    let server = GitServer::start().await?;
    let folder = tempfile::tempdir()?;
    let mut build = Build::start(Setup::new(folder.path()).without_state()).await?;
    let compressor = compressor();
    let (mut by_hand, mut full, mut again) = (Vec::new(), Vec::new(), Vec::new());
    let (mut sizes, mut sizes_by_hand, mut compressed) = (Vec::new(), Vec::new(), Vec::new());
    let rounds = rounds.max(1);
    let mut paths: Vec<_> = (0..FILES).map(text::path).collect();
    paths.sort();
    for round in 0..rounds {
        let name = format!("package{round}");
        let url = server.serve(&name, &repository);
        by_hand.push(archive(repository.path(), &compressor)?.0);
        build.create(&name, &url, &repository.head()?).await?;
        let package = last_package(&build.log(), &name)?;
        sizes.push(number(package.bytes));
        sizes_by_hand.push(number(archive(repository.path(), GZIP)?.1));
        full.push(package.time);
        // The place of a change decides how much is hashed, so it moves from the start to the end.
        let changed = paths[FILES * (2 * round + 1) / (2 * rounds)].as_str();
        let head = repository.commit_files(&[(changed, text.next(FILE_BYTES))], "One file")?;
        build.request(&name, &head).await?;
        let package = last_package(&build.log(), &name)?;
        compressed.push(number(package.segments - package.copied));
        again.push(package.time);
    }
    build.end().await?;
    let row = Row::times("first package of 6,000 files, 90 MB", &full);
    results.add(if compressor == GZIP {
        let name = "git archive into gzip -6; pigz is neither installed nor in reach";
        row.beside(name, seconds(&by_hand))
    } else {
        let row = row.beside("git archive into pigz -p2 -6", seconds(&by_hand));
        row.goal(Goal::RatioAtMost(0.75))
    });
    let row = Row::new("its size", Unit::Bytes, sizes);
    let row = row.beside("git archive into gzip -6", sizes_by_hand);
    results.add(row.goal(Goal::RatioAtMost(1.04)));
    let row = Row::times("its package after a change of one file", &again);
    let row = row.beside("own full package", seconds(&full));
    results.add(row.goal(Goal::RatioAtMost(0.03)));
    let row = Row::new("segments that it compresses", Unit::Count, compressed);
    results.add(row.goal(Goal::AtMost(2.0)));
    Ok(())
}

/// Returns the command of the fastest compressor for a comparison at level 6. pigz is downloaded where it is not installed.
fn compressor() -> String {
    match compared::pigz() {
        Ok(program) => format!("{} -p2 -6", program.display()),
        Err(error) => {
            eprintln!("gzip with one thread takes the place of pigz: {error}");
            GZIP.to_owned()
        }
    }
}

/// Packs the current commit by hand; returns the time and the size of the file.
fn archive(repository: &Path, compressor: &str) -> Result<(Duration, u64), BoxError> {
    let file = tempfile::NamedTempFile::new()?;
    let began = Instant::now();
    let status = Command::new("bash")
        .args([
            "-o",
            "pipefail",
            "-c",
            &format!("git archive HEAD | {compressor}"),
        ])
        .current_dir(repository)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .stdin(Stdio::null())
        .stdout(file.reopen()?)
        .status()?;
    if !status.success() {
        return Err(format!("git archive and {compressor}: {status}").into());
    }
    Ok((began.elapsed(), file.as_file().metadata()?.len()))
}

/// Returns the last archive of an object in a log.
pub(crate) fn last_package(log: &str, name: &str) -> Result<Package, BoxError> {
    let mut lines = log
        .lines()
        .rev()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let line = lines
        .find(|line| line["msg"] == "artifact packed" && line["name"] == name)
        .ok_or_else(|| format!("the log has no artifact of {name}"))?;
    let number = |field: &str| {
        line[field]
            .as_u64()
            .ok_or_else(|| format!("no {field} in {line}"))
    };
    Ok(Package {
        time: Duration::from_millis(number("millis")?),
        bytes: number("bytes")?,
        segments: number("segments")?,
        copied: number("copied")?,
    })
}

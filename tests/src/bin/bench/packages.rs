//! Measures how a large tree becomes an artifact, as the log of the program tells it, without fetch and status: the first one, and one
//! after a change of one file. The manual equivalent is `git archive` and `pigz`, or `gzip` where that is not installed.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use sluice_harness::git::{GitServer, Repository};
use sluice_tests::BoxError;
use sluice_tests::program::Setup;

use crate::sources::Build;
use crate::{Table, median};

/// Files of the repository, in folders of fifty.
const FILES: usize = 6_000;
/// Bytes of a file, nearly 90 MB together.
const FILE_BYTES: usize = 15_000;
/// Words of all texts.
const WORDS: usize = 4_000;

/// What the log says about an archive.
struct Package {
    time: Duration,
    bytes: u64,
    segments: u64,
    copied: u64,
}

/// Measures `rounds` packages of a new object, and as many after a push that changes one file.
pub(crate) async fn measure(rounds: usize, table: &mut Table) -> Result<(), BoxError> {
    let mut text = Text::new();
    let repository = create_repository(&mut text)?;
    let server = GitServer::start().await?;
    let folder = tempfile::tempdir()?;
    let mut build = Build::start(Setup::new(folder.path()).without_state()).await?;
    let (compressor, gzip) = (compressor(), "gzip -6");
    let (mut by_hand, mut full, mut again) = (Vec::new(), Vec::new(), Vec::new());
    let (mut sizes, mut compressed) = ((0, 0), (0, 0));
    for round in 0..rounds.max(1) {
        let name = format!("package{round}");
        let url = server.serve(&name, &repository);
        by_hand.push(archive(repository.path(), compressor)?.0);
        build.create(&name, &url, &repository.head()?).await?;
        let package = last_package(&build.log(), &name)?;
        sizes = (package.bytes, archive(repository.path(), gzip)?.1);
        full.push(package.time);
        let head = repository.commit_files(&[("folder7/file371.tf", text.next(FILE_BYTES))], "One file")?;
        build.request(&name, &head).await?;
        let package = last_package(&build.log(), &name)?;
        compressed = (package.segments - package.copied, package.segments);
        again.push(package.time);
    }
    let title = format!("first package of {FILES} files, 90 MB; by hand with {compressor}");
    table.line(&title, &ratio(&mut full, &mut by_hand, "by hand"));
    let size = format!(
        "{:.3} ({} to {} bytes)",
        share(sizes.0, sizes.1),
        sizes.0,
        sizes.1
    );
    table.line("  its size, to that of gzip -6", &size);
    let title = "  package after a change of one file, to the first one";
    table.line(title, &ratio(&mut again, &mut full, "for the first one"));
    let segments = format!("{} of {}", compressed.0, compressed.1);
    table.line("  segments that it compresses", &segments);
    build.end().await
}

/// Returns the ratio of two medians, with milliseconds.
fn ratio(ours: &mut [Duration], others: &mut [Duration], what: &str) -> String {
    let (ours, others) = (median(ours), median(others));
    let ratio = ours.as_secs_f64() / others.as_secs_f64().max(f64::EPSILON);
    format!(
        "{ratio:.3} ({} ms to {} ms {what})",
        ours.as_millis(),
        others.as_millis()
    )
}

#[expect(clippy::cast_precision_loss, reason = "sizes for a table")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Returns the fastest installed compressor for a comparison at level 6.
fn compressor() -> &'static str {
    let found = Command::new("pigz").arg("--version").output();
    if found.is_ok_and(|output| output.status.success()) {
        "pigz -p2 -6"
    } else {
        "gzip -6"
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
fn last_package(log: &str, name: &str) -> Result<Package, BoxError> {
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

/// Text of words from one vocabulary, from a seed; it compresses to about a third, as source code does.
struct Text {
    words: Vec<String>,
    state: u64,
}

impl Text {
    fn new() -> Self {
        let (words, state) = (Vec::new(), 1);
        let mut text = Self { words, state };
        for _ in 0..WORDS {
            let length = 2 + text.number(9);
            let letters =
                (0..length).map(|_| char::from(b'a' + u8::try_from(text.number(26)).unwrap_or_default()));
            let word = letters.collect();
            text.words.push(word);
        }
        text
    }

    /// Returns the next number below a limit. Small ones are more frequent, as words are.
    fn number(&mut self, limit: usize) -> usize {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.state >> 33).unwrap_or_default() % limit
    }

    /// Returns the next text of about this many bytes.
    fn next(&mut self, bytes: usize) -> String {
        let mut text = String::with_capacity(bytes + 100);
        while text.len() < bytes {
            let limit = 1 + self.number(self.words.len());
            for _ in 0..=self.number(8) {
                let word = self.number(limit);
                text.push_str(&self.words[word]);
                text.push(' ');
            }
            text.push_str("=\n");
        }
        text
    }
}

fn create_repository(text: &mut Text) -> Result<Repository, BoxError> {
    let repository = Repository::create()?;
    let mut path = String::new();
    for file in 0..FILES {
        path.clear();
        write!(path, "folder{}/file{file}.tf", file / 50)?;
        repository.write(&path, text.next(FILE_BYTES))?;
    }
    repository.commit("A large repository")?;
    Ok(repository)
}

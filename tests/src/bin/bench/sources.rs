//! Measures the reconciliation of an ordinary repository, from the creation of the object or a push to the artifact in its status.
//! The manual equivalent is a shallow clone or fetch, a `tar.gz` and its checksum. Another build of `sluice` can run alternately.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use sluice_harness::git::{GitServer, Repository};
use sluice_tests::BoxError;
use sluice_tests::program::{Program, Setup};

use crate::results::{Goal, Results, Row, seconds};
use crate::{objects, usage};

/// Files of the repository, in folders of fifty.
const FILES: usize = 2_000;
/// Lines per file, all different.
const LINES: usize = 200;
/// Commits after the first one.
const COMMITS: usize = 100;

/// A running build of `sluice`.
pub(crate) struct Build {
    setup: Setup,
    program: Program,
    sources: Api<DynamicObject>,
    first: Vec<Duration>,
    again: Vec<Duration>,
    cpu: Duration,
}

impl Build {
    pub(crate) async fn start(setup: Setup) -> Result<Self, BoxError> {
        setup.write(&[])?;
        let program = Program::start(setup.clone()).await?;
        let kind = GroupVersionKind::gvk("source.toolkit.fluxcd.io", "v1", "GitRepository");
        let sources = Api::namespaced_with(program.client(), "default", &ApiResource::from_gvk(&kind));
        let (first, again, cpu) = (Vec::new(), Vec::new(), Duration::ZERO);
        Ok(Self {
            setup,
            program,
            sources,
            first,
            again,
            cpu,
        })
    }

    /// Creates a source and waits for its artifact of this commit.
    pub(crate) async fn create(&mut self, name: &str, url: &str, commit: &str) -> Result<(), BoxError> {
        let took = objects::create(&self.sources, name, url, "1h", commit).await?;
        self.first.push(took);
        Ok(())
    }

    /// Requests a reconciliation and waits for the artifact of this commit.
    pub(crate) async fn request(&mut self, name: &str, commit: &str) -> Result<(), BoxError> {
        let took = objects::request(&self.sources, name, commit).await?;
        self.again.push(took);
        Ok(())
    }

    /// Returns the log of the program.
    pub(crate) fn log(&self) -> String {
        self.setup.log()
    }

    /// Ends the program.
    pub(crate) async fn end(self) -> Result<(), BoxError> {
        self.program.end().await
    }

    /// Records the CPU time of all reconciliations.
    fn record_cpu(&mut self) -> Result<(), BoxError> {
        let id = self.program.id().ok_or("sluice has ended")?;
        self.cpu = usage::of_process(id)?.cpu;
        Ok(())
    }
}

/// Measures `rounds` first reconciliations and as many after a push that changes one file.
pub(crate) async fn measure(
    rounds: usize,
    other: Option<&Path>,
    results: &mut Results,
) -> Result<(), BoxError> {
    let repository = create_repository()?;
    let server = GitServer::start().await?;
    let folder = tempfile::tempdir()?;
    let mut builds = start_builds(folder.path(), other).await?;
    let (mut first, mut again) = (Vec::new(), Vec::new());
    for round in 0..rounds.max(1) {
        let name = format!("round{round}");
        let (url, clone) = (server.serve(&name, &repository), folder.path().join(&name));
        let head = repository.head()?;
        let whole: &[&[&str]] = &[&["clone", "--quiet", "--depth", "1", &url, "."]];
        first.push(run_manually(&clone, whole)?);
        for build in &mut builds {
            build.create(&name, &url, &head).await?;
        }
        let changed = format!("folder0/file0 in round {round}\n");
        let head = repository.commit_files(&[("folder0/file0.tf", changed)], "One file")?;
        let fetch = ["fetch", "--quiet", "--depth", "1", "origin", "main"];
        again.push(run_manually(
            &clone,
            &[&fetch, &["reset", "--quiet", "--hard", "FETCH_HEAD"]],
        )?);
        for build in &mut builds {
            build.request(&name, &head).await?;
        }
    }
    for build in &mut builds {
        build.record_cpu()?;
    }
    let own = builds.remove(0);
    let by_hand = |row: Row, times: &[Duration], what: &str| {
        let name = format!("git {what}, tar -cz, sha256sum");
        row.beside(name, seconds(times)).goal(Goal::RatioAtMost(1.0))
    };
    let row = Row::times("first reconciliation of a source of 2,000 files", &own.first);
    results.add(by_hand(row, &first, "clone --depth 1"));
    let row = Row::times("its reconciliation after a push", &own.again);
    results.add(by_hand(row, &again, "fetch --depth 1"));
    if let Some(other) = builds.pop() {
        report_other(&own, &other, results);
        other.end().await?;
    }
    own.end().await
}

/// Adds the rows that compare this build with another one.
fn report_other(own: &Build, other: &Build, results: &mut Results) {
    let parts = [
        ("first reconciliations", &own.first, &other.first),
        ("reconciliations after a push", &own.again, &other.again),
    ];
    for (what, own, other) in parts {
        results.add(Row::times(what, own).beside("the other build", seconds(other)));
    }
    let row = Row::times("CPU of all of them", &[own.cpu]);
    results.add(row.beside("the other build", seconds(&[other.cpu])));
}

/// Starts this build, and the other one if there is one.
async fn start_builds(folder: &Path, other: Option<&Path>) -> Result<Vec<Build>, BoxError> {
    let mut builds = Vec::new();
    for (name, program) in [("own", None), ("other", other)] {
        if name == "own" || program.is_some() {
            let directory = folder.join(name);
            std::fs::create_dir(&directory)?;
            let setup = Setup::new(&directory).without_state();
            let setup = match program {
                Some(path) => setup.program(path),
                None => setup,
            };
            builds.push(Build::start(setup).await?);
        }
    }
    Ok(builds)
}

/// Creates a repository with history and text files that compress to about a third.
fn create_repository() -> Result<Repository, BoxError> {
    let repository = Repository::create()?;
    let mut seed = 1_u64;
    for file in 0..FILES {
        let mut text = String::new();
        for line in 0..LINES {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            writeln!(text, "resource_{line} = \"{seed:016x}\"")?;
        }
        repository.write(&format!("folder{}/file{file}.tf", file / 50), text)?;
    }
    repository.commit("An ordinary repository")?;
    for commit in 0..COMMITS {
        let (path, text) = (
            format!("folder{}/notes", commit % 40),
            format!("commit {commit}\n"),
        );
        repository.commit_files(&[(path.as_str(), text)], "Notes")?;
    }
    Ok(repository)
}

/// Runs git in the clone's folder, packs the files, and computes a checksum.
fn run_manually(clone: &Path, steps: &[&[&str]]) -> Result<Duration, BoxError> {
    std::fs::create_dir_all(clone)?;
    let began = Instant::now();
    for step in steps {
        call(clone, "git", step)?;
    }
    call(clone, "tar", &["--exclude=.git", "-czf", "../by-cli.tar.gz", "."])?;
    call(clone, "sha256sum", &["../by-cli.tar.gz"])?;
    Ok(began.elapsed())
}

/// Runs a program in a folder, without the configuration of the user. It must succeed.
pub(crate) fn call(folder: &Path, program: &str, arguments: &[&str]) -> Result<(), BoxError> {
    let mut command = Command::new(program);
    let done = command
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!(
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    )
    .into())
}

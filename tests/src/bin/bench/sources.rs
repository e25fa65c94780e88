//! A source's pass over an ordinary repository: from the object, or from a push, to the artifact in its status. By hand the same
//! is a shallow clone or fetch, a `tar.gz` and its checksum. Another build of `sluice` can do it in turn.

use crate::{Pair, Table, process};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use serde_json::json;
use sluice_harness::git::{GitServer, Repository};
use sluice_tests::{
    Failed,
    program::{Program, Setup},
};
use std::{
    fmt::Write as _,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

/// Longest wait for an artifact.
const PATIENCE: Duration = Duration::from_secs(120);
/// Files of the repository, in folders of fifty.
const FILES: usize = 2_000;
/// Lines of each file, all of them different.
const LINES: usize = 200;
/// Commits after the first one.
const COMMITS: usize = 100;

/// One build of `sluice`, at work.
struct Side {
    program: Program,
    sources: Api<DynamicObject>,
    first: Vec<Duration>,
    again: Vec<Duration>,
    cpu: Duration,
}

impl Side {
    async fn start(setup: Setup) -> Result<Self, Failed> {
        setup.write(&[])?;
        let program = Program::start(setup).await?;
        let kind = GroupVersionKind::gvk("source.toolkit.fluxcd.io", "v1", "GitRepository");
        let sources = Api::namespaced_with(program.client(), "default", &ApiResource::from_gvk(&kind));
        let (first, again, cpu) = (Vec::new(), Vec::new(), Duration::ZERO);
        Ok(Self {
            program,
            sources,
            first,
            again,
            cpu,
        })
    }

    async fn create(&mut self, name: &str, url: &str, commit: &str) -> Result<(), Failed> {
        let source = json!({ "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": { "name": name },
            "spec": { "url": url, "interval": "1h", "ref": { "branch": "main" } } });
        let (source, began) = (serde_json::from_value(source)?, Instant::now());
        self.sources.create(&PostParams::default(), &source).await?;
        self.shows(name, commit).await?;
        self.first.push(began.elapsed());
        Ok(())
    }

    async fn request(&mut self, name: &str, commit: &str) -> Result<(), Failed> {
        let body = json!({ "metadata": { "annotations": { "reconcile.fluxcd.io/requestedAt": commit } } });
        let began = Instant::now();
        let (params, body) = (PatchParams::default(), Patch::Merge(body));
        self.sources.patch(name, &params, &body).await?;
        self.shows(name, commit).await?;
        self.again.push(began.elapsed());
        Ok(())
    }

    async fn shows(&self, name: &str, commit: &str) -> Result<(), Failed> {
        let shown = await_condition(self.sources.clone(), name, |source: Option<&DynamicObject>| {
            let revision = source.and_then(|source| source.data["status"]["artifact"]["revision"].as_str());
            revision.is_some_and(|revision| revision.ends_with(commit))
        });
        let shown = tokio::time::timeout(PATIENCE, shown).await;
        shown.map_err(|_| format!("{name} never had an artifact of {commit}"))??;
        Ok(())
    }

    /// Takes the CPU time of all passes.
    fn stop_clock(&mut self) -> Result<(), Failed> {
        let id = self.program.id().ok_or("sluice has ended")?;
        self.cpu = process::used(id)?.cpu;
        Ok(())
    }
}

/// Measures `rounds` first passes, and as many after a push that changes one file.
pub(crate) async fn measure(rounds: usize, other: Option<&Path>, table: &mut Table) -> Result<(), Failed> {
    let repository = ordinary()?;
    let server = GitServer::start().await?;
    let folder = tempfile::tempdir()?;
    let mut sides = Vec::new();
    for (name, program) in [("own", None), ("other", other)] {
        if name == "own" || program.is_some() {
            let place = folder.path().join(name);
            std::fs::create_dir(&place)?;
            let setup = Setup::new(&place).forgetful();
            let setup = match program {
                Some(path) => setup.program(path),
                None => setup,
            };
            sides.push(Side::start(setup).await?);
        }
    }
    let (mut first, mut again) = (Vec::new(), Vec::new());
    for round in 0..rounds.max(1) {
        let name = format!("round{round}");
        let (url, clone) = (server.serve(&name, &repository), folder.path().join(&name));
        let head = repository.head()?;
        let whole: &[&[&str]] = &[&["clone", "--quiet", "--depth", "1", &url, "."]];
        first.push(by_hand(&clone, whole)?);
        for side in &mut sides {
            side.create(&name, &url, &head).await?;
        }
        let changed = format!("folder0/file0 in round {round}\n");
        let head = repository.commit_files(&[("folder0/file0.tf", changed)], "One file")?;
        let fetch = ["fetch", "--quiet", "--depth", "1", "origin", "main"];
        again.push(by_hand(
            &clone,
            &[&fetch, &["reset", "--quiet", "--hard", "FETCH_HEAD"]],
        )?);
        for side in &mut sides {
            side.request(&name, &head).await?;
        }
    }
    for side in &mut sides {
        side.stop_clock()?;
    }
    let own = sides.remove(0);
    let pair = |hand: &[Duration], sluice: Vec<Duration>| Pair {
        hand: hand.to_vec(),
        sluice,
    };
    table.ratio(
        "first pass over a source of 2,000 files",
        &mut pair(&first, own.first.clone()),
    );
    table.ratio("  a pass after a push", &mut pair(&again, own.again.clone()));
    if let Some(other) = sides.pop() {
        table.against("  first pass", &mut pair(&other.first, own.first));
        table.against("  a pass after a push", &mut pair(&other.again, own.again));
        table.against("  CPU of all", &mut pair(&[other.cpu], vec![own.cpu]));
        other.program.end().await?;
    }
    own.program.end().await
}

/// Files of text that packs to about a third, and some history.
fn ordinary() -> Result<Repository, Failed> {
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

/// Calls git in the clone's folder, packs what is there, and makes its checksum.
fn by_hand(clone: &Path, steps: &[&[&str]]) -> Result<Duration, Failed> {
    std::fs::create_dir_all(clone)?;
    let began = Instant::now();
    for step in steps {
        call(clone, "git", step)?;
    }
    call(
        clone,
        "tar",
        &["--exclude=.git", "-czf", "../by-hand.tar.gz", "."],
    )?;
    call(clone, "sha256sum", &["../by-hand.tar.gz"])?;
    Ok(began.elapsed())
}

fn call(folder: &Path, program: &str, arguments: &[&str]) -> Result<(), Failed> {
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

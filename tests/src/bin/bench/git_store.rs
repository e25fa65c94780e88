//! Measures `sluice up` with a store in Git that has many objects and a long history: its start, its memory and its writes, beside
//! commits by hand, and beside a small store.

use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice_tests::BoxError;
use sluice_tests::program::{Program, Setup};

use crate::results::{Results, Row, Unit, number, seconds};
use crate::sources::call;
use crate::{disk, usage};

/// The store that is measured.
const LARGE: Size = Size {
    objects: 5_000,
    commits: 50_000,
};
/// A hundredth of it, which shows what the growth costs.
const SMALL: Size = Size {
    objects: 50,
    commits: 500,
};
/// Objects of a namespace, so of a directory.
const OBJECTS_OF_NAMESPACE: usize = 100;
/// Writes of a round, by the API and by hand, each of another object.
const WRITES: usize = 50;
/// Maximum number of rounds: a start takes long.
pub(crate) const MAX_ROUNDS: usize = 3;
/// Timeout of a start.
const START_TIMEOUT: Duration = Duration::from_mins(10);
/// Time of the first commit, in seconds since 1970.
const FIRST_TIME: usize = 1_700_000_000;
/// Bits of a resourceVersion below the number of its commit.
const NUMBER_BITS: u32 = 32;

/// The size of a repository.
#[derive(Clone, Copy, Debug)]
struct Size {
    objects: usize,
    /// Each commit writes one object.
    commits: usize,
}

/// The samples of all rounds.
#[derive(Default)]
struct Samples {
    starts: Vec<Duration>,
    memory: Vec<f64>,
    by_api: Vec<Duration>,
    by_hand: Vec<Duration>,
    /// Bytes that a write adds to the repository.
    growth_by_api: Vec<f64>,
    growth_by_hand: Vec<f64>,
}

/// Measures at most [`MAX_ROUNDS`] rounds of each size in turn, each on a clone of the repository.
pub(crate) async fn measure(rounds: usize, results: &mut Results) -> Result<(), BoxError> {
    let (large, small) = (LARGE.repository()?, SMALL.repository()?);
    let (mut samples, mut of_small) = (Samples::default(), Samples::default());
    for _ in 0..rounds.clamp(1, MAX_ROUNDS) {
        measure_round(LARGE, &large, &mut samples).await?;
        measure_round(SMALL, &small, &mut of_small).await?;
    }
    report(samples, of_small, results);
    Ok(())
}

fn report(samples: Samples, of_small: Samples, results: &mut Results) {
    let small = SMALL.title();
    let title = format!("store in Git, {}: start of sluice up", LARGE.title());
    let row = Row::times(title, &samples.starts);
    results.add(row.beside(small.as_str(), seconds(&of_small.starts)));
    let row = Row::new("its private memory", Unit::Bytes, samples.memory);
    results.add(row.beside(small.as_str(), of_small.memory));
    let row = Row::times("a write of one object", &samples.by_api);
    results.add(row.beside(small, seconds(&of_small.by_api)));
    let (name, by_hand) = ("git commit, git push", seconds(&samples.by_hand));
    let row = Row::times("a write of one object, beside git", &samples.by_api);
    results.add(row.beside(name, by_hand));
    let row = Row::new(
        "growth of the repository by a write",
        Unit::Bytes,
        samples.growth_by_api,
    );
    results.add(row.beside(name, samples.growth_by_hand));
}

async fn measure_round(size: Size, repository: &Path, samples: &mut Samples) -> Result<(), BoxError> {
    let folder = tempfile::tempdir_in(disk::folder(disk::DATA)?)?;
    let origin = repository.display().to_string();
    call(
        folder.path(),
        "git",
        &["clone", "--quiet", "--bare", &origin, "objects.git"],
    )?;
    let clone = folder.path().join("objects.git");
    let store = format!("git:{}", clone.display());
    let setup = Setup::new(folder.path())
        .with_store(&store)
        .with_start_timeout(START_TIMEOUT);
    setup.write(&[])?;
    let began = Instant::now();
    let program = Program::start(setup).await?;
    samples.starts.push(began.elapsed());
    let id = program.id().ok_or("sluice has ended")?;
    samples.memory.push(number(usage::of_process(id)?.private));
    let stored = clone.join("objects");
    let before = bytes_of_files(&stored)?;
    write_by_api(&program, &mut samples.by_api).await?;
    let between = bytes_of_files(&stored)?;
    write_by_hand(size, folder.path(), &mut samples.by_hand)?;
    let after = bytes_of_files(&stored)?;
    samples.growth_by_api.push(growth(before, between)?);
    samples.growth_by_hand.push(growth(between, after)?);
    program.end().await
}

/// Returns the bytes that each of [`WRITES`] writes added.
fn growth(before: u64, after: u64) -> Result<f64, BoxError> {
    Ok(number(after.saturating_sub(before) / u64::try_from(WRITES)?))
}

/// Returns the lengths of all files of a directory together.
fn bytes_of_files(directory: &Path) -> Result<u64, BoxError> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() {
            bytes_of_files(&entry.path())?
        } else {
            entry.metadata()?.len()
        };
    }
    Ok(bytes)
}

/// Writes objects, one after the other.
async fn write_by_api(program: &Program, times: &mut Vec<Duration>) -> Result<(), BoxError> {
    for object in 0..WRITES {
        let objects: Api<ConfigMap> = Api::namespaced(program.client(), &namespace(object));
        let patch = Patch::Merge(json!({ "data": { "text": "by the API" } }));
        let began = Instant::now();
        objects
            .patch(&name(object), &PatchParams::default(), &patch)
            .await?;
        times.push(began.elapsed());
    }
    Ok(())
}

/// Edits files of a clone, and pushes each edit.
fn write_by_hand(size: Size, folder: &Path, times: &mut Vec<Duration>) -> Result<(), BoxError> {
    call(folder, "git", &["clone", "--quiet", "objects.git", "clone"])?;
    let clone = folder.join("clone");
    for (key, value) in [("user.name", "bench"), ("user.email", "bench@example.com")] {
        call(&clone, "git", &["config", key, value])?;
    }
    for object in 0..WRITES {
        std::fs::write(clone.join(path(object)), content(object, size.commits + object))?;
        let began = Instant::now();
        call(
            &clone,
            "git",
            &["commit", "--quiet", "--all", "--message", "By hand"],
        )?;
        call(&clone, "git", &["push", "--quiet"])?;
        times.push(began.elapsed());
    }
    Ok(())
}

impl Size {
    fn title(self) -> String {
        format!("{} objects and {} commits", self.objects, self.commits)
    }

    /// Returns the repository, which is created once in the target directory.
    fn repository(self) -> Result<PathBuf, BoxError> {
        let inputs = disk::folder(disk::INPUTS)?;
        let repository = inputs.join(format!("objects-{}-{}.git", self.objects, self.commits));
        if repository.exists() {
            return Ok(repository);
        }
        // An interrupted import leaves no repository under the name.
        let unfinished = tempfile::tempdir_in(&inputs)?;
        call(
            unfinished.path(),
            "git",
            &["init", "--quiet", "--bare", "--initial-branch=main"],
        )?;
        self.import(unfinished.path())?;
        std::fs::rename(unfinished.keep(), &repository)?;
        Ok(repository)
    }

    /// Writes the history as the store would have.
    fn import(self, repository: &Path) -> Result<(), BoxError> {
        let mut child = Command::new("git")
            .args(["fast-import", "--quiet"])
            .current_dir(repository)
            .stdin(Stdio::piped())
            .spawn()?;
        let mut stream = BufWriter::new(child.stdin.take().ok_or("git has no input")?);
        for commit in 0..self.commits {
            let object = commit % self.objects;
            let (message, content) = (self.message(object, commit)?, content(object, commit));
            let time = FIRST_TIME + commit;
            write!(
                stream,
                "commit refs/heads/main\ncommitter sluice <sluice@localhost> {time} +0000\ndata {}\n{message}\n\
                 M 100644 inline {}\ndata {}\n{content}\n",
                message.len(),
                path(object),
                content.len()
            )?;
        }
        stream.flush()?;
        drop(stream);
        if child.wait()?.success() {
            Ok(())
        } else {
            Err("git fast-import failed".into())
        }
    }

    fn message(self, object: usize, commit: usize) -> Result<String, BoxError> {
        let (namespace, name) = (namespace(object), name(object));
        let verb = if commit < self.objects { "create" } else { "update" };
        let version = ((u64::try_from(commit)? + 1) << NUMBER_BITS) + 1;
        Ok(format!(
            "{verb} configmaps {namespace}/{name}\n\nResource-Version: {version} configmaps/{namespace}/{name}\nUser: admin\n"
        ))
    }
}

fn namespace(object: usize) -> String {
    format!("team-{}", object / OBJECTS_OF_NAMESPACE)
}

fn name(object: usize) -> String {
    format!("config-{object}")
}

fn path(object: usize) -> String {
    format!("core/v1/configmaps/{}/{}.yaml", namespace(object), name(object))
}

fn content(object: usize, commit: usize) -> String {
    format!(
        "apiVersion: v1\ndata:\n  commit: '{commit}'\n  text: {}\nkind: ConfigMap\nmetadata:\n  name: {}\n  namespace: {}\n",
        "a line of configuration ".repeat(16).trim_end(),
        name(object),
        namespace(object)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_has_the_file_and_the_message_that_the_store_writes() {
        assert_eq!(path(101), "core/v1/configmaps/team-1/config-101.yaml");
        let message = LARGE.message(101, LARGE.objects + 101).unwrap();
        let version = (5_102_u64 << 32) + 1;
        assert_eq!(
            message,
            format!(
                "update configmaps team-1/config-101\n\nResource-Version: {version} configmaps/team-1/config-101\nUser: admin\n"
            )
        );
        let object: ConfigMap = serde_yaml_ng::from_str(&content(101, 7)).unwrap();
        assert_eq!(object.metadata.namespace.as_deref(), Some("team-1"));
        assert_eq!(object.data.unwrap()["commit"], "7");
    }

    #[test]
    fn the_files_of_all_folders_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("objects/aa");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::write(folder.path().join("HEAD"), [0; 3]).unwrap();
        std::fs::write(inner.join("blob"), [0; 4]).unwrap();
        assert_eq!(bytes_of_files(folder.path()).unwrap(), 7);
        let all = u64::try_from(WRITES).unwrap() * 12;
        assert!((growth(7, all + 7).unwrap() - 12.0).abs() < f64::EPSILON);
    }
}

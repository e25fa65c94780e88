//! Measures `sluice up` with a store in Git that has many objects and a long history: its start, its memory and its writes, beside
//! commits by hand.

use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice_tests::program::{Program, Setup};
use sluice_tests::{BoxError, binary};

use crate::results::{Results, Row, Unit, number, seconds};
use crate::sources::call;
use crate::usage;

/// Objects of the repository.
const OBJECTS: usize = 5_000;
/// Its commits; each writes one object.
const COMMITS: usize = 50_000;
/// Objects of a namespace, so of a directory.
const OBJECTS_OF_NAMESPACE: usize = 100;
/// Writes of a round, by the API and by hand.
const WRITES: usize = 50;
/// Most rounds: a start takes long.
pub(crate) const MAX_ROUNDS: usize = 3;
/// Timeout of a start.
const START_TIMEOUT: Duration = Duration::from_mins(10);
/// Time of the first commit, in seconds since 1970.
const FIRST_TIME: usize = 1_700_000_000;
/// Bits of a resourceVersion below the number of its commit.
const NUMBER_BITS: u32 = 32;

/// The samples of all rounds.
#[derive(Default)]
struct Samples {
    starts: Vec<Duration>,
    memory: Vec<f64>,
    by_api: Vec<Duration>,
    by_hand: Vec<Duration>,
}

/// Measures at most [`MAX_ROUNDS`] rounds, each on a clone of the repository.
pub(crate) async fn measure(rounds: usize, results: &mut Results) -> Result<(), BoxError> {
    let repository = repository()?;
    let mut samples = Samples::default();
    for _ in 0..rounds.clamp(1, MAX_ROUNDS) {
        measure_round(&repository, &mut samples).await?;
    }
    let title = format!("store in Git, {OBJECTS} objects and {COMMITS} commits: start of sluice up");
    results.add(Row::times(title, &samples.starts));
    results.add(Row::new("its private memory", Unit::Bytes, samples.memory));
    let row = Row::times("a write of one object", &samples.by_api);
    results.add(row.beside("git commit, git push", seconds(&samples.by_hand)));
    Ok(())
}

async fn measure_round(repository: &Path, samples: &mut Samples) -> Result<(), BoxError> {
    let folder = tempfile::tempdir()?;
    let origin = repository.display().to_string();
    call(
        folder.path(),
        "git",
        &["clone", "--quiet", "--bare", &origin, "objects.git"],
    )?;
    let store = format!("git:{}", folder.path().join("objects.git").display());
    let setup = Setup::new(folder.path())
        .with_store(&store)
        .with_start_timeout(START_TIMEOUT);
    setup.write(&[])?;
    let began = Instant::now();
    let program = Program::start(setup).await?;
    samples.starts.push(began.elapsed());
    let id = program.id().ok_or("sluice has ended")?;
    samples.memory.push(number(usage::of_process(id)?.private));
    write_by_api(&program, &mut samples.by_api).await?;
    write_by_hand(folder.path(), &mut samples.by_hand)?;
    program.end().await
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
fn write_by_hand(folder: &Path, times: &mut Vec<Duration>) -> Result<(), BoxError> {
    call(folder, "git", &["clone", "--quiet", "objects.git", "clone"])?;
    let clone = folder.join("clone");
    for (key, value) in [("user.name", "bench"), ("user.email", "bench@example.com")] {
        call(&clone, "git", &["config", key, value])?;
    }
    for object in 0..WRITES {
        std::fs::write(clone.join(path(object)), content(object, COMMITS + object))?;
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

/// Returns the repository, which is created once in the target directory.
fn repository() -> Result<PathBuf, BoxError> {
    let program = binary("sluice")?;
    let target = program.parent().and_then(Path::parent);
    let inputs = target
        .ok_or("the program is in no target directory")?
        .join("bench-inputs");
    let repository = inputs.join(format!("objects-{OBJECTS}-{COMMITS}.git"));
    if repository.exists() {
        return Ok(repository);
    }
    std::fs::create_dir_all(&inputs)?;
    // An interrupted import leaves no repository under the name.
    let unfinished = tempfile::tempdir_in(&inputs)?;
    call(
        unfinished.path(),
        "git",
        &["init", "--quiet", "--bare", "--initial-branch=main"],
    )?;
    import(unfinished.path())?;
    std::fs::rename(unfinished.keep(), &repository)?;
    Ok(repository)
}

/// Writes the history as the store would have.
fn import(repository: &Path) -> Result<(), BoxError> {
    let mut child = Command::new("git")
        .args(["fast-import", "--quiet"])
        .current_dir(repository)
        .stdin(Stdio::piped())
        .spawn()?;
    let mut stream = BufWriter::new(child.stdin.take().ok_or("git has no input")?);
    for commit in 0..COMMITS {
        let object = commit % OBJECTS;
        let (message, content) = (message(object, commit)?, content(object, commit));
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

fn message(object: usize, commit: usize) -> Result<String, BoxError> {
    let (namespace, name) = (namespace(object), name(object));
    let verb = if commit < OBJECTS { "create" } else { "update" };
    let version = ((u64::try_from(commit)? + 1) << NUMBER_BITS) + 1;
    Ok(format!(
        "{verb} configmaps {namespace}/{name}\n\nResource-Version: {version} configmaps/{namespace}/{name}\nUser: admin\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_has_the_file_and_the_message_that_the_store_writes() {
        assert_eq!(path(101), "core/v1/configmaps/team-1/config-101.yaml");
        let message = message(101, OBJECTS + 101).unwrap();
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
}

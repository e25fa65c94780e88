//! `make recording`: runs the first commands of a user in a pseudo-terminal against a real `sluice up`, Git and CLI. Writes an asciicast, and the
//! animated image of the README.

mod cast;
mod scenario;
mod screen;
mod svg;
mod terminal;

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use sluice_harness::directory::TestDirectory;
use sluice_harness::git::{GitServer, Repository};
use sluice_tests::program::{Program, Setup};
use sluice_tests::scenario::{Scenario, TIMEOUT};
use sluice_tests::{BoxError, binary};

use crate::cast::Recording;
use crate::scenario::{ADDRESS, Before, STEPS, Step};
use crate::terminal::{Output, Shell};

const TITLE: &str = "Sluice in a terminal: from a Git repository to an approved apply";
const DESCRIPTION: &str = "A user creates a source and a stack with sluice create, reads the plan, and approves it. After a push, \
     sluice shows the new plan, which destroys one server and creates another; the user approves it, follows the log of the apply, and lists \
     the history.";
/// Maximum size of the image in bytes: a page with it is to load fast.
const MAX_SIZE: usize = 300 << 10;
/// The user whose name the commits have.
const USER: [&str; 2] = ["Ada", "ada@example.com"];
/// The time of the commits, so that their names are the same in each recording.
const COMMIT_TIME: &str = "1700000600 +0000";

/// Records the first commands of a user.
#[derive(Parser)]
struct Args {
    /// Write the asciicast to this file.
    #[arg(long, value_name = "FILE")]
    cast: PathBuf,
    /// Write the animated image to this file.
    #[arg(long, value_name = "FILE")]
    svg: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    match record(&Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("no recording: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn record(args: &Args) -> Result<(), BoxError> {
    let folder = TestDirectory::create()?;
    let repository = Repository::create()?;
    repository.commit_files(&scenario::FILES, "The shop")?;
    // The user pushes to the branch that is checked out here.
    repository.git(["config", "receive.denyCurrentBranch", "ignore"])?;
    let server = GitServer::start().await?;
    let address = server.serve("shop", &repository);
    let setup = Setup::new(folder.path());
    setup.write(&[])?;
    let program = Program::start(setup).await?;
    let shell = shell(folder.path(), &repository, &program)?;
    let names = [
        (address.clone(), ADDRESS),
        (folder.path().display().to_string(), scenario::HOME),
        (repository.path().display().to_string(), scenario::HOME),
    ];
    let scenario = Scenario::new(program.client());
    let mut recording = Recording::default();
    for step in STEPS {
        wait_for(step.before, &scenario, &repository).await?;
        recording.type_command(&step);
        let output = run(&shell, &step, &address).await?;
        recording.add_output(&renamed(output, &names));
    }
    program.end().await?;
    write(
        args,
        &recording,
        &private_texts(&[folder.path(), repository.path()]),
    )
}

/// Clones the repository, links the program, and returns a shell that finds both.
fn shell(folder: &Path, repository: &Repository, program: &Program) -> Result<Shell, BoxError> {
    let (directory, programs) = (folder.join("shop"), folder.join("bin"));
    let target = directory.display().to_string();
    repository.git(["clone", "--quiet", ".", target.as_str()])?;
    // In a container the temporary directory may belong to another user than the process.
    std::fs::write(folder.join(".gitconfig"), "[safe]\n\tdirectory = *\n")?;
    std::fs::create_dir(&programs)?;
    symlink(binary("sluice")?, programs.join("sluice"))?;
    let path = format!("{}:{}", programs.display(), sluice_harness::cli::search_path()?);
    let [name, email] = USER.map(str::to_owned);
    let variables = vec![
        ("PATH", path),
        ("HOME", folder.display().to_string()),
        ("KUBECONFIG", program.kubeconfig().display().to_string()),
        ("TERM", "xterm-256color".to_owned()),
        ("LC_ALL", "C.UTF-8".to_owned()),
        ("GIT_CONFIG_NOSYSTEM", "1".to_owned()),
        ("GIT_AUTHOR_NAME", name.clone()),
        ("GIT_AUTHOR_EMAIL", email.clone()),
        ("GIT_AUTHOR_DATE", COMMIT_TIME.to_owned()),
        ("GIT_COMMITTER_NAME", name),
        ("GIT_COMMITTER_EMAIL", email),
        ("GIT_COMMITTER_DATE", COMMIT_TIME.to_owned()),
    ];
    Ok(Shell { directory, variables })
}

/// Waits for what must have happened before a command is typed.
async fn wait_for(before: Before, scenario: &Scenario, repository: &Repository) -> Result<(), BoxError> {
    match before {
        Before::Nothing => Ok(()),
        Before::Applied => {
            let revision = format!("main@sha1:{}", repository.head()?);
            Ok(scenario.wait_until_applied(&revision).await?)
        }
        Before::ApplyStarted => tokio::time::timeout(TIMEOUT, apply_started(scenario))
            .await
            .map_err(|_| "the approved plan is not applied")?,
    }
}

/// Waits until the newest run is an apply.
async fn apply_started(scenario: &Scenario) -> Result<(), BoxError> {
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    loop {
        tick.tick().await;
        let runs = scenario.runs().await?;
        if runs.last().is_some_and(|run| run.action == "Apply") {
            return Ok(());
        }
    }
}

/// Runs the command of a step with the real address of the repository.
async fn run(shell: &Shell, step: &Step, address: &str) -> Result<Output, BoxError> {
    let (shell, answer) = (shell.clone(), step.answer);
    let command = step.command.replace(ADDRESS, address);
    let output = tokio::task::spawn_blocking(move || shell.run(&command, answer)).await??;
    if output.code == Some(step.code) {
        return Ok(output);
    }
    Err(format!(
        "`{}` ended with {:?} instead of {}:\n{}",
        step.command,
        output.code,
        step.code,
        output.text()
    )
    .into())
}

/// Replaces the names of this machine in what a command printed.
fn renamed(output: Output, names: &[(String, &str)]) -> Vec<(Duration, String)> {
    let rename = |text: String| {
        names
            .iter()
            .fold(text, |text, (name, shown)| text.replace(name, shown))
    };
    output
        .chunks
        .into_iter()
        .map(|(time, text)| (time, rename(text)))
        .collect()
}

/// Returns texts that a recording must not have: they identify the machine, or are not printable.
fn private_texts(paths: &[&Path]) -> Vec<String> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let home = std::env::var("HOME").unwrap_or_default();
    let mut texts: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    texts.extend([
        host,
        home,
        "127.0.0.1".to_owned(),
        "localhost".to_owned(),
        "\u{fffd}".to_owned(),
    ]);
    // A short name of a host may be a part of any word.
    texts.retain(|text| text.len() > 2);
    texts
}

fn write(args: &Args, recording: &Recording, private: &[String]) -> Result<(), BoxError> {
    let image = svg::render(
        recording.events(),
        &svg::Texts {
            title: TITLE,
            description: DESCRIPTION,
            digest: &scenario::digest(),
        },
    );
    if image.len() > MAX_SIZE {
        return Err(format!("the image has {} bytes; the maximum is {MAX_SIZE}", image.len()).into());
    }
    let cast = recording.asciicast(TITLE)?;
    for (text, file) in private.iter().flat_map(|text| [(text, &cast), (text, &image)]) {
        if let Some((before, after)) = file.split_once(text.as_str()) {
            let near: String = before
                .chars()
                .rev()
                .take(80)
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
                .collect();
            let after: String = after.chars().take(80).collect();
            return Err(format!("the recording would show {text:?}: {near}{text}{after}").into());
        }
    }
    for (path, content) in [(&args.cast, cast), (&args.svg, image)] {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        std::fs::write(path, content)?;
        eprintln!("{}", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_machine_are_replaced_or_found() {
        let output = Output {
            chunks: vec![(
                Duration::ZERO,
                "cloned http://127.0.0.1:80/shop.git to /tmp/x/shop".to_owned(),
            )],
            code: Some(0),
        };
        let names = [
            ("http://127.0.0.1:80/shop.git".to_owned(), ADDRESS),
            ("/tmp/x".to_owned(), scenario::HOME),
        ];
        let texts = renamed(output, &names);
        assert_eq!(texts[0].1, format!("cloned {ADDRESS} to {}/shop", scenario::HOME));
        let private = private_texts(&[Path::new("/tmp/x")]);
        assert!(private.contains(&"/tmp/x".to_owned()) && private.contains(&"127.0.0.1".to_owned()));
        assert!(private.iter().all(|text| text.len() > 2));
    }

    #[test]
    fn a_recording_that_names_the_machine_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let args = Args {
            cast: folder.path().join("a/a.cast"),
            svg: folder.path().join("a.svg"),
        };
        let mut recording = Recording::default();
        recording.add_output(&[(Duration::ZERO, "a file in /home/machine\r\n".to_owned())]);
        let error = write(&args, &recording, &["/home/machine".to_owned()]).unwrap_err();
        assert!(
            error.to_string().contains("/home/machine") && !args.cast.exists(),
            "{error}"
        );
        write(&args, &recording, &["/home/other".to_owned()]).unwrap();
        let image = std::fs::read_to_string(&args.svg).unwrap();
        assert!(
            image.contains("a file in") && image.contains(&scenario::digest()),
            "{image}"
        );
        assert!(args.cast.exists());
    }
}

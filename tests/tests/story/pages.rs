//! The commands of the README and of the pages, run as they stand: `sluice up` is started by the README's own commands, and what the
//! pages say about plans, approvals and runs is typed on its stack. Blocks with a prompt (`$ `) show what is printed: they are no part.

use super::{
    within_deadline,
    world::{Origin, leftovers},
};
use rustix::process::{Pid, Signal, kill_process_group};
use sluice_harness::cli;
use sluice_runtime::client;
use sluice_tests::{
    binary,
    story::{Commit, PATIENCE, Story},
};
use std::{
    fs::{File, Permissions},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use tokio::process::{Child, Command};

const README: &str = include_str!("../../../README.md");
const APPROVALS: &str = include_str!("../../../docs/approvals.md");
const STACKS: &str = include_str!("../../../docs/terraform.md");
const RUNS: &str = include_str!("../../../docs/terraformrun.md");

/// The log of `sluice up`.
const PROGRAM: &str = "program";

/// The one block of commands below a heading.
fn commands(page: &'static str, heading: &str) -> &'static str {
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).expect(heading);
    let section = section.split("\n## ").next().unwrap();
    let blocks = section.split("```console\n").skip(1);
    let mut blocks = blocks
        .map(|block| block.split("```").next().unwrap())
        .filter(|block| !block.starts_with("$ "));
    let block = blocks.next().expect(heading);
    assert_eq!(blocks.next(), None, "{heading}: another block");
    block
}

/// A folder that has of the repository what the README's commands name.
struct Desk {
    folder: tempfile::TempDir,
    path: String,
}

impl Desk {
    /// `editor` is what a person does to the files that are named.
    fn set(editor: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = sluice_harness::gobuild::workspace();
        symlink(root.join("config"), folder.path().join("config")).unwrap();
        let release = folder.path().join("target/release");
        std::fs::create_dir_all(&release).unwrap();
        symlink(binary("sluice").unwrap(), release.join("sluice")).unwrap();
        let program = folder.path().join("editor");
        std::fs::write(&program, editor).unwrap();
        std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let kubectl = cli::kubectl().unwrap();
        let path = format!(
            "{}:{}",
            kubectl.parent().unwrap().display(),
            cli::search_path().unwrap()
        );
        Self { folder, path }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("state/api/kubeconfig")
    }

    /// A shell that ends at the first command that fails.
    fn shell(&self, commands: &str, log: &str) -> Child {
        let log = File::create(self.folder.path().join(log)).unwrap();
        Command::new("bash")
            .args(["-euo", "pipefail", "-c", commands])
            .current_dir(self.folder.path())
            .env("PATH", &self.path)
            .env("HOME", self.folder.path())
            .env("EDITOR", self.folder.path().join("editor"))
            .env("KUBECONFIG", self.kubeconfig())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap()
    }

    /// Runs commands to their end, which must be a good one. Gives what they printed.
    async fn type_in(&self, commands: &str) -> String {
        let ended = tokio::time::timeout(PATIENCE, self.shell(commands, "typed").wait()).await;
        let log = self.log("typed");
        let ended = ended.unwrap_or_else(|_| panic!("not done in {PATIENCE:?}:\n{commands}\n{log}"));
        assert!(ended.unwrap().success(), "{commands}\n{log}");
        log
    }
}

/// Waits until the program has written the file.
async fn appears(path: &Path, program: &mut Child, desk: &Desk) {
    let looking = async {
        while !path.exists() {
            assert_eq!(program.try_wait().unwrap(), None, "{}", desk.log(PROGRAM));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let there = tokio::time::timeout(PATIENCE, looking).await;
    assert!(there.is_ok(), "no {}: {}", path.display(), desk.log(PROGRAM));
}

#[test]
fn the_commands_of_the_pages_run_as_they_stand() {
    within_deadline(async {
        let origin = Origin::start().await;
        // The address, the folder of the module, and what the pages take for granted.
        let desk = Desk::set(&format!(
            "#!/bin/sh\nsed -i -e 's|https://github.com/example/stacks|{}|' -e 's|interval: 1m|interval: 2s|' \
             -e 's|path: ./app|path: ./stack\\n  storeReadablePlan: human|' \"$@\"\n",
            origin.url
        ));
        // What it builds was built for this test.
        let (build, start) = commands(README, "Run it on your own stacks")
            .split_once('\n')
            .unwrap();
        assert_eq!(build, "cargo build --release --bins");
        let mut program = desk.shell(start, PROGRAM);
        appears(&desk.kubeconfig(), &mut program, &desk).await;
        let settings = client::Settings {
            kubeconfig: Some(desk.kubeconfig()),
            ..client::Settings::default()
        };
        let story = Story::new(client::build(&settings).await.unwrap());

        let first = story.pending_plan(None).await.unwrap();
        let said = desk.type_in(commands(RUNS, "Reading the history")).await;
        assert!(said.contains("terraform_data.instance"), "{said}");
        let said = desk.type_in(commands(APPROVALS, "From a plan to an apply")).await;
        assert!(said.contains("terraform_data.instance"), "{said}");
        approved(&story, &origin).await;

        Commit::NewVersion.make(&origin.repository).unwrap();
        let second = story.pending_plan(Some(&first)).await.unwrap();
        desk.type_in(commands(STACKS, "Approval")).await;
        approved(&story, &origin).await;

        let third = [("stack/version.tf", "locals {\n  version = \"1.2.0\"\n}\n")];
        origin
            .repository
            .commit_files(&third, "The shop, version 1.2.0")
            .unwrap();
        story.pending_plan(Some(&second)).await.unwrap();
        let said = desk.type_in(commands(README, "With kubectl")).await;
        assert!(said.contains("condition met"), "{said}");
        assert!(
            said.ends_with("deleted\n") || said.contains("\"app\" deleted"),
            "{said}"
        );
        assert_eq!(story.stacks().get_opt("app").await.unwrap(), None);

        let group = Pid::from_raw(program.id().unwrap().cast_signed()).unwrap();
        kill_process_group(group, Signal::INT).unwrap();
        let ended = tokio::time::timeout(PATIENCE, program.wait()).await;
        ended.expect("Ctrl-C ends it").unwrap();
        assert_eq!(leftovers(desk.folder.path()), Vec::<String>::new());
    });
}

/// Waits until what was approved is applied.
async fn approved(story: &Story, origin: &Origin) {
    let head = origin.repository.head().unwrap();
    story.applied(&format!("main@sha1:{head}")).await.unwrap();
}

//! The commands of the migration page, in blocks by section and number of the step.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use sluice_harness::cli;
use sluice_tests::binary;
use tokio::process::Command;

use crate::environment::config;

const TEXT: &str = include_str!("../../../../docs/guides/migrating-from-tofu-controller.md");
/// Timeout of the commands of a block.
const SHELL_TIMEOUT: Duration = Duration::from_mins(4);
/// Section and number of a step.
type StepId = (String, u32);

/// The page with the steps that were run.
pub(crate) struct Page {
    blocks: BTreeMap<StepId, String>,
    run: Vec<StepId>,
    folder: PathBuf,
}

impl Page {
    /// Reads the page. Commands run in this folder, which is like a checkout and contains the kubeconfig `admin`.
    pub(crate) fn read(folder: &Path) -> Self {
        std::os::unix::fs::symlink(config(""), folder.join("config")).unwrap();
        Self {
            blocks: blocks(TEXT),
            run: Vec::new(),
            folder: folder.to_owned(),
        }
    }

    /// Returns the text of the page.
    pub(crate) const fn text() -> &'static str {
        TEXT
    }

    /// Runs the commands of a step; returns their output.
    pub(crate) async fn step(&mut self, section: &str, number: u32) -> String {
        self.step_for(section, number, "").await
    }

    /// As [`Page::step`], for the stack with this name.
    pub(crate) async fn step_for(&mut self, section: &str, number: u32, stack: &str) -> String {
        let step_id = (section.to_owned(), number);
        let commands = self
            .blocks
            .get(&step_id)
            .unwrap_or_else(|| panic!("no commands at {step_id:?}"))
            .replace("-n NAMESPACE", "-n default")
            .replace("=NAMESPACE:", "=default:")
            .replace(" terraform NAME ", &format!(" terraform {stack} "));
        self.run.push(step_id);
        shell(&self.folder, &commands).await
    }

    /// Asserts that all commands of the page were run.
    pub(crate) fn assert_all_run(&self) {
        let missing: Vec<_> = self
            .blocks
            .keys()
            .filter(|step_id| !self.run.contains(step_id))
            .collect();
        assert!(missing.is_empty(), "never run: {missing:?}");
    }
}

/// Runs commands in this folder; returns their output.
pub(crate) async fn shell(folder: &Path, commands: &str) -> String {
    let mut path = OsString::new();
    for program in [
        cli::kubectl().unwrap(),
        cli::helm().unwrap(),
        binary("sluice").unwrap(),
    ] {
        path.push(program.parent().unwrap());
        path.push(":");
    }
    path.push(std::env::var_os("PATH").unwrap());
    let child = Command::new("sh")
        .args(["-ec", commands])
        .current_dir(folder)
        .env("KUBECONFIG", folder.join("admin"))
        // kubectl caches the served kinds there.
        .env("HOME", folder)
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let output = tokio::time::timeout(SHELL_TIMEOUT, child.wait_with_output()).await;
    let output = output
        .unwrap_or_else(|_| panic!("timeout after {SHELL_TIMEOUT:?}: {commands}"))
        .unwrap();
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    assert!(output.status.success(), "{commands}\n{printed}");
    printed
}

/// Returns the `console` blocks of a page, without the indentation of their steps.
fn blocks(text: &str) -> BTreeMap<StepId, String> {
    let (mut blocks, mut section, mut number, mut open) = (BTreeMap::new(), "", 0, None::<String>);
    let mut indentation = 0;
    for line in text.lines() {
        match (&mut open, line.trim()) {
            (None, "```console") => {
                indentation = line.len() - line.trim_start().len();
                open = Some(String::new());
            }
            (Some(block), "```") => {
                let step_id = (section.to_owned(), number);
                let commands: &mut String = blocks.entry(step_id).or_default();
                commands.push_str(block);
                open = None;
            }
            (Some(block), _) => {
                block.push_str(line.get(indentation..).unwrap_or_default());
                block.push('\n');
            }
            (None, _) => {
                if let Some(heading) = line.strip_prefix("## ") {
                    (section, number) = (heading, 0);
                }
                let prefix = line.split_once(". ").map(|(prefix, _)| prefix.parse());
                if let Some(Ok(step)) = prefix {
                    number = step;
                }
            }
        }
    }
    blocks
}

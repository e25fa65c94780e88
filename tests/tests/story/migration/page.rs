//! The page about migrating, as it is run: its commands stand in blocks, by section and number of the step.

use crate::world::config;
use sluice_harness::cli;
use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Stdio,
};
use tokio::process::Command;

const TEXT: &str = include_str!("../../../../docs/migrating-from-tofu-controller.md");
/// Where a section's steps are found: its heading and the number.
type Place = (String, u32);

/// The page, and which of its commands were run.
pub(crate) struct Page {
    blocks: BTreeMap<Place, String>,
    run: Vec<Place>,
    folder: PathBuf,
}

impl Page {
    /// Reads the page. Its commands are run in this folder, in which `admin` is the kubeconfig, as in a checkout.
    pub(crate) fn read(folder: &Path) -> Self {
        std::os::unix::fs::symlink(config(""), folder.join("config")).unwrap();
        Self {
            blocks: blocks(TEXT),
            run: Vec::new(),
            folder: folder.to_owned(),
        }
    }

    /// What it says.
    pub(crate) const fn text() -> &'static str {
        TEXT
    }

    /// Runs the commands of a step, and returns what they say.
    pub(crate) async fn step(&mut self, section: &str, number: u32) -> String {
        self.step_for(section, number, "").await
    }

    /// The same, for the stack with this name.
    pub(crate) async fn step_for(&mut self, section: &str, number: u32, stack: &str) -> String {
        let place = (section.to_owned(), number);
        let commands = self
            .blocks
            .get(&place)
            .unwrap_or_else(|| panic!("no commands at {place:?}"))
            .replace("-n NAMESPACE ", "-n default ")
            .replace(" terraform NAME ", &format!(" terraform {stack} "));
        self.run.push(place);
        shell(&self.folder, &commands).await
    }

    /// Nothing that the page tells to type was left out.
    pub(crate) fn assert_all_run(&self) {
        let left: Vec<_> = self
            .blocks
            .keys()
            .filter(|place| !self.run.contains(place))
            .collect();
        assert!(left.is_empty(), "never run: {left:?}");
    }
}

/// Runs commands as a person types them, in this folder; returns what they say.
pub(crate) async fn shell(folder: &Path, commands: &str) -> String {
    let kubectl = cli::kubectl().unwrap();
    let mut path = OsString::from(kubectl.parent().unwrap());
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    let output = Command::new("sh")
        .args(["-ec", commands])
        .current_dir(folder)
        .env("KUBECONFIG", folder.join("admin"))
        // kubectl remembers there which kinds are served.
        .env("HOME", folder)
        .env("PATH", path)
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{commands}\n{said}");
    said
}

/// The `console` blocks of a page.
fn blocks(text: &str) -> BTreeMap<Place, String> {
    let (mut blocks, mut section, mut number, mut open) = (BTreeMap::new(), "", 0, None::<String>);
    for line in text.lines() {
        match (&mut open, line.trim()) {
            (None, "```console") => open = Some(String::new()),
            (Some(block), "```") => {
                let place = (section.to_owned(), number);
                let held: &mut String = blocks.entry(place).or_default();
                held.push_str(block);
                open = None;
            }
            (Some(block), line) => {
                block.push_str(line);
                block.push('\n');
            }
            (None, _) => {
                if let Some(heading) = line.strip_prefix("## ") {
                    (section, number) = (heading, 0);
                }
                let front = line.split_once(". ").map(|(front, _)| front.parse());
                if let Some(Ok(step)) = front {
                    number = step;
                }
            }
        }
    }
    blocks
}

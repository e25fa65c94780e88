//! `sluice up` on a terminal: the screen, its keys, and the terminal that the user gets back.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use sluice_harness::cli::search_path;
use sluice_harness::directory::TestDirectory;
use sluice_harness::git::{GitServer, Repository};

use crate::fixture::TIMEOUT;
use crate::picture::Picture;
use crate::terminal;

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

/// `sluice up` in a pseudo-terminal.
struct Session {
    terminal: File,
    child: Child,
    chunks: Receiver<Vec<u8>>,
    picture: Picture,
    /// All that the program wrote.
    text: String,
}

impl Session {
    fn start(folder: &Path, arguments: &[&str], term: &str) -> Self {
        let (terminal, program_side) = terminal::open(100);
        let streams = || Stdio::from(program_side.try_clone().unwrap());
        let child = Command::new(SLUICE)
            .args(["up", "--state"])
            .arg(folder.join("state"))
            .args(arguments)
            .env("PATH", search_path().unwrap())
            .env("TERM", term)
            .env_remove("NO_COLOR")
            .stdin(streams())
            .stdout(streams())
            .stderr(streams())
            .spawn()
            .unwrap();
        drop(program_side);
        let (send, chunks) = mpsc::channel();
        let mut reader = terminal.try_clone().unwrap();
        // The read fails with EIO when the program has closed its side.
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if send.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self {
            terminal,
            child,
            chunks,
            picture: Picture::default(),
            text: String::new(),
        }
    }

    /// Waits until a line has all these texts.
    fn wait_for(&mut self, texts: &[&str]) {
        let deadline = Instant::now() + TIMEOUT;
        let has_line = |picture: &Picture| {
            let lines = picture.lines();
            lines
                .iter()
                .any(|line| texts.iter().all(|text| line.contains(text)))
        };
        while !has_line(&self.picture) {
            assert!(
                self.read(deadline),
                "no line with {texts:?} in time in:\n{}",
                self.picture.lines().join("\n")
            );
        }
    }

    /// Reads a chunk; returns false if there is none until the deadline, or none any more.
    fn read(&mut self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(chunk) = self.chunks.recv_timeout(left) else {
            return false;
        };
        self.text.push_str(&String::from_utf8_lossy(&chunk));
        self.picture.write(&chunk);
        true
    }

    fn press(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    /// Presses Escape and waits for the overview: a key that follows at once would be read as Alt and that key.
    fn back(&mut self) {
        self.press("\x1b");
        self.wait_for(&["enter plan"]);
    }

    /// Whether lines are edited and echoed, as a shell has it.
    fn is_given_back(&self) -> bool {
        let modes = tcgetattr(&self.terminal).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Waits for the end and returns the exit code.
    fn end(&mut self) -> Option<i32> {
        let deadline = Instant::now() + TIMEOUT;
        while self.read(deadline) {}
        assert!(Instant::now() < deadline, "sluice does not end:\n{}", self.text);
        self.child.wait().unwrap().code()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // After a failure only: a process that has ended was waited for.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Writes a source and a stack whose plan needs an approval.
fn write_manifests(folder: &Path, url: &str) {
    let manifests = format!(
        "apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {{name: code, namespace: default}}
spec: {{url: '{url}', interval: 1m, ref: {{branch: main}}}}
---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {{name: net, namespace: default}}
spec: {{interval: 1h, path: ./, sourceRef: {{kind: GitRepository, name: code}}}}
"
    );
    std::fs::write(folder.join("manifests.yaml"), manifests).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_read_approved_and_applied_by_keys() {
    let (git, repository) = (GitServer::start().await.unwrap(), Repository::create().unwrap());
    let module = "resource \"terraform_data\" \"a\" {}\n";
    repository.commit_files(&[("main.tf", module)], "first").unwrap();
    let folder = TestDirectory::create().unwrap();
    write_manifests(folder.path(), &git.serve("code", &repository));
    let path = folder.path().to_owned();
    tokio::task::spawn_blocking(move || approve_by_keys(&path))
        .await
        .unwrap();
}

fn approve_by_keys(folder: &Path) {
    let manifests = folder.join("manifests.yaml").display().to_string();
    let mut session = Session::start(folder, &["-f", &manifests], "xterm-256color");
    session.wait_for(&["> default/net", "AwaitsApproval", "+1 ~0 -0"]);
    session.wait_for(&["default/code", "Ready", "main@sha1:"]);
    assert!(!session.is_given_back(), "the screen reads single keys");
    session.press("p");
    session.wait_for(&["+ terraform_data.a (create)"]);
    session.press("a");
    session.wait_for(&["Approve plan-main-", "[y/N]"]);
    session.press("y");
    session.wait_for(&["Approved plan-main-"]);
    session.back();
    session.wait_for(&["default/net", " Ready "]);
    session.press("l");
    session.wait_for(&["Run 2: Apply"]);
    session.wait_for(&["Succeeded after"]);
    session.back();
    // A terminal sends Alt+q as escape and q, one after the other.
    session.wait_for(&["> default/net"]);
    session.press("q");
    session.wait_for(&["End sluice up?", "[y/N]"]);
    session.press("y");
    assert_eq!(session.end(), Some(0), "{}", session.text);
    assert!(session.is_given_back());
    assert!(session.text.contains("\x1b[?1049l"), "the alternate screen ends");
    let log = std::fs::read_to_string(folder.join("state/sluice.log")).unwrap();
    assert!(
        log.lines()
            .all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()),
        "{log}"
    );
    assert!(log.contains("stopping"), "the log has the end: {log}");
}

#[test]
fn a_signal_gives_the_terminal_back_and_a_new_size_is_used() {
    let folder = TestDirectory::create().unwrap();
    let mut session = Session::start(folder.path(), &[], "xterm-256color");
    session.wait_for(&["sluice up", "0 stacks"]);
    session.wait_for(&["The log is ", "state/sluice.log"]);
    let size = Winsize {
        ws_row: 20,
        ws_col: 60,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&session.terminal, size).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while !session.picture.lines()[19].ends_with("q quit") {
        assert!(session.read(deadline), "{}", session.picture.lines().join("\n"));
    }
    let id = Pid::from_raw(session.child.id().cast_signed()).unwrap();
    kill_process(id, Signal::TERM).unwrap();
    assert_eq!(session.end(), Some(0), "{}", session.text);
    assert!(session.is_given_back());
    assert!(session.text.contains("\x1b[?1049l"), "{}", session.text);
}

#[test]
fn lines_are_printed_with_a_flag_and_on_a_simple_terminal() {
    for (arguments, term) in [
        (["--plain"].as_slice(), "xterm-256color"),
        ([].as_slice(), "dumb"),
    ] {
        let folder = TestDirectory::create().unwrap();
        let mut session = Session::start(folder.path(), arguments, term);
        session.wait_for(&["The API serves on 127.0.0.1:"]);
        let id = Pid::from_raw(session.child.id().cast_signed()).unwrap();
        kill_process(id, Signal::INT).unwrap();
        assert_eq!(session.end(), Some(0), "{}", session.text);
        assert!(!session.text.contains("\x1b[?1049h"), "{term}: {}", session.text);
    }
}

#[test]
fn an_error_of_a_controller_is_printed_on_the_terminal_of_the_user() {
    let folder = TestDirectory::create().unwrap();
    let arguments = ["--otlp-endpoint", "ftp://127.0.0.1"];
    let mut session = Session::start(folder.path(), &arguments, "xterm-256color");
    assert_eq!(session.end(), Some(1), "{}", session.text);
    let (screen, after) = session.text.split_once("\x1b[?1049l").unwrap();
    assert!(screen.contains("\x1b[?1049h"), "{screen}");
    assert!(after.contains("sluice up: "), "{after}");
    assert!(session.is_given_back());
}

//! `sluice up` on a terminal: the screen, its keys, and the terminal that the user gets back.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use rustix::process::Signal;
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use sluice_harness::cli::search_path;
use sluice_harness::directory::TestDirectory;
use sluice_harness::git::{GitServer, Repository};
use sluice_harness::terminal::{ROWS, Terminal};
use vt100::Parser;

use crate::fixture::TIMEOUT;
use crate::terminal::lines;

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

/// Columns of the terminal.
const COLUMNS: u16 = 100;

/// `sluice up` in a pseudo-terminal.
struct Session {
    terminal: Terminal,
    picture: Parser,
}

impl Session {
    fn start(folder: &Path, arguments: &[&str], term: &str) -> Self {
        let mut command = Command::new(SLUICE);
        command
            .args(["up", "--state"])
            .arg(folder.join("state"))
            .args(arguments)
            .env("PATH", search_path().unwrap())
            .env("TERM", term)
            .env_remove("NO_COLOR")
            // Of a file that is missing, Terraform warns after each command, which moves other lines off the screen.
            .env_remove("TF_CLI_CONFIG_FILE");
        Self {
            terminal: Terminal::start(command, COLUMNS).unwrap(),
            picture: Parser::new(ROWS, COLUMNS, 0),
        }
    }

    /// Waits until a line has all these texts.
    fn wait_for(&mut self, texts: &[&str]) {
        let deadline = Instant::now() + TIMEOUT;
        let has_line = |picture: &Parser| {
            lines(picture)
                .iter()
                .any(|line| texts.iter().all(|text| line.contains(text)))
        };
        while !has_line(&self.picture) {
            assert!(
                self.read(deadline),
                "no line with {texts:?} in time in:\n{}",
                lines(&self.picture).join("\n")
            );
        }
    }

    /// Reads a chunk; returns false if there is none until the deadline, or none any more.
    fn read(&mut self, deadline: Instant) -> bool {
        let Some(chunk) = self.terminal.read(deadline) else {
            return false;
        };
        self.picture.process(&chunk);
        true
    }

    fn press(&mut self, keys: &str) {
        self.terminal.press(keys).unwrap();
    }

    /// Presses Escape and waits for the overview: a key that follows at once would be read as Alt and that key.
    fn back(&mut self) {
        self.press("\x1b");
        // Of all pages only the overview has a filter.
        self.wait_for(&["/ filter"]);
    }

    /// Whether lines are edited and echoed, as a shell has it.
    fn is_given_back(&self) -> bool {
        let modes = tcgetattr(self.terminal.side()).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// All that the program wrote.
    fn text(&self) -> String {
        self.terminal.text()
    }

    /// Waits for the end and returns the exit code.
    fn end(&mut self) -> Option<i32> {
        let ended = self.terminal.end(Instant::now() + TIMEOUT).unwrap();
        let Some(status) = ended else {
            panic!("sluice does not end:\n{}", self.text());
        };
        status.code()
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
async fn a_plan_is_read_rejected_replaced_approved_and_applied_by_keys() {
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

/// Rejects the plan that is shown; the first answer is no.
fn reject_by_keys(session: &mut Session) {
    for (answer, notice) in [("n", "Nothing was rejected."), ("y", "Rejected plan-main-")] {
        session.press("x");
        session.wait_for(&["Reject plan-main-", "[y/N]"]);
        session.press(answer);
        session.wait_for(&[notice]);
    }
    session.back();
    session.wait_for(&["> default/net", " Rejected "]);
}

fn approve_by_keys(folder: &Path) {
    let manifests = folder.join("manifests.yaml").display().to_string();
    let mut session = Session::start(folder, &["-f", &manifests], "xterm-256color");
    session.wait_for(&["> default/net", "AwaitsApproval", "+1 ~0 -0"]);
    session.wait_for(&["default/code", "Ready", "main@sha1:"]);
    assert!(!session.is_given_back(), "the screen reads single keys");
    session.press("p");
    session.wait_for(&["+ terraform_data.a (create)"]);
    reject_by_keys(&mut session);
    let kubeconfig = folder.join("state/api/kubeconfig");
    let replanned = Command::new(SLUICE)
        .args(["replan", "net", "--timeout=60s"])
        .env("KUBECONFIG", kubeconfig)
        .output()
        .unwrap();
    assert_eq!(replanned.status.code(), Some(3), "{replanned:?}");
    session.wait_for(&["> default/net", "AwaitsApproval", "+1 ~0 -0"]);
    session.press("a");
    session.wait_for(&["Approve plan-main-", "[y/N]"]);
    session.press("y");
    session.wait_for(&["Approved plan-main-"]);
    session.back();
    session.wait_for(&["default/net", " Ready "]);
    session.press("l");
    session.wait_for(&["Run 3: Apply"]);
    session.wait_for(&["Succeeded after"]);
    session.back();
    // A terminal sends Alt+q as escape and q, one after the other.
    session.wait_for(&["> default/net"]);
    session.press("q");
    session.wait_for(&["End sluice up?", "[y/N]"]);
    session.press("y");
    assert_eq!(session.end(), Some(0), "{}", session.text());
    assert!(session.is_given_back());
    assert!(
        session.text().contains("\x1b[?1049l"),
        "the alternate screen ends"
    );
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
    tcsetwinsize(session.terminal.side(), size).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while !lines(&session.picture)[19].ends_with("q quit") {
        assert!(session.read(deadline), "{}", lines(&session.picture).join("\n"));
    }
    session.terminal.signal(Signal::TERM).unwrap();
    assert_eq!(session.end(), Some(0), "{}", session.text());
    assert!(session.is_given_back());
    assert!(session.text().contains("\x1b[?1049l"), "{}", session.text());
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
        session.terminal.signal(Signal::INT).unwrap();
        assert_eq!(session.end(), Some(0), "{}", session.text());
        assert!(
            !session.text().contains("\x1b[?1049h"),
            "{term}: {}",
            session.text()
        );
    }
}

#[test]
fn an_error_of_a_controller_is_printed_on_the_terminal_of_the_user() {
    let folder = TestDirectory::create().unwrap();
    let arguments = ["--otlp-endpoint", "ftp://127.0.0.1"];
    let mut session = Session::start(folder.path(), &arguments, "xterm-256color");
    assert_eq!(session.end(), Some(1), "{}", session.text());
    let text = session.text();
    let (screen, after) = text.split_once("\x1b[?1049l").unwrap();
    assert!(screen.contains("\x1b[?1049h"), "{screen}");
    assert!(after.contains("sluice up: "), "{after}");
    assert!(session.is_given_back());
}

//! The program in a pseudo-terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::fixture::{TIMEOUT, World};

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

/// What a user sees, and the exit code.
pub(crate) struct Session {
    /// All bytes that the program wrote to its terminal, with `\n` as the end of lines.
    pub(crate) text: String,
    /// The exit code.
    pub(crate) code: i32,
}

/// Runs the program in a terminal of this width. Types `answer` as soon as the text `prompt` is visible.
pub(crate) fn run(world: &World, columns: u16, arguments: &[&str], prompt: &str, answer: &str) -> Session {
    let (mut terminal, program_side) = open(columns);
    let streams = || Stdio::from(program_side.try_clone().unwrap());
    let mut child = Command::new(SLUICE)
        .args(arguments)
        .env("KUBECONFIG", world.kubeconfig())
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
    let deadline = Instant::now() + TIMEOUT;
    let (mut bytes, mut is_answered) = (Vec::new(), prompt.is_empty());
    while let Ok(chunk) = chunks.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        bytes.extend(chunk);
        if !is_answered && String::from_utf8_lossy(&bytes).contains(prompt) {
            terminal.write_all(answer.as_bytes()).unwrap();
            is_answered = true;
        }
    }
    let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
    if Instant::now() >= deadline {
        child.kill().unwrap();
        child.wait().unwrap();
        panic!("the command does not end; it printed: {text}");
    }
    assert!(is_answered, "no prompt {prompt:?} in: {text}");
    let code = child.wait().unwrap().code().unwrap();
    Session { text, code }
}

/// Opens a pseudo-terminal of this width: our side, and that of the program.
pub(crate) fn open(columns: u16) -> (File, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let terminal = openpt(flags).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let size = Winsize {
        ws_row: 50,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&terminal, size).unwrap();
    let program_side = ioctl_tiocgptpeer(&terminal, flags).unwrap();
    (File::from(terminal), program_side)
}

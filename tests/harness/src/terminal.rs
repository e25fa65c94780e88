//! A program in a pseudo-terminal: what it writes, the keys that a user presses, its end.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Rows of each terminal.
pub const ROWS: u16 = 50;

/// A program whose three streams are one terminal. It is killed with the value. The terminal is not its controlling one: it gets
/// signals only by [`Terminal::signal`].
#[derive(Debug)]
pub struct Terminal {
    side: File,
    child: Child,
    chunks: Receiver<Vec<u8>>,
    bytes: Vec<u8>,
}

impl Terminal {
    /// Starts a program in a terminal with this number of columns.
    ///
    /// # Errors
    /// There is no terminal, or the program cannot be started.
    pub fn start(command: Command, columns: u16) -> io::Result<Self> {
        Self::start_with(command, columns, ROWS)
    }

    /// Starts a program in a terminal of this size.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(mut command: Command, columns: u16, rows: u16) -> io::Result<Self> {
        let (side, program_side) = open(columns, rows)?;
        let child = command
            .stdin(program_side.try_clone()?)
            .stdout(program_side.try_clone()?)
            .stderr(program_side)
            .spawn()?;
        // The command holds the side of the program: as long as it is open here, its end is not noticed.
        drop(command);
        let (send, chunks) = mpsc::channel();
        let mut reader = side.try_clone()?;
        // The read fails with EIO when the program has closed its side.
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if send.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Ok(Self {
            side,
            child,
            chunks,
            bytes: Vec::new(),
        })
    }

    /// Waits for what the program writes next. `None`: it writes nothing until the deadline, or has closed the terminal.
    pub fn read(&mut self, deadline: Instant) -> Option<Vec<u8>> {
        let left = deadline.saturating_duration_since(Instant::now());
        let chunk = self.chunks.recv_timeout(left).ok()?;
        self.bytes.extend_from_slice(&chunk);
        Some(chunk)
    }

    /// Waits until the program has written this text. Returns whether it has.
    pub fn wait_for(&mut self, text: &str, deadline: Instant) -> bool {
        while !self.text().contains(text) {
            if self.read(deadline).is_none() {
                return false;
            }
        }
        true
    }

    /// Returns all that the program has written and that was read.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Presses keys.
    ///
    /// # Errors
    /// The program has closed the terminal.
    pub fn press(&mut self, keys: &str) -> io::Result<()> {
        self.side.write_all(keys.as_bytes())
    }

    /// Sends a signal to the program.
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let id = Pid::from_raw(self.child.id().cast_signed()).ok_or(io::ErrorKind::NotFound)?;
        kill_process(id, signal).map_err(io::Error::from)
    }

    /// Returns our side of the terminal, for its modes and its size.
    #[must_use]
    pub const fn side(&self) -> &File {
        &self.side
    }

    /// Reads until the program has ended. `None`: it has not until the deadline.
    ///
    /// # Errors
    /// The system does not return its exit code.
    pub fn end(&mut self, deadline: Instant) -> io::Result<Option<ExitStatus>> {
        while self.read(deadline).is_some() {}
        if Instant::now() >= deadline {
            return Ok(None);
        }
        self.child.wait().map(Some)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // After a failure only: a process that has ended was waited for.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Opens a pseudo-terminal: our side, and that of the program.
fn open(columns: u16, rows: u16) -> io::Result<(File, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let terminal = openpt(flags)?;
    grantpt(&terminal)?;
    unlockpt(&terminal)?;
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&terminal, size)?;
    let program_side = ioctl_tiocgptpeer(&terminal, flags)?;
    Ok((File::from(terminal), program_side))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_program_is_asked_and_ends() {
        let mut command = Command::new("sh");
        command.args(["-c", "printf 'name? '; read name; echo \"hello $name\"; exit 3"]);
        let mut terminal = Terminal::start(command, 80).unwrap();
        let deadline = Instant::now() + Duration::from_mins(1);
        assert!(terminal.wait_for("name? ", deadline), "{}", terminal.text());
        terminal.press("anna\n").unwrap();
        let ended = terminal.end(deadline).unwrap().unwrap();
        assert_eq!(ended.code(), Some(3));
        assert!(terminal.text().contains("hello anna\r\n"), "{}", terminal.text());
    }
}

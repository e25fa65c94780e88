//! Chooses the destination of the log, which must not mix with progress lines on a terminal.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use sluice_runtime::sync::lock;
use sluice_runtime::telemetry::{self, Encoding, Level};

use super::state_dir::{StateDir, StateDirError};
use crate::view::Screen;

/// Files above this size are rotated at the start; one old file is kept. In bytes.
const MAX_FILE_SIZE: u64 = 16 << 20;

/// A destination with format and level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    /// Standard error.
    Stderr(Encoding, Level),
    /// A file in the state directory.
    File(Encoding, Level),
    /// The screen, as separate lines.
    Screen(Encoding, Level),
}

/// Chooses the destination; `progress` and `stderr` tell whether progress and standard error go to a terminal. Pure.
fn destination(progress: bool, stderr: bool, state: bool, format: Option<Encoding>) -> Destination {
    let json = format.unwrap_or(Encoding::Json);
    let console = format.unwrap_or(Encoding::Console);
    match (progress && stderr, state) {
        // The user sees the progress; the log is complete and machine-readable.
        (true, true) => Destination::File(json, Level::Info),
        (true, false) => Destination::Screen(console, Level::Error),
        (false, _) if stderr => Destination::Stderr(console, Level::Error),
        (false, _) => Destination::Stderr(json, Level::Info),
    }
}

/// Starts the log.
pub(super) fn start(
    format: Option<Encoding>,
    state_dir: &StateDir,
    persistent: bool,
    screen: &Arc<Screen>,
) -> Result<(), StateDirError> {
    let on_terminal = (io::stdout().is_terminal(), io::stderr().is_terminal());
    let started = match destination(on_terminal.0, on_terminal.1, persistent, format) {
        Destination::Stderr(encoding, level) => telemetry::install(encoding, level),
        Destination::Screen(encoding, level) => {
            let screen = Arc::clone(screen);
            telemetry::install_to(encoding, level, false, move || ScreenWriter(Arc::clone(&screen)))
        }
        Destination::File(encoding, level) => {
            let path = state_dir.log();
            let file = Arc::new(Mutex::new(
                open(&path).map_err(super::state_dir::io_error(&path))?,
            ));
            screen.print(&format!("The log is {}.", path.display()));
            telemetry::install_to(encoding, level, false, move || SharedFile(Arc::clone(&file)))
        }
    };
    if let Err(error) = started {
        screen.print(&format!("Warning: no log: {error}"));
    }
    Ok(())
}

fn open(path: &Path) -> io::Result<File> {
    if fs::metadata(path).is_ok_and(|file| file.len() > MAX_FILE_SIZE) {
        fs::rename(path, path.with_extension("old"))?;
    }
    fs::OpenOptions::new().create(true).append(true).open(path)
}

/// Writes whole lines to one file.
struct SharedFile(Arc<Mutex<File>>);

impl Write for SharedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = lock(&self.0);
        file.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Prints whole lines on the screen.
struct ScreenWriter(Arc<Screen>);

impl Write for ScreenWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.print(String::from_utf8_lossy(bytes).trim_end());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_shows_progress_without_log_lines() {
        assert_eq!(
            destination(true, true, true, None),
            Destination::File(Encoding::Json, Level::Info)
        );
        assert_eq!(
            destination(true, true, false, None),
            Destination::Screen(Encoding::Console, Level::Error)
        );
        assert_eq!(
            destination(true, false, true, None),
            Destination::Stderr(Encoding::Json, Level::Info)
        );
        assert_eq!(
            destination(false, true, true, None),
            Destination::Stderr(Encoding::Console, Level::Error)
        );
        assert_eq!(
            destination(false, false, false, None),
            Destination::Stderr(Encoding::Json, Level::Info)
        );
        let console = Some(Encoding::Console);
        assert_eq!(
            destination(false, false, false, console),
            Destination::Stderr(Encoding::Console, Level::Info)
        );
        assert_eq!(
            destination(true, true, true, console),
            Destination::File(Encoding::Console, Level::Info)
        );
    }

    #[test]
    fn a_large_log_is_rotated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sluice.log");
        let mut shared = SharedFile(Arc::new(Mutex::new(open(&path).unwrap())));
        shared.write_all(b"a\n").unwrap();
        fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(MAX_FILE_SIZE + 1)
            .unwrap();
        open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        assert!(path.with_extension("old").exists());
    }
}

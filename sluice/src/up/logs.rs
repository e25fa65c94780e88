//! Chooses the destination of the log, which must not mix with progress lines on a terminal.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use sluice_runtime::sync::lock;
use sluice_runtime::telemetry::{self, Encoding, Level};

use super::UpArgs;
use super::state_dir::{StateDir, StateDirError};
use super::view::{self, Kind};
use crate::view::Lines;

/// Files above this size are rotated at the start; one old file is kept. In bytes.
const MAX_FILE_SIZE: u64 = 16 << 20;

/// A destination with format and level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    /// Standard error.
    Stderr(Encoding, Level),
    /// A file in the state directory.
    File(Encoding, Level),
    /// Standard output, as separate lines.
    Lines(Encoding, Level),
}

/// Chooses the destination; `stderr` tells whether standard error is a terminal, `state` whether the state directory remains. Pure.
fn destination(kind: Kind, stderr: bool, state: bool, format: Option<Encoding>) -> Destination {
    let json = format.unwrap_or(Encoding::Json);
    let console = format.unwrap_or(Encoding::Console);
    match kind {
        _ if !stderr => Destination::Stderr(json, Level::Info),
        // The user sees the progress; the log is complete and machine-readable.
        Kind::Screen => Destination::File(json, Level::Info),
        Kind::TerminalLines if state => Destination::File(json, Level::Info),
        Kind::TerminalLines => Destination::Lines(console, Level::Error),
        Kind::Other => Destination::Stderr(console, Level::Error),
    }
}

/// Starts the log, and returns its file if it is one.
pub(super) fn start(
    args: &UpArgs,
    state_dir: &StateDir,
    lines: &Arc<Lines>,
) -> Result<Option<PathBuf>, StateDirError> {
    let stderr = io::stderr().is_terminal();
    let chosen = destination(view::kind(args), stderr, args.state.is_some(), args.log_format);
    let mut log = None;
    let started = match chosen {
        Destination::Stderr(encoding, level) => telemetry::install(encoding, level),
        Destination::Lines(encoding, level) => {
            let lines = Arc::clone(lines);
            telemetry::install_to(encoding, level, false, move || LinesWriter(Arc::clone(&lines)))
        }
        Destination::File(encoding, level) => {
            let path = state_dir.log();
            let file = Arc::new(Mutex::new(
                open(&path).map_err(super::state_dir::io_error(&path))?,
            ));
            lines.print(&format!("The log is {}.", path.display()));
            log = Some(path);
            telemetry::install_to(encoding, level, false, move || SharedFile(Arc::clone(&file)))
        }
    };
    if let Err(error) = started {
        lines.print(&format!("Warning: no log: {error}"));
    }
    Ok(log)
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

/// Prints whole lines between the lines of the program.
struct LinesWriter(Arc<Lines>);

impl Write for LinesWriter {
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
        let file = Destination::File(Encoding::Json, Level::Info);
        let standard_error = Destination::Stderr(Encoding::Json, Level::Info);
        for (kind, stderr, state, expected) in [
            (Kind::Screen, true, true, file),
            (Kind::Screen, true, false, file),
            (Kind::Screen, false, true, standard_error),
            (Kind::TerminalLines, true, true, file),
            (
                Kind::TerminalLines,
                true,
                false,
                Destination::Lines(Encoding::Console, Level::Error),
            ),
            (Kind::TerminalLines, false, true, standard_error),
            (
                Kind::Other,
                true,
                true,
                Destination::Stderr(Encoding::Console, Level::Error),
            ),
            (Kind::Other, false, false, standard_error),
        ] {
            assert_eq!(
                destination(kind, stderr, state, None),
                expected,
                "{kind:?} {stderr} {state}"
            );
        }
        let console = Some(Encoding::Console);
        assert_eq!(
            destination(Kind::Other, false, false, console),
            Destination::Stderr(Encoding::Console, Level::Info)
        );
        assert_eq!(
            destination(Kind::Screen, true, true, console),
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

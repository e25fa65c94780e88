//! Where the log goes: never between the lines of the story on a terminal.

use super::place::{Place, PlaceError};
use crate::view::Screen;
use sluice_runtime::telemetry::{self, Encoding, Level};
use std::{
    fs::{self, File},
    io::{self, IsTerminal, Write},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

/// A file that is larger at a start gives way to a new one, and stays for one more start.
const LARGEST_FILE: u64 = 16 << 20;

/// A destination with the form and the level of its lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Destination {
    /// Standard error.
    Stderr(Encoding, Level),
    /// A file in the state directory.
    File(Encoding, Level),
    /// The screen, as lines of their own.
    Screen(Encoding, Level),
}

/// Pure: where the log goes when the story and standard error are on terminals, or not.
fn destination(story: bool, stderr: bool, state: bool, format: Option<Encoding>) -> Destination {
    let json = format.unwrap_or(Encoding::Json);
    let console = format.unwrap_or(Encoding::Console);
    match (story && stderr, state) {
        // What a person sees is the story; the log is complete and for programs.
        (true, true) => Destination::File(json, Level::Info),
        (true, false) => Destination::Screen(console, Level::Error),
        (false, _) if stderr => Destination::Stderr(console, Level::Error),
        (false, _) => Destination::Stderr(json, Level::Info),
    }
}

/// Starts the log.
pub(super) fn start(
    format: Option<Encoding>,
    place: &Place,
    kept: bool,
    screen: &Arc<Screen>,
) -> Result<(), PlaceError> {
    let on_terminal = (io::stdout().is_terminal(), io::stderr().is_terminal());
    let started = match destination(on_terminal.0, on_terminal.1, kept, format) {
        Destination::Stderr(encoding, level) => telemetry::install(encoding, level),
        Destination::Screen(encoding, level) => {
            let screen = Arc::clone(screen);
            telemetry::install_to(encoding, level, false, move || Lines(Arc::clone(&screen)))
        }
        Destination::File(encoding, level) => {
            let path = place.log();
            let file = Arc::new(Mutex::new(open(&path).map_err(super::place::unusable(&path))?));
            screen.say(&format!("The log is {}.", path.display()));
            telemetry::install_to(encoding, level, false, move || Shared(Arc::clone(&file)))
        }
    };
    if let Err(error) = started {
        screen.say(&format!("Warning: no log: {error}"));
    }
    Ok(())
}

fn open(path: &Path) -> io::Result<File> {
    if fs::metadata(path).is_ok_and(|file| file.len() > LARGEST_FILE) {
        fs::rename(path, path.with_extension("old"))?;
    }
    fs::OpenOptions::new().create(true).append(true).open(path)
}

/// A line at a time into one file.
struct Shared(Arc<Mutex<File>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A line at a time onto the screen.
struct Lines(Arc<Screen>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.say(String::from_utf8_lossy(bytes).trim_end());
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
    fn a_terminal_shows_the_story_and_no_log_between_its_lines() {
        let of = destination;
        assert_eq!(
            of(true, true, true, None),
            Destination::File(Encoding::Json, Level::Info)
        );
        assert_eq!(
            of(true, true, false, None),
            Destination::Screen(Encoding::Console, Level::Error)
        );
        assert_eq!(
            of(true, false, true, None),
            Destination::Stderr(Encoding::Json, Level::Info)
        );
        assert_eq!(
            of(false, true, true, None),
            Destination::Stderr(Encoding::Console, Level::Error)
        );
        assert_eq!(
            of(false, false, false, None),
            Destination::Stderr(Encoding::Json, Level::Info)
        );
        let console = Some(Encoding::Console);
        assert_eq!(
            of(false, false, false, console),
            Destination::Stderr(Encoding::Console, Level::Info)
        );
        assert_eq!(
            of(true, true, true, console),
            Destination::File(Encoding::Console, Level::Info)
        );
    }

    #[test]
    fn a_large_log_gives_way() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sluice.log");
        let mut shared = Shared(Arc::new(Mutex::new(open(&path).unwrap())));
        shared.write_all(b"a\n").unwrap();
        fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(LARGEST_FILE + 1)
            .unwrap();
        open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        assert!(path.with_extension("old").exists());
    }
}

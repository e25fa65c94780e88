//! Opening a file below the root without ever following a link.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};

/// Opens a file below `root`, step by step, so that no link on the way is followed. Anything that is no regular file
/// counts as not found.
pub(crate) fn open_below(root: &Path, relative: &Path) -> io::Result<File> {
    let step = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(CWD, root, step, Mode::empty())?;
    let mut parts = relative.iter().peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_some() {
            at = openat(&at, part, step | OFlags::NOFOLLOW, Mode::empty())?;
        } else {
            let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = File::from(openat(&at, part, flags, Mode::empty())?);
            if file.metadata()?.is_file() {
                return Ok(file);
            }
        }
    }
    Err(io::Error::from(io::ErrorKind::NotFound))
}

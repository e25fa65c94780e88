//! The object database of a generation that receives objects.

use std::cell::OnceCell;
use std::io;
use std::sync::Arc;

use git2::Odb;
use sluice_git_pack::{Bases, PackError};

use super::super::mirror::{Generation, open_objects};

/// The object database of a generation. It is opened when it is needed for the first time: only a thin pack needs it before its own
/// objects are there.
pub(super) struct Objects {
    // Closed before the directory may be deleted.
    opened: OnceCell<Odb<'static>>,
    generation: Arc<Generation>,
}

impl Objects {
    /// Returns the object database of this generation.
    pub(super) fn of(generation: &Arc<Generation>) -> Self {
        Self {
            opened: OnceCell::new(),
            generation: Arc::clone(generation),
        }
    }

    /// Opens it with the current files on disk.
    ///
    /// # Errors
    /// The files cannot be read.
    pub(super) fn open(self) -> io::Result<Odb<'static>> {
        let Some(odb) = self.opened.into_inner() else {
            return open(&self.generation);
        };
        // It lacks the pack that came since.
        odb.refresh().map_err(|error| unusable(&error))?;
        Ok(odb)
    }
}

impl Bases for Objects {
    fn odb(&self) -> Result<&Odb<'_>, PackError> {
        if let Some(odb) = self.opened.get() {
            return Ok(odb);
        }
        let odb = open(&self.generation)?;
        Ok(self.opened.get_or_init(|| odb))
    }
}

fn open(generation: &Generation) -> io::Result<Odb<'static>> {
    open_objects(generation.directory()).map_err(|error| unusable(&error))
}

fn unusable(error: &git2::Error) -> io::Error {
    io::Error::other(error.message().to_owned())
}

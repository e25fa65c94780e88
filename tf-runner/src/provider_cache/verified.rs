//! Which packages of the cache were digested, and what the file system knew about their files then.
//!
//! Every run can write these records, as it can write the packages. The CLI digests each copy, so a
//! wrong record makes it refuse a copy, and never use one.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// The directory of the records, below that of the packages. Each has the name of its package.
pub(super) const DIRECTORY: &str = ".verified";

/// The records of one cache.
pub(super) struct VerifiedPackages {
    packages: PathBuf,
    records: PathBuf,
}

impl VerifiedPackages {
    pub(super) fn below(packages: &Path) -> Self {
        Self {
            packages: packages.to_owned(),
            records: packages.join(DIRECTORY),
        }
    }

    fn record_of(&self, package: &Path) -> PathBuf {
        self.records.join(package.file_name().unwrap_or_default())
    }

    /// Whether the package had its digest when its files had this fingerprint.
    pub(super) fn contains(&self, package: &Path, fingerprint: &str) -> bool {
        fs::read(self.record_of(package)).is_ok_and(|found| found == fingerprint.as_bytes())
    }

    /// Records that the package has its digest. A failure is only logged: then each copy is digested.
    pub(super) fn record(&self, package: &Path, fingerprint: &str) {
        if let Err(error) = self.write(package, fingerprint) {
            tracing::debug!(%error, "the digest of a cached provider is not recorded");
        }
    }

    fn write(&self, package: &Path, fingerprint: &str) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.records)?;
        let mut record = tempfile::NamedTempFile::new_in(&self.records)?;
        record.write_all(fingerprint.as_bytes())?;
        record.persist(self.record_of(package))?;
        Ok(())
    }

    pub(super) fn remove(&self, package: &Path) {
        remove_file(&self.record_of(package));
    }

    /// Removes the records of packages that are gone.
    pub(super) fn remove_orphans(&self) {
        let records = fs::read_dir(&self.records).into_iter().flatten();
        for record in records.filter_map(Result::ok) {
            if !self.packages.join(record.file_name()).exists() {
                remove_file(&record.path());
            }
        }
    }
}

fn remove_file(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != ErrorKind::NotFound
    {
        tracing::debug!(%error, "the record of a cached provider cannot be removed");
    }
}

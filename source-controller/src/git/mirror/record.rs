//! The commits of a mirror, stored in two files of Git's own formats: `packed-refs` and `shallow`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use git2::Oid;

use super::super::protocol::parse_object_id;

/// Maximum size of a file; a mirror is replaced long before.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Prefix of each commit's ref, followed by an increasing number.
const TIP_PREFIX: &str = "refs/tips/";

/// The commits of a mirror.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Record {
    /// Commits with complete trees, oldest fetch first.
    pub(in super::super) tips: Vec<Oid>,
    /// Commits without parents.
    pub(in super::super) shallow: BTreeSet<Oid>,
}

impl Record {
    /// Reads the files in a repository's directory. Invalid lines are ignored: those commits are fetched again.
    pub(super) fn read(directory: &Path) -> io::Result<Self> {
        let tips = read_file(&directory.join("packed-refs"))?;
        let tips = tips.lines().filter_map(|line| {
            let (id, name) = line.split_once(' ')?;
            name.starts_with(TIP_PREFIX)
                .then(|| parse_object_id(id.as_bytes()))?
        });
        let shallow = read_file(&directory.join("shallow"))?;
        let shallow = shallow
            .lines()
            .filter_map(|line| parse_object_id(line.as_bytes()));
        Ok(Self {
            tips: tips.collect(),
            shallow: shallow.collect(),
        })
    }

    /// Writes both files. `shallow` comes first: a crash in between leaves an unused shallow entry, but never a commit
    /// that is not shallow.
    pub(in super::super) fn write(&self, directory: &Path) -> io::Result<()> {
        let mut shallow = String::new();
        for id in &self.shallow {
            let _ = writeln!(shallow, "{id}");
        }
        write_file(&directory.join("shallow"), &shallow)?;
        let mut refs = "# pack-refs with: sorted\n".to_owned();
        for (number, id) in self.tips.iter().enumerate() {
            let _ = writeln!(refs, "{id} {TIP_PREFIX}{number:06}");
        }
        write_file(&directory.join("packed-refs"), &refs)
    }

    /// Removes the record of all commits.
    pub(super) fn delete(directory: &Path) -> io::Result<()> {
        match fs::remove_file(directory.join("packed-refs")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Adds a fetched commit.
    pub(in super::super) fn add(&mut self, tip: Oid) {
        if !self.tips.contains(&tip) {
            self.tips.push(tip);
        }
    }

    /// Updates the shallow commits.
    pub(in super::super) fn update_shallow(&mut self, shallow: &[Oid], unshallow: &[Oid]) {
        self.shallow.extend(shallow);
        for id in unshallow {
            self.shallow.remove(id);
        }
    }
}

fn read_file(path: &Path) -> io::Result<String> {
    match fs::metadata(path) {
        Ok(file) if file.len() > MAX_FILE_BYTES => Ok(String::new()),
        Ok(_) => Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error),
    }
}

fn write_file(path: &Path, text: &str) -> io::Result<()> {
    let temporary = path.with_extension("new");
    fs::write(&temporary, text)?;
    fs::rename(temporary, path)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(digit: char) -> Oid {
        parse_object_id(digit.to_string().repeat(40).as_bytes()).unwrap()
    }

    #[test]
    fn written_data_is_parsed_back() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Record::read(directory.path()).unwrap(), Record::default());
        let mut record = Record::default();
        for (tip, shallow, unshallow) in [
            ('b', vec![id('b')], vec![]),
            ('a', vec![id('a')], vec![id('b')]),
            ('b', vec![], vec![]),
        ] {
            record.add(id(tip));
            record.update_shallow(&shallow, &unshallow);
        }
        assert_eq!(record.tips, [id('b'), id('a')]);
        record.write(directory.path()).unwrap();
        assert_eq!(Record::read(directory.path()).unwrap(), record);
        Record::delete(directory.path()).unwrap();
        Record::delete(directory.path()).unwrap();
        assert_eq!(Record::read(directory.path()).unwrap().tips, []);
    }

    proptest! {
        #[test]
        fn any_files_are_a_record(tips in "(\\PC|\n){0,200}", shallow in "([0-9a-f]{38,42}\n){0,4}") {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join("packed-refs"), tips).unwrap();
            fs::write(directory.path().join("shallow"), shallow).unwrap();
            Record::read(directory.path()).unwrap();
        }
    }
}

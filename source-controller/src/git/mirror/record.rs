//! Which commits a mirror holds, in two files that Git itself understands: `packed-refs` and `shallow`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use git2::Oid;

use super::super::protocol::object_id;

/// Longest file that is read; a mirror is made anew long before.
const LONGEST_FILE: u64 = 1 << 20;
/// The ref of each commit is this and a number that grows.
const PREFIX: &str = "refs/tips/";

/// The commits of a mirror.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Record {
    /// Commits that are held with their whole trees, oldest fetch first.
    pub(in super::super) tips: Vec<Oid>,
    /// Commits whose parents are not held.
    pub(in super::super) shallow: BTreeSet<Oid>,
}

impl Record {
    /// Reads what is written in a repository's directory. Lines that make no sense are left out: what is not known to
    /// be held is fetched again.
    pub(super) fn read(directory: &Path) -> io::Result<Self> {
        let tips = text(&directory.join("packed-refs"))?;
        let tips = tips.lines().filter_map(|line| {
            let (id, name) = line.split_once(' ')?;
            name.starts_with(PREFIX).then(|| object_id(id.as_bytes()))?
        });
        let shallow = text(&directory.join("shallow"))?;
        let shallow = shallow.lines().filter_map(|line| object_id(line.as_bytes()));
        Ok(Self {
            tips: tips.collect(),
            shallow: shallow.collect(),
        })
    }

    /// Writes both files, the one that promises less first: a crash between them leaves a boundary too many, never a
    /// commit too many.
    pub(in super::super) fn write(&self, directory: &Path) -> io::Result<()> {
        let mut shallow = String::new();
        for id in &self.shallow {
            let _ = writeln!(shallow, "{id}");
        }
        replace(&directory.join("shallow"), &shallow)?;
        let mut refs = "# pack-refs with: sorted\n".to_owned();
        for (number, id) in self.tips.iter().enumerate() {
            let _ = writeln!(refs, "{id} {PREFIX}{number:06}");
        }
        replace(&directory.join("packed-refs"), &refs)
    }

    /// Takes back that any commit is held.
    pub(super) fn forget(directory: &Path) -> io::Result<()> {
        match fs::remove_file(directory.join("packed-refs")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Adds a commit that has been fetched.
    pub(in super::super) fn add(&mut self, tip: Oid) {
        if !self.tips.contains(&tip) {
            self.tips.push(tip);
        }
    }

    /// Notes where history is cut off now, and where it is no more.
    pub(in super::super) fn cut(&mut self, shallow: &[Oid], unshallow: &[Oid]) {
        self.shallow.extend(shallow);
        for id in unshallow {
            self.shallow.remove(id);
        }
    }
}

fn text(path: &Path) -> io::Result<String> {
    match fs::metadata(path) {
        Ok(file) if file.len() > LONGEST_FILE => Ok(String::new()),
        Ok(_) => Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error),
    }
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension("new");
    fs::write(&beside, text)?;
    fs::rename(beside, path)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(digit: char) -> Oid {
        object_id(digit.to_string().repeat(40).as_bytes()).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Record::read(directory.path()).unwrap(), Record::default());
        let mut record = Record::default();
        for (tip, shallow, unshallow) in [
            ('b', vec![id('b')], vec![]),
            ('a', vec![id('a')], vec![id('b')]),
            ('b', vec![], vec![]),
        ] {
            record.add(id(tip));
            record.cut(&shallow, &unshallow);
        }
        assert_eq!(record.tips, [id('b'), id('a')]);
        record.write(directory.path()).unwrap();
        assert_eq!(Record::read(directory.path()).unwrap(), record);
        Record::forget(directory.path()).unwrap();
        Record::forget(directory.path()).unwrap();
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

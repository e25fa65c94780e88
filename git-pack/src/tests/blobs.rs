//! Tests of blobs that are read from an indexed pack.

use std::io::{self, Read as _};
use std::path::PathBuf;

use git2::{ObjectType, Oid};
use sluice_harness::git::pack::PackWriter;

use super::*;
use crate::blob::{BlobStream, open_blob};

/// What is wrong with an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Damage {
    /// A byte.
    Byte,
    /// Its length.
    Length,
}

/// An object directory with packs.
pub(super) struct Objects {
    folder: TempDir,
}

impl Objects {
    pub(super) fn new(pack: &[u8]) -> Self {
        let folder = TempDir::new().unwrap();
        let objects = Self { folder };
        std::fs::create_dir(objects.packs()).unwrap();
        objects.add(pack);
        objects
    }

    pub(super) fn add(&self, pack: &[u8]) {
        index_pack(pack, 4096, &Odb::new().unwrap(), &self.packs()).unwrap();
    }

    pub(super) fn packs(&self) -> PathBuf {
        self.folder.path().join("pack")
    }

    /// Opens it with libgit2; returns the names of all objects, too.
    pub(super) fn open(&self) -> (Odb<'static>, Vec<Oid>) {
        let odb = Odb::new().unwrap();
        odb.add_disk_alternate(&self.folder.path().to_string_lossy())
            .unwrap();
        let mut ids = Vec::new();
        odb.foreach(|id| {
            ids.push(*id);
            true
        })
        .unwrap();
        (odb, ids)
    }

    /// Calls `check` with the index damaged in every third byte, and truncated to several lengths; and with the offset of the byte, or
    /// the length.
    pub(super) fn damage_index(&self, check: impl Fn(Damage, usize)) {
        let index = std::fs::read(self.file("idx")).unwrap();
        for at in (0..index.len()).step_by(3) {
            let mut damaged = index.clone();
            damaged[at] ^= 0x81;
            self.replace("idx", &damaged);
            check(Damage::Byte, at);
        }
        for length in [0, 7, 8, 1000, 1032, 1050, index.len() - 41] {
            self.replace("idx", &index[..length]);
            check(Damage::Length, length);
        }
    }

    pub(super) fn file(&self, extension: &str) -> PathBuf {
        let files = std::fs::read_dir(self.packs()).unwrap();
        let mut paths = files.map(|entry| entry.unwrap().path());
        let found = paths.find(|path| path.extension().is_some_and(|found| found == extension));
        found.unwrap()
    }

    /// Writes other bytes into a file, which has no write permission.
    pub(super) fn replace(&self, extension: &str, bytes: &[u8]) {
        let file = self.file(extension);
        std::fs::remove_file(&file).unwrap();
        std::fs::write(file, bytes).unwrap();
    }
}

fn content(stream: Option<BlobStream>) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    stream.unwrap().read_to_end(&mut content)?;
    Ok(content)
}

/// Returns a pack with one blob of a megabyte, and its name.
pub(super) fn one_blob() -> (Vec<u8>, Oid, String) {
    let (mut pack, text) = (PackWriter::default(), noise(1, 1 << 20));
    let id = pack.object("blob", text.as_bytes());
    (pack.finish(), Oid::from_bytes(&id).unwrap(), text)
}

#[test]
fn undeltified_blobs_are_read_as_libgit2_reads_them() {
    let repository = repository();
    let objects = Objects::new(
        &repository
            .pack(&["--delta-base-offset"], "main\nv1.0.0\n")
            .unwrap(),
    );
    let (odb, ids) = objects.open();
    let (mut streamed, mut others) = (0, 0);
    for id in ids {
        let object = odb.read(id).unwrap();
        match open_blob(&objects.packs(), id).unwrap() {
            Some(stream) => {
                assert_eq!(object.kind(), ObjectType::Blob);
                assert_eq!(stream.size(), object.len() as u64);
                assert!(content(Some(stream)).unwrap() == object.data(), "{id}");
                streamed += 1;
            }
            None => others += 1,
        }
    }
    assert!(streamed > 10 && others > 10, "{streamed} {others}");
    let missing = Oid::from_bytes(&[0xff; 20]).unwrap();
    assert!(open_blob(&objects.packs(), missing).unwrap().is_none());
}

#[test]
fn damage_of_the_pack_is_an_error() {
    let (pack, id, text) = one_blob();
    let objects = Objects::new(&pack);
    let read = || content(open_blob(&objects.packs(), id)?);
    assert!(read().unwrap() == text.as_bytes());
    for at in [40, pack.len() / 2, pack.len() - 30] {
        let mut damaged = pack.clone();
        damaged[at] ^= 0x10;
        objects.replace("pack", &damaged);
        assert!(read().is_err(), "byte {at}");
    }
    objects.replace("pack", &pack[..pack.len() / 2]);
    assert!(read().is_err(), "truncated");
    let compressed = sluice_harness::git::pack::deflate(text.as_bytes());
    for size in [text.len() - 1, text.len() + 1] {
        let mut other = PackWriter::default();
        other.entry(3, size as u64, &[], &compressed);
        objects.replace("pack", &other.finish());
        assert!(read().is_err(), "the header promises {size} bytes");
    }
}

#[test]
fn damage_of_the_index_never_panics() {
    let (pack, id, _) = one_blob();
    let objects = Objects::new(&pack);
    objects.damage_index(|damage, at| match open_blob(&objects.packs(), id) {
        Ok(Some(stream)) if damage == Damage::Byte => drop(content(Some(stream))),
        opened => assert!(!matches!(opened, Ok(Some(_))), "{damage:?} {at}"),
    });
}

/// Offsets of 2 GiB and more are in a table of their own.
#[test]
fn a_large_offset_is_found() {
    let (pack, id, text) = one_blob();
    let objects = Objects::new(&pack);
    let counts = (0..=u8::MAX).map(|first| u32::from(first >= id.as_bytes()[0]).to_be_bytes());
    let mut index = b"\xfftOc\0\0\0\x02".to_vec();
    index.extend(counts.flatten());
    index.extend_from_slice(id.as_bytes());
    index.extend_from_slice(&[0; 4]);
    index.extend_from_slice(&(1_u32 << 31).to_be_bytes());
    index.extend_from_slice(&12_u64.to_be_bytes());
    objects.replace("idx", &index);
    let found = open_blob(&objects.packs(), id).unwrap();
    assert!(content(found).unwrap() == text.as_bytes());
}

//! Tests of the extraction of hostile archives, and property tests with arbitrary ones.

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use tar::{Builder, Header};

use super::*;

#[derive(Debug)]
struct Entry {
    name: Vec<u8>,
    kind: EntryType,
    content: Vec<u8>,
    mode: u32,
}

impl Entry {
    fn file(name: &str, content: &str) -> Self {
        Self {
            name: name.into(),
            kind: EntryType::Regular,
            content: content.into(),
            mode: 0o644,
        }
    }

    fn of(name: &str, kind: EntryType) -> Self {
        Self {
            name: name.into(),
            kind,
            content: Vec::new(),
            mode: 0o755,
        }
    }
}

/// Builds a tar.gz with unchecked names.
fn archive(entries: &[Entry]) -> Vec<u8> {
    let mut tar = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for entry in entries {
        let mut header = Header::new_ustar();
        let name = &mut header.as_old_mut().name;
        let length = entry.name.len().min(name.len());
        name[..length].copy_from_slice(&entry.name[..length]);
        header.set_entry_type(entry.kind);
        header.set_mode(entry.mode);
        header.set_mtime(1);
        header.set_size(entry.content.len() as u64);
        if matches!(entry.kind, EntryType::Symlink | EntryType::Link) {
            header.set_link_name_literal("/etc/passwd").unwrap();
        }
        header.set_cksum();
        tar.append(&header, entry.content.as_slice()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

fn limits() -> Limits {
    Limits {
        entries: 10,
        bytes: 1000,
        depth: 4,
    }
}

struct Room {
    dir: tempfile::TempDir,
}

impl Room {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn target(&self) -> PathBuf {
        self.dir.path().join("into")
    }

    fn unpack(&self, archive: &[u8]) -> Result<UnpackSummary, UnpackError> {
        unpack(archive, &self.target(), &limits(), &Token::new())
    }

    /// Returns all files outside the target directory, which must be none.
    fn escaped(&self) -> Vec<PathBuf> {
        fs::read_dir(self.dir.path())
            .unwrap()
            .map(|e| e.unwrap().path())
            .filter(|p| *p != self.target())
            .collect()
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn files_and_directories_keep_their_modes() {
    let room = Room::new();
    let mut script = Entry::file("deep/er/run.sh", "#!/bin/sh\n");
    script.mode = 0o4755;
    let mut locked = Entry::of("locked/", EntryType::Directory);
    locked.mode = 0o050;
    let done = room.unpack(&archive(&[
        Entry::of("./", EntryType::Directory),
        script,
        locked,
        Entry::file("a.tf", ""),
    ]));
    assert_eq!(
        done.unwrap(),
        UnpackSummary {
            files: 2,
            directories: 2,
            bytes: 10
        }
    );
    let into = room.target();
    assert_eq!(
        fs::read_to_string(into.join("deep/er/run.sh")).unwrap(),
        "#!/bin/sh\n"
    );
    let modes = ["deep/er/run.sh", "deep/er", "locked", "a.tf"].map(|path| mode(&into.join(path)));
    assert_eq!(modes, [0o755, 0o750, 0o750, 0o644].map(|mode: u32| mode));
    let modified = fs::metadata(into.join("a.tf")).unwrap().modified().unwrap();
    assert_eq!(modified, SystemTime::UNIX_EPOCH + Duration::from_secs(1));
}

#[test]
fn names_outside_the_directory_are_rejected() {
    for name in ["/etc/x", "../x", "a/../../x", "a/..", "..", "a\\b", "foo../x", ""] {
        let room = Room::new();
        let error = room.unpack(&archive(&[Entry::file(name, "x")])).unwrap_err();
        assert!(matches!(error, UnpackError::Name(_)), "{name}: {error}");
        assert_eq!(room.escaped(), Vec::<PathBuf>::new());
    }
}

#[test]
fn kinds_that_sources_never_produce_are_refused() {
    for (kind, shown) in [
        (EntryType::Symlink, "symbolic link"),
        (EntryType::Link, "hard link"),
        (EntryType::Char, "character device"),
        (EntryType::Block, "block device"),
        (EntryType::Fifo, "pipe"),
    ] {
        let error = Room::new().unpack(&archive(&[Entry::of("x", kind)])).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("archive entry \"x\" is a {shown}, which is not allowed")
        );
    }
}

#[test]
fn entries_bytes_and_depth_are_limited() {
    let many: Vec<Entry> = (0..11).map(|n| Entry::file(&format!("f{n}"), "")).collect();
    assert!(matches!(
        Room::new().unpack(&archive(&many)),
        Err(UnpackError::Entries(10))
    ));
    let big = [
        Entry::file("a", &"x".repeat(600)),
        Entry::file("b", &"x".repeat(600)),
    ];
    assert!(matches!(
        Room::new().unpack(&archive(&big)),
        Err(UnpackError::Bytes(1000))
    ));
    let deep = [Entry::file("a/b/c/d/e", "")];
    assert!(matches!(
        Room::new().unpack(&archive(&deep)),
        Err(UnpackError::Depth { limit: 4, .. })
    ));
}

#[test]
fn a_long_name_cannot_exhaust_memory() {
    let mut tar = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::GNULongName);
    header.set_size(64 << 20);
    header.set_cksum();
    tar.append(&header, io::repeat(b'a').take(64 << 20)).unwrap();
    let bytes = tar.into_inner().unwrap().finish().unwrap();
    assert!(matches!(Room::new().unpack(&bytes), Err(UnpackError::Damaged(_))));
}

#[test]
fn a_damaged_checksum_is_detected_and_a_global_header_is_not_a_file() {
    let room = Room::new();
    let global = Entry {
        content: b"52 comment=x\n".to_vec(),
        ..Entry::of("pax_global_header", EntryType::XGlobalHeader)
    };
    let mut bytes = archive(&[global, Entry::file("a", "x")]);
    assert_eq!(room.unpack(&bytes).unwrap().files, 1);
    assert_eq!(fs::read_dir(room.target()).unwrap().count(), 1);
    let at = bytes.len() - 6;
    bytes[at] ^= 1;
    assert!(matches!(Room::new().unpack(&bytes), Err(UnpackError::Damaged(_))));
}

#[test]
fn an_occupied_directory_a_link_to_one_and_a_stop_are_respected() {
    let room = Room::new();
    fs::create_dir(room.target()).unwrap();
    fs::write(room.target().join("held"), "").unwrap();
    assert!(matches!(
        room.unpack(&archive(&[])),
        Err(UnpackError::Occupied(_))
    ));
    let room = Room::new();
    fs::create_dir(room.dir.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(room.dir.path().join("elsewhere"), room.target()).unwrap();
    assert!(matches!(
        room.unpack(&archive(&[])),
        Err(UnpackError::Write { .. })
    ));
    let stop = Token::new();
    stop.cancel();
    let room = Room::new();
    let bytes = archive(&[Entry::file("a", "x")]);
    assert!(matches!(
        unpack(bytes.as_slice(), &room.target(), &limits(), &stop),
        Err(UnpackError::Stopped)
    ));
}

fn entry() -> impl Strategy<Value = Entry> {
    let part = prop_oneof![
        Just("..".to_owned()),
        Just(".".to_owned()),
        Just(String::new()),
        "[a-c]{1,2}",
        "\\PC{1,4}"
    ];
    let name = prop::collection::vec(part, 0..5).prop_map(|parts| parts.join("/"));
    let kind = prop_oneof![
        6 => Just(EntryType::Regular),
        2 => Just(EntryType::Directory),
        1 => Just(EntryType::Symlink),
        1 => any::<u8>().prop_map(EntryType::new),
    ];
    (
        name,
        kind,
        prop::collection::vec(any::<u8>(), 0..700),
        any::<u32>(),
    )
        .prop_map(|(name, kind, content, mode)| Entry {
            name: name.into_bytes(),
            kind,
            content,
            mode: mode & 0o7777,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_archive_panics_or_escapes(entries in prop::collection::vec(entry(), 0..6), flips in prop::collection::vec((any::<usize>(), any::<u8>()), 0..3)) {
        let mut bytes = archive(&entries);
        for (at, with) in flips {
            let at = at % bytes.len();
            bytes[at] ^= with;
        }
        let room = Room::new();
        let _ = room.unpack(&bytes);
        prop_assert!(room.escaped().is_empty());
        let links = std::process::Command::new("find").arg(room.dir.path()).args(["!", "-type", "f", "!", "-type", "d"]).output().unwrap();
        prop_assert!(links.stdout.is_empty());
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..2048)) {
        let room = Room::new();
        prop_assert!(room.unpack(&bytes).is_err());
        prop_assert!(room.escaped().is_empty());
    }
}

//! Tar headers, byte for byte as Go's `archive/tar` writes them for a header without owner, names or times: USTAR,
//! preceded by a PAX extended header if USTAR cannot represent the name. Consumers compare only digests, so equal bytes
//! keep a migration from rebuilding every artifact.

/// Block size of tar.
pub(super) const BLOCK: usize = 512;

/// Type of an entry. Links, devices and sockets are never archived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A directory, mode 0750.
    Directory,
    /// A regular file, mode 0700 or 0600.
    File {
        /// Whether any execute bit is set.
        executable: bool,
    },
}

const NAME_BYTES: usize = 100;
const PREFIX_BYTES: usize = 155;
/// Maximum size in eleven octal digits, 8 GiB - 1.
const OCTAL_LIMIT: u64 = (1 << 33) - 1;

const DIRECTORY: u8 = b'5';
const FILE: u8 = b'0';
const EXTENDED: u8 = b'x';

/// Returns all header blocks of one entry.
pub(super) fn header(path: &[u8], kind: Kind, size: u64) -> Vec<u8> {
    if let Some((prefix, name)) = ustar_name(path, size) {
        let mut block = entry_block(name, kind, size);
        put(&mut block, 345, prefix);
        write_checksum(&mut block).to_vec()
    } else {
        let mut blocks = extended_header(path, size);
        blocks.extend_from_slice(&write_checksum(&mut entry_block(&keep_ascii(path), kind, size)));
        blocks
    }
}

/// Returns the number of bytes of [`header`].
pub(super) fn header_length(path: &[u8], size: u64) -> u64 {
    let extended = match ustar_name(path, size) {
        Some(_) => 0,
        None => extended_header(path, size).len(),
    };
    (extended + BLOCK) as u64
}

/// Returns prefix and name of an entry that USTAR can represent.
fn ustar_name(path: &[u8], size: u64) -> Option<(&[u8], &[u8])> {
    if !path.is_ascii() || size > OCTAL_LIMIT {
        None
    } else if path.len() <= NAME_BYTES {
        Some((&b""[..], path))
    } else {
        split_name(path)
    }
}

/// Splits a long name into USTAR's prefix and name: at the last `/` that leaves a short enough prefix.
fn split_name(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let searched = &path[..path.len().min(PREFIX_BYTES + 1)];
    let at = searched.iter().rposition(|b| *b == b'/').filter(|at| *at > 0)?;
    let (prefix, name) = (&path[..at], &path[at + 1..]);
    (!name.is_empty() && name.len() <= NAME_BYTES).then_some((prefix, name))
}

/// Returns the extended header: a block, and the records padded to blocks.
fn extended_header(path: &[u8], size: u64) -> Vec<u8> {
    let mut records = record("path", path);
    if size > OCTAL_LIMIT {
        records.extend(record("size", size.to_string().as_bytes()));
    }
    let (directory, base) = match path.iter().rposition(|b| *b == b'/') {
        Some(at) => path.split_at(at + 1),
        None => (&b""[..], path),
    };
    let name = keep_ascii(&[directory, b"PaxHeaders.0/", base].concat());
    let mut block = [0; BLOCK];
    put(&mut block, 0, trim_slashes(&name[..name.len().min(NAME_BYTES)]));
    put_mode_and_size(&mut block, 0, records.len() as u64);
    block[156] = EXTENDED;
    let mut blocks = write_checksum(&mut block).to_vec();
    blocks.extend_from_slice(&records);
    blocks.resize(blocks.len().next_multiple_of(BLOCK), 0);
    blocks
}

/// Returns `<length> <key>=<value>\n`; the length includes its own digits.
fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length.to_string().len() + rest != length {
        length = length.to_string().len() + rest;
    }
    [
        length.to_string().as_bytes(),
        b" ",
        key.as_bytes(),
        b"=",
        value,
        b"\n",
    ]
    .concat()
}

/// Returns the block of the entry itself, without checksum.
fn entry_block(name: &[u8], kind: Kind, size: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    put(&mut block, 0, truncate_name(name));
    put_mode_and_size(&mut block, mode(kind), if size > OCTAL_LIMIT { 0 } else { size });
    block[156] = if kind == Kind::Directory { DIRECTORY } else { FILE };
    put(&mut block, 329, b"0000000");
    put(&mut block, 337, b"0000000");
    block
}

const fn mode(kind: Kind) -> u64 {
    match kind {
        Kind::Directory => 0o750,
        Kind::File { executable: true } => 0o700,
        Kind::File { executable: false } => 0o600,
    }
}

fn put_mode_and_size(block: &mut [u8; BLOCK], mode: u64, size: u64) {
    put(block, 100, format!("{mode:07o}").as_bytes());
    put(block, 108, b"0000000");
    put(block, 116, b"0000000");
    put(block, 124, format!("{size:011o}").as_bytes());
    put(block, 136, b"00000000000");
    put(block, 257, b"ustar\x0000");
}

/// Writes the checksum, which is computed with spaces in its own field.
fn write_checksum(block: &mut [u8; BLOCK]) -> [u8; BLOCK] {
    put(block, 148, b"        ");
    let sum: u32 = block.iter().copied().map(u32::from).sum();
    put(block, 148, format!("{sum:06o}\0 ").as_bytes());
    *block
}

fn put(block: &mut [u8; BLOCK], at: usize, bytes: &[u8]) {
    block[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Shortens a name for readers without PAX support; the result does not end in a `/` because of the cut.
fn truncate_name(name: &[u8]) -> &[u8] {
    if name.len() <= NAME_BYTES {
        name
    } else if name[NAME_BYTES - 1] == b'/' {
        trim_slashes(&name[..NAME_BYTES])
    } else {
        &name[..NAME_BYTES]
    }
}

fn trim_slashes(name: &[u8]) -> &[u8] {
    &name[..name.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1)]
}

fn keep_ascii(name: &[u8]) -> Vec<u8> {
    name.iter().copied().filter(u8::is_ascii).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{Algorithm, Hasher};

    #[test]
    fn a_short_name_needs_one_block() {
        let block = header(b"a/b", Kind::File { executable: false }, 59);
        assert_eq!(block.len(), BLOCK);
        assert_eq!(header_length(b"a/b", 59), BLOCK as u64);
        assert_eq!(&block[..4], b"a/b\0");
        assert_eq!(&block[100..108], b"0000600\0");
        assert_eq!(&block[124..136], b"00000000073\0");
        assert_eq!(&block[257..265], b"ustar\x0000");
    }

    #[test]
    fn long_names_are_split_where_ustar_can() {
        let long = format!("{}/{}", "d".repeat(80), "f".repeat(90));
        let block = header(long.as_bytes(), Kind::Directory, 0);
        assert_eq!(block.len(), BLOCK);
        assert_eq!(&block[..90], "f".repeat(90).as_bytes());
        assert_eq!(&block[345..425], "d".repeat(80).as_bytes());
    }

    #[test]
    fn other_names_take_an_extended_header() {
        for (path, fallback_name, extended) in [
            (
                "dir/ü.txt".to_owned(),
                "dir/.txt".to_owned(),
                "dir/PaxHeaders.0/.txt".to_owned(),
            ),
            (
                "n".repeat(101),
                "n".repeat(100),
                format!("PaxHeaders.0/{}", "n".repeat(87)),
            ),
            (
                format!("{}/{}", "p".repeat(99), "n".repeat(101)),
                "p".repeat(99),
                "p".repeat(99),
            ),
        ] {
            let blocks = header(path.as_bytes(), Kind::File { executable: true }, 1);
            assert_eq!(blocks.len(), 3 * BLOCK, "{path}");
            assert_eq!(header_length(path.as_bytes(), 1), 3 * BLOCK as u64);
            assert_eq!(blocks[156], EXTENDED);
            let name = |block: &[u8]| block[..NAME_BYTES].split(|b| *b == 0).next().unwrap().to_vec();
            assert_eq!(name(&blocks[..BLOCK]), extended.as_bytes());
            assert_eq!(name(&blocks[2 * BLOCK..]), fallback_name.as_bytes());
            let record = &blocks[BLOCK..2 * BLOCK];
            assert!(
                record
                    .windows(path.len() + 6)
                    .any(|w| w == format!("path={path}\n").as_bytes())
            );
        }
    }

    #[test]
    fn long_and_non_ascii_names_are_written_like_go() {
        // SHA-256 of header and content (one `x`), written by Go 1.26's archive/tar.
        for (path, digest) in [
            (
                "dir/ü.txt".to_owned(),
                "094c541761dcb4ec08262c0f7592681a9d93ca7bf5d52ae3217316b83adf4489",
            ),
            (
                "n".repeat(101),
                "3b0a508eba2fae74a1ffb94556b7183e6546c33e39087d71012cd153e78d2add",
            ),
            (
                format!("{}/{}", "p".repeat(99), "n".repeat(101)),
                "ea053c76f98f9682dbdfd2661322c76fe2a2bf07ed0ebf83c78b8139197e4667",
            ),
            (
                format!("{}/{}", "d".repeat(80), "f".repeat(90)),
                "74c9c4043ab8acd934c9f17a606613f55dfd064f975b5917cce8659a16d3dd0a",
            ),
            (
                format!("{}/f", "d".repeat(156)),
                "de63ad75c412cdb818b17b61daabfaadda8648ec7f6fd9e10c9241c3e07b1aed",
            ),
            (
                format!("{}/x", "ü".repeat(60)),
                "d7115fda3baa4e89ea4edf75a9644acc258207c94723c2e527fcbba681b254bc",
            ),
        ] {
            let mut bytes = header(path.as_bytes(), Kind::File { executable: true }, 1);
            bytes.push(b'x');
            bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
            let found = Hasher::of(Algorithm::Sha256, bytes.as_slice()).unwrap();
            assert_eq!(found.hex(), digest, "{path}");
        }
    }

    #[test]
    fn a_record_length_includes_itself() {
        for (value, length) in [(1, 9), (90, 99), (91, 101), (92, 102)] {
            let record = record("path", "v".repeat(value).as_bytes());
            assert_eq!(record.len(), length);
            assert!(record.starts_with(format!("{length} ").as_bytes()));
        }
    }
}

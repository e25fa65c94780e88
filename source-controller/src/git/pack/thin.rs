//! A thin pack leaves out objects that its receiver has. Differences build on them, so they are added, as
//! `git index-pack --fix-thin` does: a pack on disk stands by itself.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use git2::ObjectType;

use super::entry::Header;
use super::error::PackError;
use super::hash::{FileHash, oid};
use super::resolve::Resolver;
use super::table::{Entry, State};
use super::{Bases, check};

/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;
/// Where the number of objects stands in the header.
const COUNT_AT: u64 = 8;

/// Resolves what builds on objects that are held, and adds these to the pack.
pub(super) fn complete(resolver: &mut Resolver<'_>, bases: &dyn Bases) -> Result<(), PackError> {
    let before = resolver.table().len();
    let mut at = 0;
    while let Some((base, child)) = resolver.table().references.get(at).copied() {
        at += 1;
        if resolver.table().states.get(child as usize) != Some(&State::Pending) {
            continue;
        }
        check(resolver.stop)?;
        let Some((kind, content)) = bases.base(oid(base), resolver.limits.delta_bytes)? else {
            continue;
        };
        resolver.spend(content.len() as u64)?;
        let entry = append(resolver, base, kind, &content)?;
        resolver.descend(entry, kind, Some(content))?;
    }
    if resolver.table().len() > before {
        seal(resolver)?;
    }
    Ok(())
}

/// Adds a whole object at the end, where the checksum was.
fn append(
    resolver: &mut Resolver<'_>,
    id: [u8; 20],
    kind: ObjectType,
    content: &[u8],
) -> Result<u32, PackError> {
    let at = resolver.table().end;
    let mut packed = ZlibEncoder::new(Header::whole(kind, content.len() as u64), Compression::fast());
    packed.write_all(content)?;
    let packed = packed.finish()?;
    resolver.scanned.file.as_file().write_all_at(&packed, at)?;
    let mut sum = Crc::new();
    sum.update(&packed);
    let table = &mut resolver.scanned.table;
    let number = u32::try_from(table.len()).unwrap_or(u32::MAX);
    table.end = at + packed.len() as u64;
    table.push(
        Entry {
            id,
            sum: sum.sum(),
            at,
        },
        State::Whole(kind),
    );
    Ok(number)
}

/// Writes the new number of objects and the new checksum.
fn seal(resolver: &mut Resolver<'_>) -> Result<(), PackError> {
    let (objects, end) = (resolver.table().len(), resolver.table().end);
    let file: &File = resolver.scanned.file.as_file();
    let objects = u32::try_from(objects).unwrap_or(u32::MAX);
    file.write_all_at(&objects.to_be_bytes(), COUNT_AT)?;
    let (mut hash, mut chunk, mut at) = (FileHash::new(), vec![0; CHUNK], 0);
    while at < end {
        check(resolver.stop)?;
        let length = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
        let Some(part) = chunk.get_mut(..length) else {
            break;
        };
        file.read_exact_at(part, at)?;
        hash.update(part);
        at += length as u64;
    }
    let sum = hash.finish();
    file.write_all_at(&sum, end)?;
    file.set_len(end + sum.len() as u64)?;
    resolver.scanned.sum = sum;
    Ok(())
}

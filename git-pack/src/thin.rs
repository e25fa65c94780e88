//! Completes a thin pack, whose deltas are based on objects of the receiver: appends the bases as `git index-pack
//! --fix-thin` does, so that the pack on disk is self-contained.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use git2::{ErrorCode, ObjectType, Odb};

use crate::entry::Header;
use crate::error::{Limit, PackError};
use crate::hash::{FileHash, oid};
use crate::resolve::Resolver;
use crate::table::{Entry, State};
use crate::{Bases, check_cancelled};

/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;
/// Offset of the number of objects in the header.
const COUNT_AT: u64 = 8;

/// Resolves the deltas whose bases are in the mirror, and appends these bases to the pack.
pub(crate) fn append_bases(resolver: &mut Resolver<'_>, bases: &dyn Bases) -> Result<(), PackError> {
    let before = resolver.table().len();
    let mut at = 0;
    while let Some((base, child)) = resolver.table().ref_deltas.get(at).copied() {
        at += 1;
        if resolver.table().states.get(child as usize) != Some(&State::Pending) {
            continue;
        }
        check_cancelled(resolver.is_cancelled)?;
        let Some((kind, content)) = read_base(bases.odb()?, base, resolver.limits.delta_bytes)? else {
            continue;
        };
        resolver.charge(content.len() as u64)?;
        let entry = append_base(resolver, base, kind, &content)?;
        resolver.resolve_tree(entry, kind, Some(content))?;
    }
    if resolver.table().len() > before {
        rewrite_trailer(resolver)?;
    }
    Ok(())
}

/// Reads an object of at most `limit` bytes, if it exists.
fn read_base(bases: &Odb<'_>, id: [u8; 20], limit: u64) -> Result<Option<(ObjectType, Vec<u8>)>, PackError> {
    let id = oid(id);
    let unreadable = |error: git2::Error| PackError::Base {
        id,
        why: error.message().to_owned(),
    };
    let size = match bases.read_header(id) {
        Ok((size, _)) => size as u64,
        Err(error) if error.code() == ErrorCode::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    if size > limit {
        return Err(Limit::DeltaBytes.exceeded(limit));
    }
    let object = bases.read(id).map_err(unreadable)?;
    Ok(Some((object.kind(), object.data().to_vec())))
}

/// Appends an undeltified object in place of the checksum.
fn append_base(
    resolver: &mut Resolver<'_>,
    id: [u8; 20],
    kind: ObjectType,
    content: &[u8],
) -> Result<u32, PackError> {
    let at = resolver.table().end;
    let mut packed = ZlibEncoder::new(
        Header::encode_whole(kind, content.len() as u64),
        Compression::fast(),
    );
    packed.write_all(content)?;
    let packed = packed.finish()?;
    resolver.scanned.file.as_file().write_all_at(&packed, at)?;
    let mut crc = Crc::new();
    crc.update(&packed);
    let table = &mut resolver.scanned.table;
    let number = u32::try_from(table.len()).unwrap_or(u32::MAX);
    table.end = at + packed.len() as u64;
    table.push(
        Entry {
            id,
            crc32: crc.sum(),
            at,
        },
        State::Whole(kind),
    );
    Ok(number)
}

/// Writes the new number of objects and the new checksum.
fn rewrite_trailer(resolver: &mut Resolver<'_>) -> Result<(), PackError> {
    let (objects, end) = (resolver.table().len(), resolver.table().end);
    let file: &File = resolver.scanned.file.as_file();
    let objects = u32::try_from(objects).unwrap_or(u32::MAX);
    file.write_all_at(&objects.to_be_bytes(), COUNT_AT)?;
    let (mut hash, mut chunk, mut at) = (FileHash::new(), vec![0; CHUNK], 0);
    while at < end {
        check_cancelled(resolver.is_cancelled)?;
        let length = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
        let Some(part) = chunk.get_mut(..length) else {
            break;
        };
        file.read_exact_at(part, at)?;
        hash.update(part);
        at += length as u64;
    }
    let checksum = hash.finish();
    file.write_all_at(&checksum, end)?;
    file.set_len(end + checksum.len() as u64)?;
    resolver.scanned.checksum = checksum;
    Ok(())
}

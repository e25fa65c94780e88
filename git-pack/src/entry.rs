//! The header of one pack entry: type, unpacked size, and base of a delta. Pure.

use git2::ObjectType;

use crate::error::{FormatError, PackError};

/// Type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryType {
    /// An undeltified object.
    Whole(ObjectType),
    /// A delta (`OBJ_OFS_DELTA`) whose base starts this many bytes earlier.
    OfsDelta(u64),
    /// A delta (`OBJ_REF_DELTA`) whose base has this object name.
    RefDelta([u8; 20]),
}

/// The header of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) entry_type: EntryType,
    /// Unpacked size of the object or the delta, in bytes.
    pub(crate) size: u64,
}

impl Header {
    /// Parses the header of the entry at byte `at` of its pack.
    pub(crate) fn read(at: u64, mut byte: impl FnMut() -> Result<u8, PackError>) -> Result<Self, PackError> {
        let first = byte()?;
        let mut size = u64::from(first & 0x0f);
        let (mut last, mut shift) = (first, 4);
        while last & 0x80 != 0 {
            last = byte()?;
            let bits = u64::from(last & 0x7f);
            if shift > 57 || (bits << shift) >> shift != bits {
                return Err(FormatError::EntryHeader(at).into());
            }
            size |= bits << shift;
            shift += 7;
        }
        let entry_type = match (first >> 4) & 7 {
            1 => EntryType::Whole(ObjectType::Commit),
            2 => EntryType::Whole(ObjectType::Tree),
            3 => EntryType::Whole(ObjectType::Blob),
            4 => EntryType::Whole(ObjectType::Tag),
            6 => EntryType::OfsDelta(parse_distance(at, &mut byte)?),
            7 => {
                let mut id = [0; 20];
                for byte_slot in &mut id {
                    *byte_slot = byte()?;
                }
                EntryType::RefDelta(id)
            }
            _ => return Err(FormatError::EntryHeader(at).into()),
        };
        Ok(Self { entry_type, size })
    }

    /// Encodes the header of an undeltified object.
    pub(crate) fn encode_whole(kind: ObjectType, size: u64) -> Vec<u8> {
        let kind: u8 = match kind {
            ObjectType::Commit => 1,
            ObjectType::Tree => 2,
            ObjectType::Tag => 4,
            ObjectType::Blob | ObjectType::Any => 3,
        };
        let low = |size: u64, mask: u64| u8::try_from(size & mask).unwrap_or_default();
        let mut bytes = vec![(kind << 4) | low(size, 0x0f)];
        let mut rest = size >> 4;
        while rest > 0 {
            if let Some(last) = bytes.last_mut() {
                *last |= 0x80;
            }
            bytes.push(low(rest, 0x7f));
            rest >>= 7;
        }
        bytes
    }
}

/// Parses the distance to the base of a delta.
fn parse_distance(at: u64, byte: &mut impl FnMut() -> Result<u8, PackError>) -> Result<u64, PackError> {
    let mut last = byte()?;
    let mut distance = u64::from(last & 0x7f);
    while last & 0x80 != 0 {
        last = byte()?;
        if distance >= u64::MAX >> 8 {
            return Err(FormatError::BaseOffset(at).into());
        }
        distance = ((distance + 1) << 7) | u64::from(last & 0x7f);
    }
    Ok(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Header, PackError> {
        let mut bytes = bytes.iter().copied();
        Header::read(12, || bytes.next().ok_or_else(|| FormatError::Truncated.into()))
    }

    #[test]
    fn written_data_is_parsed_back() {
        for kind in [
            ObjectType::Commit,
            ObjectType::Tree,
            ObjectType::Blob,
            ObjectType::Tag,
        ] {
            for size in [0, 1, 15, 16, 2047, 2048, 1 << 40, u64::MAX >> 4] {
                let entry_type = EntryType::Whole(kind);
                assert_eq!(
                    read(&Header::encode_whole(kind, size)).unwrap(),
                    Header { entry_type, size }
                );
            }
        }
    }

    #[test]
    fn deltas_name_their_base() {
        let entry_type = EntryType::OfsDelta(((0x11 + 1) << 7) | 0x22);
        assert_eq!(read(&[0x65, 0x91, 0x22]).unwrap(), Header { entry_type, size: 5 });
        let named = [&[0x70][..], &[7; 20]].concat();
        let entry_type = EntryType::RefDelta([7; 20]);
        assert_eq!(read(&named).unwrap(), Header { entry_type, size: 0 });
    }

    #[test]
    fn oversized_numbers_are_refused() {
        let endless = [0xff; 40];
        assert!(matches!(
            read(&endless),
            Err(PackError::Malformed(FormatError::EntryHeader(12)))
        ));
        let far = [&[0x60][..], &[0xff; 40]].concat();
        assert!(matches!(
            read(&far),
            Err(PackError::Malformed(FormatError::BaseOffset(12)))
        ));
        for kind in [0x00, 0x50] {
            assert!(matches!(
                read(&[kind]),
                Err(PackError::Malformed(FormatError::EntryHeader(12)))
            ));
        }
        assert!(matches!(
            read(&[0x90]),
            Err(PackError::Malformed(FormatError::Truncated))
        ));
    }
}

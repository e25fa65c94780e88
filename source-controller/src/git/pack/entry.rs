//! The header of one entry: what it is, how large unpacked, and what it is a difference to. Pure.

use git2::ObjectType;

use super::error::{Flaw, PackError};

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A whole object.
    Whole(ObjectType),
    /// A difference to the entry that begins this many bytes before.
    Offset(u64),
    /// A difference to the object of this name.
    Reference([u8; 20]),
}

/// The header of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) form: Form,
    /// Bytes of the object, or of the difference, unpacked.
    pub(super) size: u64,
}

impl Header {
    /// Reads the header of the entry at byte `at` of its pack.
    pub(super) fn read(at: u64, mut byte: impl FnMut() -> Result<u8, PackError>) -> Result<Self, PackError> {
        let first = byte()?;
        let mut size = u64::from(first & 0x0f);
        let (mut last, mut shift) = (first, 4);
        while last & 0x80 != 0 {
            last = byte()?;
            let bits = u64::from(last & 0x7f);
            if shift > 57 || (bits << shift) >> shift != bits {
                return Err(Flaw::Entry(at).into());
            }
            size |= bits << shift;
            shift += 7;
        }
        let form = match (first >> 4) & 7 {
            1 => Form::Whole(ObjectType::Commit),
            2 => Form::Whole(ObjectType::Tree),
            3 => Form::Whole(ObjectType::Blob),
            4 => Form::Whole(ObjectType::Tag),
            6 => Form::Offset(distance(at, &mut byte)?),
            7 => {
                let mut id = [0; 20];
                for place in &mut id {
                    *place = byte()?;
                }
                Form::Reference(id)
            }
            _ => return Err(Flaw::Entry(at).into()),
        };
        Ok(Self { form, size })
    }

    /// The header of a whole object, as it is written.
    pub(super) fn whole(kind: ObjectType, size: u64) -> Vec<u8> {
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

/// How far back the base of a difference begins.
fn distance(at: u64, byte: &mut impl FnMut() -> Result<u8, PackError>) -> Result<u64, PackError> {
    let mut last = byte()?;
    let mut distance = u64::from(last & 0x7f);
    while last & 0x80 != 0 {
        last = byte()?;
        if distance >= u64::MAX >> 8 {
            return Err(Flaw::Offset(at).into());
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
        Header::read(12, || bytes.next().ok_or_else(|| Flaw::Short.into()))
    }

    #[test]
    fn what_is_written_is_read() {
        for kind in [
            ObjectType::Commit,
            ObjectType::Tree,
            ObjectType::Blob,
            ObjectType::Tag,
        ] {
            for size in [0, 1, 15, 16, 2047, 2048, 1 << 40, u64::MAX >> 4] {
                let form = Form::Whole(kind);
                assert_eq!(read(&Header::whole(kind, size)).unwrap(), Header { form, size });
            }
        }
    }

    #[test]
    fn differences_name_their_base() {
        let form = Form::Offset(((0x11 + 1) << 7) | 0x22);
        assert_eq!(read(&[0x65, 0x91, 0x22]).unwrap(), Header { form, size: 5 });
        let named = [&[0x70][..], &[7; 20]].concat();
        let form = Form::Reference([7; 20]);
        assert_eq!(read(&named).unwrap(), Header { form, size: 0 });
    }

    #[test]
    fn numbers_that_are_too_large_are_refused() {
        let endless = [0xff; 40];
        assert!(matches!(
            read(&endless),
            Err(PackError::Malformed(Flaw::Entry(12)))
        ));
        let far = [&[0x60][..], &[0xff; 40]].concat();
        assert!(matches!(read(&far), Err(PackError::Malformed(Flaw::Offset(12)))));
        for kind in [0x00, 0x50] {
            assert!(matches!(
                read(&[kind]),
                Err(PackError::Malformed(Flaw::Entry(12)))
            ));
        }
        assert!(matches!(read(&[0x90]), Err(PackError::Malformed(Flaw::Short))));
    }
}

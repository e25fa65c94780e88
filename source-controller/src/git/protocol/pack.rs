//! The header of a pack, which contains the number of objects (`gitformat-pack`).

/// Length of the header in bytes.
pub(crate) const HEADER_BYTES: usize = 12;

/// The header of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of objects in the pack.
    pub objects: u32,
}

/// Bytes that are not the header of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it does not begin with the header of a pack of version 2 or 3")]
pub struct InvalidHeader;

/// Parses a header.
///
/// # Errors
/// The signature or the version is wrong.
pub fn parse(header: &[u8; HEADER_BYTES]) -> Result<Header, InvalidHeader> {
    let [b'P', b'A', b'C', b'K', 0, 0, 0, 2 | 3, a, b, c, d] = *header else {
        return Err(InvalidHeader);
    };
    Ok(Header {
        objects: u32::from_be_bytes([a, b, c, d]),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_number_of_objects_is_read() {
        assert_eq!(parse(b"PACK\0\0\0\x02\0\0\x01\x02"), Ok(Header { objects: 258 }));
        for bad in [
            b"PACK\0\0\0\x04\0\0\0\0",
            b"PARK\0\0\0\x02\0\0\0\0",
            b"\0\0\0\0\0\0\0\0\0\0\0\0",
        ] {
            assert_eq!(parse(bad), Err(InvalidHeader));
        }
    }

    proptest! {
        #[test]
        fn any_header_is_parsed_or_refused(bytes in any::<[u8; 12]>()) {
            let _ = parse(&bytes);
        }
    }
}

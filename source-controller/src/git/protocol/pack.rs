//! The first twelve bytes of a pack, which say how much is coming (`gitformat-pack`).

/// Bytes of the header.
pub const HEADER: usize = 12;

/// What the header of a pack says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of objects in the pack.
    pub objects: u32,
}

/// Bytes that no pack begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it does not begin as a pack of version 2 or 3 does")]
pub struct NoPack;

/// Reads a header.
///
/// # Errors
/// Signature or version is another.
pub fn parse(header: &[u8; HEADER]) -> Result<Header, NoPack> {
    let [b'P', b'A', b'C', b'K', 0, 0, 0, 2 | 3, a, b, c, d] = *header else {
        return Err(NoPack);
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
            assert_eq!(parse(bad), Err(NoPack));
        }
    }

    proptest! {
        #[test]
        fn any_header_is_read_or_refused(bytes in any::<[u8; 12]>()) {
            let _ = parse(&bytes);
        }
    }
}

//! Deltas (`gitformat-pack`, "Deltified representation"): instructions that build an object from a base object. Pure;
//! the instructions may arrive in chunks of any size.

use crate::error::{FormatError, PackError};

/// A delta with an invalid instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidDelta;

/// The sizes at the start of a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeltaSizes {
    /// Size of the base object in bytes.
    pub(crate) base: u64,
    /// Size of the resulting object in bytes.
    pub(crate) result: u64,
}

impl DeltaSizes {
    /// Parses the sizes and returns their encoded length; `None` if `bytes` is too short.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, InvalidDelta> {
        let Some((base, first)) = parse_size(bytes)? else {
            return Ok(None);
        };
        let Some((result, second)) = parse_size(bytes.get(first..).unwrap_or_default())? else {
            return Ok(None);
        };
        Ok(Some((Self { base, result }, first + second)))
    }
}

fn parse_size(bytes: &[u8]) -> Result<Option<(u64, usize)>, InvalidDelta> {
    let mut value = 0_u64;
    for (at, byte) in bytes.iter().enumerate() {
        if at > 8 {
            return Err(InvalidDelta);
        }
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok(Some((value, at + 1)));
        }
    }
    Ok(None)
}

/// Receives the result of a delta.
pub(crate) trait Output {
    /// Announces the size of the result before its first bytes.
    fn begin(&mut self, size: u64) -> Result<(), PackError>;
    /// Receives the next bytes of the result.
    fn push(&mut self, bytes: &[u8]);
}

/// A delta that is being applied to `base`.
pub(crate) struct Delta<'a> {
    base: &'a [u8],
    /// Offset of its entry, for errors.
    at: u64,
    /// Remaining bytes of the result, once its size is known.
    remaining: Option<u64>,
    /// The start of an incomplete instruction.
    partial: Vec<u8>,
}

impl<'a> Delta<'a> {
    pub(crate) const fn new(base: &'a [u8], at: u64) -> Self {
        Self {
            base,
            at,
            remaining: None,
            partial: Vec::new(),
        }
    }

    /// Applies further instructions.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], output: &mut impl Output) -> Result<(), PackError> {
        while let (false, Some((first, rest))) = (self.partial.is_empty(), bytes.split_first()) {
            let mut partial = std::mem::take(&mut self.partial);
            partial.push(*first);
            bytes = rest;
            if self.apply_instruction(&partial, output)?.is_none() {
                self.partial = partial;
            }
        }
        while !bytes.is_empty() {
            let Some(consumed) = self.apply_instruction(bytes, output)? else {
                self.partial.extend_from_slice(bytes);
                break;
            };
            bytes = bytes.get(consumed..).unwrap_or_default();
        }
        Ok(())
    }

    /// Checks that the last instruction and the result are complete.
    pub(crate) fn finish(&self) -> Result<(), PackError> {
        if self.partial.is_empty() && self.remaining == Some(0) {
            Ok(())
        } else {
            Err(FormatError::Delta(self.at).into())
        }
    }

    /// Applies the first instruction and returns its length; `None` if it is incomplete.
    fn apply_instruction(
        &mut self,
        bytes: &[u8],
        output: &mut impl Output,
    ) -> Result<Option<usize>, PackError> {
        let bad = FormatError::Delta(self.at);
        let Some(remaining) = self.remaining else {
            let Some((sizes, consumed)) = DeltaSizes::read(bytes).map_err(|InvalidDelta| bad)? else {
                return Ok(None);
            };
            if sizes.base != self.base.len() as u64 {
                return Err(bad.into());
            }
            output.begin(sizes.result)?;
            self.remaining = Some(sizes.result);
            return Ok(Some(consumed));
        };
        let Some((output_bytes, consumed)) =
            parse_instruction(self.base, bytes).map_err(|InvalidDelta| bad)?
        else {
            return Ok(None);
        };
        self.remaining = Some(remaining.checked_sub(output_bytes.len() as u64).ok_or(bad)?);
        output.push(output_bytes);
        Ok(Some(consumed))
    }
}

/// Decodes the first instruction: returns its output and its length; `None` if it is incomplete.
fn parse_instruction<'a>(base: &'a [u8], bytes: &'a [u8]) -> Result<Option<(&'a [u8], usize)>, InvalidDelta> {
    let Some((code, arguments)) = bytes.split_first() else {
        return Ok(None);
    };
    if code & 0x80 == 0 {
        let length = usize::from(*code);
        if length == 0 {
            return Err(InvalidDelta);
        }
        return Ok(arguments.get(..length).map(|literal| (literal, 1 + length)));
    }
    let (mut offset, mut size, mut consumed) = (0_usize, 0_usize, 0);
    for bit in 0..7 {
        if code & (1 << bit) == 0 {
            continue;
        }
        let Some(value) = arguments.get(consumed).copied().map(usize::from) else {
            return Ok(None);
        };
        consumed += 1;
        if bit < 4 {
            offset |= value << (8 * bit);
        } else {
            size |= value << (8 * (bit - 4));
        }
    }
    if size == 0 {
        size = 0x1_0000;
    }
    let end = offset.checked_add(size).ok_or(InvalidDelta)?;
    let copied = base.get(offset..end).ok_or(InvalidDelta)?;
    Ok(Some((copied, 1 + consumed)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Default)]
    struct Collected {
        size: u64,
        bytes: Vec<u8>,
    }

    impl Output for Collected {
        fn begin(&mut self, size: u64) -> Result<(), PackError> {
            self.size = size;
            Ok(())
        }
        fn push(&mut self, bytes: &[u8]) {
            self.bytes.extend_from_slice(bytes);
        }
    }

    fn apply(base: &[u8], source: &[&[u8]]) -> Result<Vec<u8>, InvalidDelta> {
        let (mut delta, mut output_bytes) = (Delta::new(base, 12), Collected::default());
        for piece in source {
            delta.feed(piece, &mut output_bytes).map_err(|_| InvalidDelta)?;
        }
        delta.finish().map_err(|_| InvalidDelta)?;
        assert_eq!(output_bytes.size, output_bytes.bytes.len() as u64);
        Ok(output_bytes.bytes)
    }

    #[test]
    fn copy_and_literal_instructions_build_the_result() {
        let delta = [10, 7, 0x91, 2, 3, 2, b'x', b'y', 0x90, 2];
        assert_eq!(apply(b"0123456789", &[&delta]).unwrap(), b"234xy01");
        let bytes: Vec<_> = delta.iter().map(std::slice::from_ref).collect();
        assert_eq!(apply(b"0123456789", &bytes).unwrap(), b"234xy01");
        let base = vec![7; 0x1_0000];
        assert_eq!(
            apply(&base, &[&[0x80, 0x80, 4, 0x80, 0x80, 4, 0x80]]).unwrap(),
            base
        );
    }

    #[test]
    fn invalid_instructions_are_refused() {
        for (delta, why) in [
            (&[9, 1, 0x90, 1][..], "another base size"),
            (&[10, 1, 0], "a reserved instruction"),
            (&[10, 1, 0x91, 10, 1], "a copy from behind the base"),
            (&[10, 1, 0x90, 2], "more than the result"),
            (&[10, 2, 0x90, 1], "less than the result"),
            (&[10, 3, 3, b'a'], "a literal that ends early"),
            (&[10], "no sizes"),
            (&[0xff; 12], "endless sizes"),
        ] {
            assert_eq!(apply(b"0123456789", &[delta]), Err(InvalidDelta), "{why}");
        }
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter(
            base in proptest::collection::vec(any::<u8>(), 10),
            rest in proptest::collection::vec(any::<u8>(), 0..60),
            result in 0_u8..127,
            split_at_byte in 0_usize..60,
        ) {
            let delta = [&[10, result][..], &rest].concat();
            let (front, back) = delta.split_at(split_at_byte.min(delta.len()));
            prop_assert_eq!(apply(&base, &[&delta]), apply(&base, &[front, back]));
        }
    }
}

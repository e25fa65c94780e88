//! Differences (`gitformat-pack`, "Deltified representation"): instructions that make an object from another one. Pure,
//! and fed with whatever pieces of the instructions come.

use super::error::{Flaw, PackError};

/// Something in a difference that cannot be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadDelta;

/// The sizes that a difference begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Bytes of the object that it is applied to.
    pub(super) base: u64,
    /// Bytes of the object that it makes.
    pub(super) result: u64,
}

impl Sizes {
    /// The sizes and how many bytes they take; none if `bytes` end within them.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, BadDelta> {
        let Some((base, first)) = number(bytes)? else {
            return Ok(None);
        };
        let Some((result, second)) = number(bytes.get(first..).unwrap_or_default())? else {
            return Ok(None);
        };
        Ok(Some((Self { base, result }, first + second)))
    }
}

fn number(bytes: &[u8]) -> Result<Option<(u64, usize)>, BadDelta> {
    let mut value = 0_u64;
    for (at, byte) in bytes.iter().enumerate() {
        if at > 8 {
            return Err(BadDelta);
        }
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok(Some((value, at + 1)));
        }
    }
    Ok(None)
}

/// Takes what a difference makes.
pub(super) trait Output {
    /// The size of the result, before anything of it.
    fn begin(&mut self, size: u64) -> Result<(), PackError>;
    /// The next bytes of the result.
    fn push(&mut self, bytes: &[u8]);
}

/// A difference that is being applied to `base`.
pub(super) struct Delta<'a> {
    base: &'a [u8],
    /// Where its entry is, for errors.
    at: u64,
    /// Bytes of the result that are still to come, once its size is known.
    left: Option<u64>,
    /// The beginning of an instruction whose end has not come.
    begun: Vec<u8>,
}

impl<'a> Delta<'a> {
    pub(super) const fn new(base: &'a [u8], at: u64) -> Self {
        Self {
            base,
            at,
            left: None,
            begun: Vec::new(),
        }
    }

    /// Follows further instructions.
    pub(super) fn feed(&mut self, mut bytes: &[u8], output: &mut impl Output) -> Result<(), PackError> {
        while let (false, Some((first, rest))) = (self.begun.is_empty(), bytes.split_first()) {
            let mut begun = std::mem::take(&mut self.begun);
            begun.push(*first);
            bytes = rest;
            if self.step(&begun, output)?.is_none() {
                self.begun = begun;
            }
        }
        while !bytes.is_empty() {
            let Some(used) = self.step(bytes, output)? else {
                self.begun.extend_from_slice(bytes);
                break;
            };
            bytes = bytes.get(used..).unwrap_or_default();
        }
        Ok(())
    }

    /// Whether everything was there: whole instructions and the whole result.
    pub(super) fn finish(&self) -> Result<(), PackError> {
        if self.begun.is_empty() && self.left == Some(0) {
            Ok(())
        } else {
            Err(Flaw::Delta(self.at).into())
        }
    }

    /// Follows the first instruction: how many bytes it has, or none if its end is missing.
    fn step(&mut self, bytes: &[u8], output: &mut impl Output) -> Result<Option<usize>, PackError> {
        let bad = Flaw::Delta(self.at);
        let Some(left) = self.left else {
            let Some((sizes, used)) = Sizes::read(bytes).map_err(|BadDelta| bad)? else {
                return Ok(None);
            };
            if sizes.base != self.base.len() as u64 {
                return Err(bad.into());
            }
            output.begin(sizes.result)?;
            self.left = Some(sizes.result);
            return Ok(Some(used));
        };
        let Some((made, used)) = instruction(self.base, bytes).map_err(|BadDelta| bad)? else {
            return Ok(None);
        };
        self.left = Some(left.checked_sub(made.len() as u64).ok_or(bad)?);
        output.push(made);
        Ok(Some(used))
    }
}

/// What the first instruction makes, and its own length; none if its end is missing.
fn instruction<'a>(base: &'a [u8], bytes: &'a [u8]) -> Result<Option<(&'a [u8], usize)>, BadDelta> {
    let Some((code, arguments)) = bytes.split_first() else {
        return Ok(None);
    };
    if code & 0x80 == 0 {
        let length = usize::from(*code);
        if length == 0 {
            return Err(BadDelta);
        }
        return Ok(arguments.get(..length).map(|literal| (literal, 1 + length)));
    }
    let (mut offset, mut size, mut used) = (0_usize, 0_usize, 0);
    for bit in 0..7 {
        if code & (1 << bit) == 0 {
            continue;
        }
        let Some(value) = arguments.get(used).copied().map(usize::from) else {
            return Ok(None);
        };
        used += 1;
        if bit < 4 {
            offset |= value << (8 * bit);
        } else {
            size |= value << (8 * (bit - 4));
        }
    }
    if size == 0 {
        size = 0x1_0000;
    }
    let end = offset.checked_add(size).ok_or(BadDelta)?;
    let copied = base.get(offset..end).ok_or(BadDelta)?;
    Ok(Some((copied, 1 + used)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Default)]
    struct Made {
        size: u64,
        bytes: Vec<u8>,
    }

    impl Output for Made {
        fn begin(&mut self, size: u64) -> Result<(), PackError> {
            self.size = size;
            Ok(())
        }
        fn push(&mut self, bytes: &[u8]) {
            self.bytes.extend_from_slice(bytes);
        }
    }

    fn apply(base: &[u8], pieces: &[&[u8]]) -> Result<Vec<u8>, BadDelta> {
        let (mut delta, mut made) = (Delta::new(base, 12), Made::default());
        for piece in pieces {
            delta.feed(piece, &mut made).map_err(|_| BadDelta)?;
        }
        delta.finish().map_err(|_| BadDelta)?;
        assert_eq!(made.size, made.bytes.len() as u64);
        Ok(made.bytes)
    }

    #[test]
    fn copies_and_literals_make_the_result() {
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
    fn what_cannot_be_followed_is_refused() {
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
            assert_eq!(apply(b"0123456789", &[delta]), Err(BadDelta), "{why}");
        }
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            base in proptest::collection::vec(any::<u8>(), 10),
            rest in proptest::collection::vec(any::<u8>(), 0..60),
            result in 0_u8..127,
            cut in 0_usize..60,
        ) {
            let delta = [&[10, result][..], &rest].concat();
            let (front, back) = delta.split_at(cut.min(delta.len()));
            prop_assert_eq!(apply(&base, &[&delta]), apply(&base, &[front, back]));
        }
    }
}

//! The digest of an archive, with its states on the way. Pure.
//!
//! A build records the state of its SHA-256 at each multiple of [`STRIDE`]. The next archive has the same bytes up to its first change, and
//! its digest continues from the last state within them. So the digest of a push takes the time for what is behind its first change.

use sluice_api::digest::{Algorithm, Digest};

use super::buffer::Buffer;
use super::digest::{Checkpoint, Hasher};

/// Bytes between two checkpoints: no more than most buffers have, so that each of them contains one.
const STRIDE: u64 = 128 << 10;

/// Computes the digest of an archive from the buffers that are written.
pub(super) struct ArchiveHasher {
    hasher: Hasher,
    /// Number of bytes in the state of `hasher`.
    length: u64,
    /// The states at all multiples of [`STRIDE`] up to there; none if the algorithm has no checkpoints.
    checkpoints: Vec<Checkpoint>,
    /// Those of the previous artifact.
    earlier: Vec<Checkpoint>,
    /// A buffer that the previous artifact has too, and where the bytes begin that follow the last checkpoint. They are not hashed if the
    /// next buffer has another checkpoint.
    rest: Option<(Buffer, usize)>,
}

impl ArchiveHasher {
    /// Starts a digest. `earlier` are the checkpoints of the previous artifact.
    pub(super) fn new(algorithm: Algorithm, earlier: Vec<Checkpoint>) -> Self {
        let hasher = Hasher::new(algorithm);
        let has_checkpoints = hasher.checkpoint().is_some();
        Self {
            hasher,
            length: 0,
            checkpoints: Vec::new(),
            earlier: if has_checkpoints { earlier } else { Vec::new() },
            rest: None,
        }
    }

    /// Whether the bytes up to a checkpoint in this buffer need not be hashed, because the previous artifact has them too.
    pub(super) fn can_skip(&self, buffer: &Buffer) -> bool {
        self.checkpoint_in(buffer).is_some()
    }

    /// Adds the bytes of a buffer. Returns a buffer that is no longer needed.
    pub(super) fn append(&mut self, buffer: Buffer) -> Option<Buffer> {
        if let Some((count, start)) = self.checkpoint_in(&buffer)
            && self.resume(count).is_some()
        {
            let rest = self.rest.replace((buffer, start));
            return rest.map(|(rest, _)| rest);
        }
        self.hash_rest();
        self.hash(buffer.bytes());
        Some(buffer)
    }

    /// Returns the number of checkpoints up to the last one in a buffer, and where it is there; `None` if the buffer has no new one, or if
    /// the previous artifact has other bytes.
    fn checkpoint_in(&self, buffer: &Buffer) -> Option<(usize, usize)> {
        let unhashed = self.rest.as_ref().map_or(0, |(rest, start)| rest.len() - start);
        let start = self.length + unhashed as u64;
        let count = (start + buffer.len() as u64) / STRIDE;
        let in_buffer = usize::try_from((count * STRIDE).checked_sub(start)?).ok()?;
        let count = usize::try_from(count).ok()?;
        let is_new = self.checkpoints.len() < count && count <= self.earlier.len();
        (buffer.is_unchanged && is_new).then_some((count, in_buffer))
    }

    /// Continues from the last of so many checkpoints of the previous artifact.
    fn resume(&mut self, count: usize) -> Option<()> {
        let known = self.earlier.get(self.checkpoints.len()..count)?;
        self.hasher = Hasher::resume(known.last()?)?;
        self.checkpoints.extend_from_slice(known);
        self.length = count as u64 * STRIDE;
        Some(())
    }

    /// Hashes the bytes that were left out.
    fn hash_rest(&mut self) {
        if let Some((rest, start)) = self.rest.take() {
            self.hash(&rest.bytes()[start..]);
        }
    }

    /// Hashes bytes, and records the checkpoints within them.
    fn hash(&mut self, mut bytes: &[u8]) {
        loop {
            let until = STRIDE - self.length % STRIDE;
            let Some((part, rest)) = usize::try_from(until)
                .ok()
                .and_then(|until| bytes.split_at_checked(until))
            else {
                self.hasher.update(bytes);
                self.length += bytes.len() as u64;
                return;
            };
            self.hasher.update(part);
            self.length += until;
            self.checkpoints.extend(self.hasher.checkpoint());
            bytes = rest;
        }
    }

    /// Returns the digest of all bytes, and the checkpoints.
    pub(super) fn finish(mut self) -> (Digest, Vec<Checkpoint>) {
        self.hash_rest();
        (self.hasher.finish(), self.checkpoints)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::archive::tests::fixture::text;

    fn buffer(bytes: &[u8], is_unchanged: bool) -> Buffer {
        let mut buffer = Buffer::default();
        buffer.append(bytes);
        buffer.is_unchanged = is_unchanged;
        buffer
    }

    /// Returns digest and checkpoints of bytes that are hashed in buffers which end there; those before `changed` are unchanged.
    fn digest(
        bytes: &[u8],
        ends: &[usize],
        earlier: Vec<Checkpoint>,
        changed: usize,
    ) -> (Digest, Vec<Checkpoint>) {
        let mut hasher = ArchiveHasher::new(Algorithm::Sha256, earlier);
        let mut start = 0;
        for end in ends.iter().copied().chain([bytes.len()]) {
            let end = end.clamp(start, bytes.len());
            drop(hasher.append(buffer(&bytes[start..end], end <= changed)));
            start = end;
        }
        hasher.finish()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// The digest and the checkpoints depend on the bytes alone: not on the buffers, and not on how many bytes are unchanged.
        #[test]
        fn a_digest_that_continues_is_that_of_all_bytes(
            length in 0..1_200_000_usize,
            changed in 0..1_200_000_usize,
            mut ends in proptest::collection::vec(0..1_200_000_usize, 0..12),
        ) {
            ends.sort_unstable();
            let before = text(1, length);
            let mut after = before.clone();
            after.truncate(changed);
            after.extend(text(2, length.saturating_sub(changed) + 7));
            let earlier = digest(&before, &[], Vec::new(), 0).1;
            prop_assert_eq!(earlier.len(), length >> 17);
            let whole = digest(&after, &[], Vec::new(), 0);
            prop_assert_eq!(&whole.0, &Hasher::of(Algorithm::Sha256, after.as_slice()).unwrap());
            prop_assert_eq!(digest(&after, &ends, earlier, changed.min(length)), whole);
        }
    }

    /// Only the bytes behind the last checkpoint in front of the change are hashed: those before it are other ones here.
    #[test]
    fn unchanged_bytes_are_not_hashed() {
        let stride = usize::try_from(STRIDE).unwrap();
        let bytes = text(1, 5 * stride + 100);
        let (whole, earlier) = digest(&bytes, &[], Vec::new(), 0);
        let mut other = bytes.clone();
        other[..4 * stride].fill(0);
        let ends: Vec<_> = (1..5).map(|number| number * (stride + 20)).collect();
        let changed = 4 * (stride + 20);
        assert_eq!(digest(&other, &ends, earlier.clone(), changed).0, whole);
        let nothing_unchanged = digest(&other, &ends, earlier.clone(), 0).0;
        assert_eq!(
            nothing_unchanged,
            Hasher::of(Algorithm::Sha256, other.as_slice()).unwrap()
        );
        // A checkpoint that cannot be read is not used.
        let unreadable = vec![[255; _]; earlier.len()];
        assert_eq!(digest(&bytes, &ends, unreadable, changed).0, whole);
    }

    #[test]
    fn other_algorithms_hash_everything() {
        let bytes = text(1, 400_000);
        let earlier = digest(&bytes, &[], Vec::new(), 0).1;
        for algorithm in [Algorithm::Sha1, Algorithm::Sha512, Algorithm::Blake3] {
            let mut hasher = ArchiveHasher::new(algorithm, earlier.clone());
            drop(hasher.append(buffer(&bytes, true)));
            let expected = Hasher::of(algorithm, bytes.as_slice()).unwrap();
            assert_eq!(hasher.finish(), (expected, Vec::new()));
        }
    }

    #[test]
    fn buffers_return_once_they_are_not_needed() {
        let stride = usize::try_from(STRIDE).unwrap();
        let bytes = text(1, 3 * stride);
        let earlier = digest(&bytes, &[], Vec::new(), 0).1;
        let mut hasher = ArchiveHasher::new(Algorithm::Sha256, earlier);
        let returned: Vec<_> = bytes
            .chunks(stride)
            .map(|bytes| hasher.append(buffer(bytes, true)).map(|buffer| buffer.len()))
            .collect();
        assert_eq!(returned, [None, Some(stride), Some(stride)]);
    }
}

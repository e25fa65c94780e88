//! Reads most files of a commit without libgit2, which is slower (`sluice_git_pack::BlobReader`).

use git2::Oid;

use super::super::large_blob::LARGE_BLOB_BYTES;
use super::{Checkout, Inner};

impl Checkout {
    /// Returns the content of a small file that is stored undeltified. Any other one is read with [`Checkout::open_large`] or
    /// [`Checkout::read`], which also report what is missing, damaged or too large.
    pub(crate) fn read_undeltified(&self, id: Oid) -> Option<Vec<u8>> {
        let Inner {
            reader,
            generation,
            limits,
            mirror,
            ..
        } = &*self.0;
        let reader = reader.get_or_init(|| mirror.open_reader(&generation.packs()));
        reader
            .as_ref()?
            .read(id, limits.blob_bytes.min(LARGE_BLOB_BYTES - 1))
    }
}

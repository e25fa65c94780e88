//! Which file a request asks for, and streaming it in bounded pieces.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, stream};
use http_body::Frame;
use percent_encoding::percent_decode_str;

use super::downloads::Download;

/// Bytes read, and held per connection, at a time.
pub(super) const CHUNK: u64 = 256 * 1024;

/// The end of every name that is served. Locks and unfinished files end otherwise.
const SERVED: &str = ".tar.gz";

/// Components of the longest path that is looked up: kind, namespace, name, file.
const DEPTH: usize = 4;

/// The path below the root that a request asks for, if it can be that of an artifact.
pub(super) fn requested(path: &str) -> Option<PathBuf> {
    let path = percent_decode_str(path.strip_prefix('/')?).decode_utf8().ok()?;
    let ordinary = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains(['\\', '\0']);
    let mut parts = path.split('/');
    let good = parts.clone().count() == DEPTH && parts.all(ordinary) && path.ends_with(SERVED);
    good.then(|| PathBuf::from(path.into_owned()))
}

/// The bytes of `range`, read piece by piece as the client takes them. `download` is held until the last one is taken.
pub(super) fn pieces(
    file: Arc<File>,
    range: Range<u64>,
    download: Download,
) -> impl Stream<Item = io::Result<Frame<Bytes>>> {
    stream::try_unfold((file, range, download), |(file, range, download)| async move {
        if range.is_empty() {
            return Ok(None);
        }
        let reader = Arc::clone(&file);
        let from = range.start;
        let length = CHUNK.min(range.end - range.start);
        let piece = tokio::task::spawn_blocking(move || read(&reader, from, length))
            .await
            .map_err(io::Error::other)??;
        Ok(Some((
            Frame::data(piece),
            (file, from + length..range.end, download),
        )))
    })
}

/// One piece; a file that has become shorter ends the answer with an error, never with other bytes.
pub(super) fn read(file: &File, from: u64, length: u64) -> io::Result<Bytes> {
    let length = usize::try_from(length).map_err(io::Error::other)?;
    let mut piece = vec![0; length];
    file.read_exact_at(&mut piece, from)?;
    Ok(piece.into())
}

#[cfg(test)]
mod tests {
    use super::requested;

    #[test]
    fn only_paths_of_artifacts_are_looked_up() {
        for (path, found) in [
            (
                "/gitrepository/ns/n/ab.tar.gz",
                Some("gitrepository/ns/n/ab.tar.gz"),
            ),
            (
                "/gitrepository/ns/n/a%62.tar.gz",
                Some("gitrepository/ns/n/ab.tar.gz"),
            ),
            ("/gitrepository/ns/n/ab.tar.gz.lock", None),
            ("/gitrepository/ns/n/ab.tar.gzXyZ123", None),
            ("/gitrepository/ns/n/", None),
            ("/gitrepository/ns/n", None),
            ("/gitrepository/ns/../ab.tar.gz", None),
            ("/gitrepository/ns/%2e%2e/ab.tar.gz", None),
            ("/gitrepository/ns/n%2f..%2f..%2fab.tar.gz", None),
            ("/gitrepository//n/ab.tar.gz", None),
            ("/gitrepository/ns/n/.tar.gz", None),
            ("/a/b/c/d/e.tar.gz", None),
            ("/%00/b/c/d.tar.gz", None),
            ("/%ff/b/c/d.tar.gz", None),
            ("relative", None),
            ("", None),
        ] {
            assert_eq!(
                requested(path).as_deref(),
                found.map(std::path::Path::new),
                "{path}"
            );
        }
    }
}

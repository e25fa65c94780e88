//! Maps request paths to files and streams them in chunks.

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

/// Size of a chunk in bytes.
pub(super) const CHUNK: u64 = 256 * 1024;

/// Suffix of all served files. Locks and unfinished files have other suffixes.
const ARTIFACT_SUFFIX: &str = ".tar.gz";

/// Number of path components of an artifact: kind, namespace, name, file.
const COMPONENTS: usize = 4;

/// Returns the path below the root for a request, if it can be an artifact.
pub(super) fn artifact_path(path: &str) -> Option<PathBuf> {
    let path = percent_decode_str(path.strip_prefix('/')?).decode_utf8().ok()?;
    let ordinary = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains(['\\', '\0']);
    let mut parts = path.split('/');
    let good = parts.clone().count() == COMPONENTS && parts.all(ordinary) && path.ends_with(ARTIFACT_SUFFIX);
    good.then(|| PathBuf::from(path.into_owned()))
}

/// Streams the bytes of `range` in chunks on demand. Holds `download` until the end of the stream.
pub(super) fn chunks(
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
        let chunk = tokio::task::spawn_blocking(move || read(&reader, from, length))
            .await
            .map_err(io::Error::other)??;
        Ok(Some((
            Frame::data(chunk),
            (file, from + length..range.end, download),
        )))
    })
}

/// Reads one chunk. A truncated file causes an error, never other content.
pub(super) fn read(file: &File, from: u64, length: u64) -> io::Result<Bytes> {
    let length = usize::try_from(length).map_err(io::Error::other)?;
    let mut chunk = vec![0; length];
    file.read_exact_at(&mut chunk, from)?;
    Ok(chunk.into())
}

#[cfg(test)]
mod tests {
    use super::artifact_path;

    #[test]
    fn only_artifact_paths_are_accepted() {
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
                artifact_path(path).as_deref(),
                found.map(std::path::Path::new),
                "{path}"
            );
        }
    }
}

//! Which file locks are seen here. Whoever shares a site sees by a lock whether a runner lives; whoever does not must not
//! conclude anything from a lock that is free.
//!
//! A site is a directory, by an identifier that lies in it, on a machine. In a pod the machine is its kernel: a volume may be
//! mounted elsewhere under the same host name while a process that nobody can see still works on it. Outside of pods it is the
//! host, so that what was left when the machine stopped is known to be dead when it is back.

use rand::Rng as _;
use std::{
    fs, io,
    io::{Read as _, Write as _},
    path::Path,
};

/// The file with the identifier.
const FILE: &str = "site";
/// Hex digits of an identifier.
const DIGITS: usize = 32;
/// Where Linux tells one start of a kernel from another.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The site whose locks lie below `root`.
pub(super) fn site(root: &Path, is_in_pod: bool) -> io::Result<String> {
    let directory = identifier(root)?;
    let machine = if is_in_pod {
        fs::read_to_string(BOOT_ID)?
    } else {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    };
    Ok(format!("{directory}@{}", machine.trim()))
}

/// The directory's identifier, made when there is none that can be used. Two that make one at the same time agree.
fn identifier(root: &Path) -> io::Result<String> {
    let path = root.join(FILE);
    if let Some(found) = read(&path)? {
        return Ok(found);
    }
    let made = hex::encode(rand::rng().random::<[u8; DIGITS / 2]>());
    let mut file = tempfile::NamedTempFile::new_in(root)?;
    file.write_all(made.as_bytes())?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(&path) {
        Ok(_) => Ok(made),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => match read(&path)? {
            Some(found) => Ok(found),
            None => error
                .file
                .persist(&path)
                .map(|_| made)
                .map_err(|error| error.error),
        },
        Err(error) => Err(error.error),
    }
}

fn read(path: &Path) -> io::Result<Option<String>> {
    let mut text = String::new();
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let limit = u64::try_from(DIGITS).unwrap_or(0) + 1;
    let readable = file.take(limit).read_to_string(&mut text).is_ok();
    let is_one = text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    Ok((readable && is_one).then_some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_site_and_another_has_another() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = site(one.path(), false).unwrap();
        assert_eq!(site(one.path(), false).unwrap(), first);
        assert_ne!(site(other.path(), false).unwrap(), first);
        assert_ne!(
            site(one.path(), true).unwrap(),
            first,
            "a pod is told by its kernel"
        );
    }

    #[test]
    fn what_is_no_identifier_is_replaced() {
        let root = tempfile::tempdir().unwrap();
        for garbage in ["", "short", &"g".repeat(DIGITS), &"a".repeat(10_000)] {
            fs::write(root.path().join(FILE), garbage).unwrap();
            let made = site(root.path(), false).unwrap();
            assert_eq!(site(root.path(), false).unwrap(), made);
            assert_eq!(made.split('@').next().unwrap().len(), DIGITS, "{garbage}");
        }
        fs::write(root.path().join(FILE), [0xff; DIGITS]).unwrap();
        assert!(site(root.path(), false).is_ok());
    }
}

//! The lock domain: the processes that can see each other's process locks. In another domain, a free lock does not prove that
//! the runner is dead.
//!
//! A lock domain is one directory, named by an identifier stored in it, on one machine. In a pod the machine is the kernel: a
//! volume may be mounted on another node under the same host name while a process there still uses it. Outside a pod it is the
//! host, so that after a restart of the machine the runners before it are known to be dead.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::{fs, io};

use rand::Rng as _;

/// The file with the identifier, under its first name: a new one would be another lock domain for active runs.
const FILE: &str = "site";
/// Number of hex digits of an identifier.
const DIGITS: usize = 32;
/// The identifier of one boot of the kernel.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Returns the lock domain of the locks below `root`.
pub(super) fn lock_domain(root: &Path, is_in_pod: bool) -> io::Result<String> {
    let directory = identifier(root)?;
    let machine = if is_in_pod {
        fs::read_to_string(BOOT_ID)?
    } else {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    };
    Ok(format!("{directory}@{}", machine.trim()))
}

/// Returns the identifier of the directory. Creates one if there is none or it is invalid; concurrent creators agree on one.
fn identifier(root: &Path) -> io::Result<String> {
    let path = root.join(FILE);
    if let Some(found) = read(&path)? {
        return Ok(found);
    }
    let new = hex::encode(rand::rng().random::<[u8; DIGITS / 2]>());
    let mut file = tempfile::NamedTempFile::new_in(root)?;
    file.write_all(new.as_bytes())?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(&path) {
        Ok(_) => Ok(new),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => match read(&path)? {
            Some(found) => Ok(found),
            None => error
                .file
                .persist(&path)
                .map(|_| new)
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
    let is_text = file.take(limit).read_to_string(&mut text).is_ok();
    let is_valid = text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    Ok((is_text && is_valid).then_some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directory_has_its_own_stable_lock_domain() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = lock_domain(one.path(), false).unwrap();
        assert_eq!(lock_domain(one.path(), false).unwrap(), first);
        assert_ne!(lock_domain(other.path(), false).unwrap(), first);
        assert_ne!(
            lock_domain(one.path(), true).unwrap(),
            first,
            "in a pod, the kernel is the machine"
        );
    }

    #[test]
    fn an_invalid_identifier_is_replaced() {
        let root = tempfile::tempdir().unwrap();
        for garbage in ["", "short", &"g".repeat(DIGITS), &"a".repeat(10_000)] {
            fs::write(root.path().join(FILE), garbage).unwrap();
            let new = lock_domain(root.path(), false).unwrap();
            assert_eq!(lock_domain(root.path(), false).unwrap(), new);
            assert_eq!(new.split('@').next().unwrap().len(), DIGITS, "{garbage}");
        }
        fs::write(root.path().join(FILE), [0xff; DIGITS]).unwrap();
        assert!(lock_domain(root.path(), false).is_ok());
    }
}

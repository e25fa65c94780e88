//! The files that make clients of one run clients of the next: CA, its key, the token.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

use rand::RngCore;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use sha2::{Digest, Sha256};

use super::{ServeError, kubeconfig};

/// What proves the server to its clients and the clients to the server.
pub(super) struct Credentials {
    /// The CA's certificate, PEM.
    pub(super) ca_pem: String,
    /// The CA that signs server certificates.
    pub(super) issuer: Issuer<'static, KeyPair>,
    /// The one bearer token.
    pub(super) token: Token,
    /// The port that an earlier run's kubeconfig names.
    pub(super) last_port: Option<u16>,
}

/// A bearer token. It has no `Debug`, so that it is not printed by accident.
pub(super) struct Token(String);

impl Token {
    #[cfg(test)]
    pub(super) fn of(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The text, for the kubeconfig.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether an `Authorization` header carries it. Digests are compared, so that time tells nothing about the token.
    pub(super) fn is_given_by(&self, header: &[u8]) -> bool {
        let (scheme, given) = header.split_at_checked(7).unwrap_or_default();
        scheme.eq_ignore_ascii_case(b"bearer ") && Sha256::digest(given) == Sha256::digest(self.0.as_bytes())
    }
}

impl Credentials {
    /// Those of an earlier run in `dir`, or new ones, which are written there.
    pub(super) fn load_or_create(dir: &Path) -> Result<Self, ServeError> {
        let in_file = |path: &Path, source: io::Error| ServeError::File {
            path: path.into(),
            source,
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|source| in_file(dir, source))?;
        // Also when the directory was there before.
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(|source| in_file(dir, source))?;
        let (cert_path, key_path, token_path) = (dir.join("ca.crt"), dir.join("ca.key"), dir.join("token"));
        let held = [&cert_path, &key_path, &token_path].map(fs::read_to_string);
        let (ca_pem, key_pem, token) = if let [Ok(cert), Ok(key), Ok(token)] = held {
            (cert, key, token.trim().to_owned())
        } else {
            let (cert, key) = create_ca().map_err(|error| ServeError::Tls(error.to_string()))?;
            let token = create_token();
            // Written last, the token says that the others belong together.
            match fs::remove_file(&token_path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(in_file(&token_path, source));
                }
                _ => sync_directory(dir).map_err(|source| in_file(dir, source))?,
            }
            for (path, text) in [(&key_path, &key), (&cert_path, &cert), (&token_path, &token)] {
                write_private(path, text).map_err(|source| in_file(path, source))?;
            }
            (cert, key, token)
        };
        let unreadable = |error: rcgen::Error| ServeError::Tls(format!("{}: {error}", cert_path.display()));
        let key = KeyPair::from_pem(&key_pem).map_err(unreadable)?;
        let issuer = Issuer::new(ca_params().map_err(unreadable)?, key);
        Ok(Self {
            ca_pem,
            issuer,
            token: Token(token),
            last_port: kubeconfig::port(dir),
        })
    }
}

/// The CA's parameters; the issuer of server certificates needs its name and usages only.
fn ca_params() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params
        .distinguished_name
        .push(DnType::CommonName, "sluice embedded CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

fn create_ca() -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let certificate = ca_params()?.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn create_token() -> String {
    let mut bytes = [0_u8; 32];
    rand::rng().fill_bytes(&mut bytes);
    hex::encode(bytes)
}

/// Writes a file of mode 0600, whole or not at all.
pub(super) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let temporary = path.with_extension("new");
    // A left-over of a crash could have another mode.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    path.parent().map_or(Ok(()), sync_directory)
}

/// Makes the names in a directory durable.
fn sync_directory(dir: &Path) -> io::Result<()> {
    fs::File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_is_the_token() {
        let token = Token("abc".into());
        assert!(token.is_given_by(b"Bearer abc"));
        assert!(token.is_given_by(b"bearer abc"));
        for header in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer ab",
            "Bearer abcd",
            "Basic abc",
            "abc",
        ] {
            assert!(!token.is_given_by(header.as_bytes()), "{header}");
        }
    }

    #[test]
    fn a_second_run_finds_the_first_ones() {
        let dir = tempfile::tempdir().unwrap();
        let first = Credentials::load_or_create(&dir.path().join("a/b")).unwrap();
        let second = Credentials::load_or_create(&dir.path().join("a/b")).unwrap();
        assert_eq!(first.ca_pem, second.ca_pem);
        assert_eq!(first.token.reveal(), second.token.reveal());
        let mode = |path: &str| fs::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("a/b"), 0o700);
        for file in ["ca.crt", "ca.key", "token"] {
            assert_eq!(mode(&format!("a/b/{file}")), 0o600, "{file}");
        }
    }

    #[test]
    fn credentials_of_two_runs_are_never_mixed() {
        let dir = tempfile::tempdir().unwrap();
        let first = Credentials::load_or_create(dir.path()).unwrap();
        // As a program leaves them that ends between two of its writes.
        fs::remove_file(dir.path().join("ca.key")).unwrap();
        let tombstone = dir.path().join("ca.new");
        fs::create_dir_all(tombstone.join("x")).unwrap();
        assert!(Credentials::load_or_create(dir.path()).is_err());
        fs::remove_dir_all(&tombstone).unwrap();
        let old_token = fs::read_to_string(dir.path().join("token"));
        assert!(old_token.is_err(), "{old_token:?} would be taken with a new key");
        let next = Credentials::load_or_create(dir.path()).unwrap();
        assert_ne!(first.ca_pem, next.ca_pem);
        assert_ne!(first.token.reveal(), next.token.reveal());
    }
}

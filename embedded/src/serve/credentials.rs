//! Credential files that outlive the process (CA certificate, CA key and bearer token), and the TLS configuration.

use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use rand::RngCore;
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};

use super::ServeError;

/// The credentials of a server: the CA proves its identity to clients, the token theirs to the server.
pub(super) struct Credentials {
    /// CA certificate, PEM.
    pub(super) ca_pem: String,
    /// Issuer of server certificates.
    pub(super) issuer: Issuer<'static, KeyPair>,
    /// Bearer token of the administrator.
    pub(super) token: Token,
}

/// A bearer token. It does not implement `Debug`, so that it is not printed by accident.
pub(super) struct Token(String);

impl Token {
    #[cfg(test)]
    pub(super) fn of(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns the token, for the kubeconfig.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether an `Authorization` header contains the token. Compares digests, so that timing reveals nothing about the token.
    pub(super) fn matches_header(&self, header: &[u8]) -> bool {
        let (scheme, presented) = header.split_at_checked(7).unwrap_or_default();
        scheme.eq_ignore_ascii_case(b"bearer ")
            && Sha256::digest(presented) == Sha256::digest(self.0.as_bytes())
    }
}

impl Credentials {
    /// Loads the credentials of an earlier run from `dir`, or creates and stores new ones.
    pub(super) fn load_or_create(dir: &Path) -> Result<Self, ServeError> {
        let file_error = |path: &Path, source: io::Error| ServeError::File {
            path: path.into(),
            source,
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|source| file_error(dir, source))?;
        // Also for a directory that existed.
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
            .map_err(|source| file_error(dir, source))?;
        let (cert_path, key_path, token_path) = (dir.join("ca.crt"), dir.join("ca.key"), dir.join("token"));
        let stored = [&cert_path, &key_path, &token_path].map(fs::read_to_string);
        let (ca_pem, key_pem, token) = if let [Ok(cert), Ok(key), Ok(token)] = stored {
            (cert, key, token.trim().to_owned())
        } else {
            let (cert, key) = create_ca().map_err(|error| ServeError::Tls(error.to_string()))?;
            let token = create_token();
            // The token is written last: it marks a complete set.
            match fs::remove_file(&token_path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(file_error(&token_path, source));
                }
                _ => sync_directory(dir).map_err(|source| file_error(dir, source))?,
            }
            for (path, text) in [(&key_path, &key), (&cert_path, &cert), (&token_path, &token)] {
                write_private(path, text).map_err(|source| file_error(path, source))?;
            }
            (cert, key, token)
        };
        let tls_error = |error: rcgen::Error| ServeError::Tls(format!("{}: {error}", cert_path.display()));
        let key = KeyPair::from_pem(&key_pem).map_err(tls_error)?;
        let issuer = Issuer::new(ca_params().map_err(tls_error)?, key);
        Ok(Self {
            ca_pem,
            issuer,
            token: Token(token),
        })
    }
}

/// Returns the parameters of the CA. The issuer of server certificates needs only its name and usages.
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

/// Writes a file of mode 0600 atomically.
pub(super) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let temporary = path.with_extension("new");
    // A file that a crash left behind may have another mode.
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

/// Syncs the entries of a directory.
fn sync_directory(dir: &Path) -> io::Result<()> {
    fs::File::open(dir)?.sync_all()
}

/// Returns a configuration with a new certificate for localhost and the bound address.
pub(super) fn server_config(credentials: &Credentials, ip: IpAddr) -> Result<ServerConfig, ServeError> {
    let failed = |error: &dyn std::fmt::Display| ServeError::Tls(error.to_string());
    let key = KeyPair::generate().map_err(|error| failed(&error))?;
    let params = certificate_params(ip).map_err(|error| failed(&error))?;
    let certificate = params
        .signed_by(&key, &credentials.issuer)
        .map_err(|error| failed(&error))?;
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = client_verifier(&credentials.ca_pem, provider.clone())?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate.der().clone()], private)
        .map_err(|error| failed(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Returns a verifier of client certificates, which the CA of the server signs. Clients with a token have none.
fn client_verifier(
    ca_pem: &str,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, ServeError> {
    let failed = |error: &dyn std::fmt::Display| ServeError::Tls(error.to_string());
    let ca = CertificateDer::from_pem_slice(ca_pem.as_bytes()).map_err(|error| failed(&error))?;
    let mut roots = RootCertStore::empty();
    roots.add(ca).map_err(|error| failed(&error))?;
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| failed(&error))
}

fn certificate_params(ip: IpAddr) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params
        .distinguished_name
        .push(DnType::CommonName, "sluice embedded API");
    params.subject_alt_names = vec![
        SanType::DnsName(Ia5String::try_from("localhost")?),
        SanType::IpAddress(IpAddr::from([127, 0, 0, 1])),
        SanType::IpAddress(ip),
    ];
    params.use_authority_key_identifier_extension = true;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_token_matches() {
        let token = Token("abc".into());
        assert!(token.matches_header(b"Bearer abc"));
        assert!(token.matches_header(b"bearer abc"));
        for header in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer ab",
            "Bearer abcd",
            "Basic abc",
            "abc",
        ] {
            assert!(!token.matches_header(header.as_bytes()), "{header}");
        }
    }

    #[test]
    fn a_second_run_loads_the_credentials_of_the_first() {
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
        // As after a crash between two writes.
        fs::remove_file(dir.path().join("ca.key")).unwrap();
        let obstacle = dir.path().join("ca.new");
        fs::create_dir_all(obstacle.join("x")).unwrap();
        assert!(Credentials::load_or_create(dir.path()).is_err());
        fs::remove_dir_all(&obstacle).unwrap();
        let old_token = fs::read_to_string(dir.path().join("token"));
        assert!(
            old_token.is_err(),
            "{old_token:?} would be accepted with a new key"
        );
        let next = Credentials::load_or_create(dir.path()).unwrap();
        assert_ne!(first.ca_pem, next.ca_pem);
        assert_ne!(first.token.reveal(), next.token.reveal());
    }
}

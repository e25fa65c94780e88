//! TLS configuration of the server.

use std::{net::IpAddr, sync::Arc};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, SanType, string::Ia5String};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};

use super::{credentials::Credentials, error::ServeError};

/// Returns a configuration with a new certificate for localhost and the bound address.
pub(super) fn server_config(credentials: &Credentials, ip: IpAddr) -> Result<ServerConfig, ServeError> {
    let failed = |error: &dyn std::fmt::Display| ServeError::Tls(error.to_string());
    let key = KeyPair::generate().map_err(|error| failed(&error))?;
    let params = params(ip).map_err(|error| failed(&error))?;
    let certificate = params
        .signed_by(&key, &credentials.issuer)
        .map_err(|error| failed(&error))?;
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .map_err(|error| failed(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn params(ip: IpAddr) -> Result<CertificateParams, rcgen::Error> {
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

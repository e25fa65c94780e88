//! The assertion of a GitHub App: a JWT (RFC 7519) signed with RS256 (RFC 7518 §3.3), valid for two minutes.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use ring::rand::SystemRandom;
use ring::rsa::KeyPair;
use ring::signature::RSA_PKCS1_SHA256;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;
use sluice_runtime::redact::Secret;

use super::app::{App, AppError};

/// Backdating of assertions, in case GitHub's clock lags.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(30);
/// Lifetime of an assertion.
const LIFETIME: SignedDuration = SignedDuration::from_secs(120);

/// Creates an assertion of the App's identity.
///
/// # Errors
/// The App's key is not a usable RSA private key.
pub(super) fn assertion(app: &App, now: Timestamp) -> Result<Secret<String>, AppError> {
    let issued = now.saturating_sub(CLOCK_SKEW).unwrap_or(now);
    let claims = json!({
        "iat": issued.as_second(),
        "exp": issued.saturating_add(LIFETIME).unwrap_or(now).as_second(),
        "iss": app.id,
    });
    let encoded = |text: String| URL_SAFE_NO_PAD.encode(text);
    let header = json!({ "alg": "RS256", "typ": "JWT" });
    let signed = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
    let key = key(&app.key)?;
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(
        &RSA_PKCS1_SHA256,
        &SystemRandom::new(),
        signed.as_bytes(),
        &mut signature,
    )
    .map_err(|_| AppError::Key("signing failed".to_owned()))?;
    Ok(Secret::new(format!(
        "{signed}.{}",
        URL_SAFE_NO_PAD.encode(signature)
    )))
}

fn key(pem: &[u8]) -> Result<KeyPair, AppError> {
    let invalid = |why: String| AppError::Key(why);
    let der = PrivateKeyDer::from_pem_slice(pem).map_err(|_| invalid("no private key found".to_owned()))?;
    let key = match &der {
        PrivateKeyDer::Pkcs1(der) => KeyPair::from_der(der.secret_pkcs1_der()),
        PrivateKeyDer::Pkcs8(der) => KeyPair::from_pkcs8(der.secret_pkcs8_der()),
        _ => return Err(invalid("unsupported key type".to_owned())),
    };
    key.map_err(|rejected| invalid(rejected.to_string()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn errors_of_invalid_keys_do_not_contain_the_key() {
        let elliptic = rcgen::KeyPair::generate().unwrap().serialize_pem();
        for (pem, expected) in [
            ("hunter2", "no private key found"),
            (
                "-----BEGIN RSA PRIVATE KEY-----\naHVudGVyMg==\n-----END RSA PRIVATE KEY-----",
                "InvalidEncoding",
            ),
            (
                "-----BEGIN EC PRIVATE KEY-----\naHVudGVyMg==\n-----END EC PRIVATE KEY-----",
                "unsupported key type",
            ),
            (&elliptic, "WrongAlgorithm"),
        ] {
            let message = key(pem.as_bytes()).map(drop).unwrap_err().to_string();
            assert!(
                message.contains(expected) && !message.contains("hunter2"),
                "{message}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_bytes_of_a_key_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = key(&body);
            let text = base64::engine::general_purpose::STANDARD.encode(&body);
            let _ = key(format!("-----BEGIN RSA PRIVATE KEY-----\n{text}\n-----END RSA PRIVATE KEY-----").as_bytes());
        }
    }
}

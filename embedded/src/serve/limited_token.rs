//! Limited tokens: each contains its grant, signed with the administrator's token. None is stored: they are valid as long as the
//! administrator's token, also for a run that outlives the process that issued its token.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::credentials::Token;
use crate::grant::Grant;

/// Prefix of a limited token, and domain of its signature.
const PREFIX: &str = "sluice-grant-1";

/// Issues a token for a grant.
pub(super) fn issue(grant: &Grant, key: &Token) -> Result<String, serde_json::Error> {
    let body = BASE64.encode(serde_json::to_vec(grant)?);
    let signature = sign(&body, key).map(|mac| hex::encode(mac.finalize().into_bytes()));
    Ok(format!("{PREFIX}.{body}.{}", signature.unwrap_or_default()))
}

/// Returns the grant of the token in an `Authorization` header; `None` if the token was not issued here.
pub(super) fn verify(header: &[u8], key: &Token) -> Option<Grant> {
    let header = std::str::from_utf8(header).ok()?;
    let (scheme, token) = header.split_at_checked(7)?;
    let (body, signature) = token.strip_prefix(PREFIX)?.strip_prefix('.')?.split_once('.')?;
    let signature = hex::decode(signature).ok()?;
    if !scheme.eq_ignore_ascii_case("bearer ") || sign(body, key)?.verify_slice(&signature).is_err() {
        return None;
    }
    serde_json::from_slice(&BASE64.decode(body).ok()?).ok()
}

fn sign(body: &str, key: &Token) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.reveal().as_bytes()).ok()?;
    mac.update(PREFIX.as_bytes());
    mac.update(body.as_bytes());
    Some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_valid_only_for_its_grant_and_key() {
        let (key, other) = (Token::of("abc"), Token::of("abd"));
        let issued = Grant {
            namespace: "team".into(),
            ..Grant::default()
        };
        let token = issue(&issued, &key).unwrap();
        let read = |token: &str, key: &Token| verify(format!("Bearer {token}").as_bytes(), key);
        assert_eq!(read(&token, &key), Some(issued));
        assert_eq!(read(&token, &other), None);
        let wider = BASE64.encode(br#"{"namespace":"other","rules":[]}"#);
        let signature = token.rsplit('.').next().unwrap();
        for forged in [
            format!("{PREFIX}.{wider}.{signature}"),
            format!("{PREFIX}.{wider}."),
            token[..token.len() - 2].to_owned(),
            "abc".to_owned(),
            String::new(),
        ] {
            assert_eq!(read(&forged, &key), None, "{forged}");
        }
        assert_eq!(verify(b"Basic", &key), None);
        assert_eq!(verify(&[0xff; 40], &key), None);
    }
}

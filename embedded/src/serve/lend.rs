//! Limited credentials: a bearer token that says what it is good for, signed with the one that is good for everything. None is
//! stored: each stays good for as long as that one does, also for a run that outlives the server that it was made by.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::credentials::Token;
use crate::grant::Grant;

/// How a limited token begins, and the domain of its signature.
const FORM: &str = "sluice-grant-1";

/// The token of a grant.
pub(super) fn token(grant: &Grant, with: &Token) -> Result<String, serde_json::Error> {
    let body = BASE64.encode(serde_json::to_vec(grant)?);
    let signature = signed(&body, with).map(|mac| hex::encode(mac.finalize().into_bytes()));
    Ok(format!("{FORM}.{body}.{}", signature.unwrap_or_default()))
}

/// What the token of an `Authorization` header is good for; nothing for a token that was not made here.
pub(super) fn grant(header: &[u8], with: &Token) -> Option<Grant> {
    let header = std::str::from_utf8(header).ok()?;
    let (scheme, token) = header.split_at_checked(7)?;
    let (body, signature) = token.strip_prefix(FORM)?.strip_prefix('.')?.split_once('.')?;
    let signature = hex::decode(signature).ok()?;
    if !scheme.eq_ignore_ascii_case("bearer ") || signed(body, with)?.verify_slice(&signature).is_err() {
        return None;
    }
    serde_json::from_slice(&BASE64.decode(body).ok()?).ok()
}

fn signed(body: &str, with: &Token) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(with.reveal().as_bytes()).ok()?;
    mac.update(FORM.as_bytes());
    mac.update(body.as_bytes());
    Some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_what_it_was_made_for_and_for_nothing_else() {
        let (with, other) = (Token::of("abc"), Token::of("abd"));
        let made = Grant {
            namespace: "team".into(),
            ..Grant::default()
        };
        let token = token(&made, &with).unwrap();
        let read = |token: &str, with: &Token| grant(format!("Bearer {token}").as_bytes(), with);
        assert_eq!(read(&token, &with), Some(made));
        assert_eq!(read(&token, &other), None);
        let wider = BASE64.encode(br#"{"namespace":"other","rules":[]}"#);
        let signature = token.rsplit('.').next().unwrap();
        for forged in [
            format!("{FORM}.{wider}.{signature}"),
            format!("{FORM}.{wider}."),
            token[..token.len() - 2].to_owned(),
            "abc".to_owned(),
            String::new(),
        ] {
            assert_eq!(read(&forged, &with), None, "{forged}");
        }
        assert_eq!(grant(b"Basic", &with), None);
        assert_eq!(grant(&[0xff; 40], &with), None);
    }
}

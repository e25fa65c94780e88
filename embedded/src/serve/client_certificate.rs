//! The user of a client certificate (RFC 5280): the common name is the name, the organizations are the groups, as in kube-apiserver.
//! The TLS handshake has verified the certificate; here only its subject is read.

use crate::rbac::{AUTHENTICATED, User};

/// DER tags.
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const VERSION: u8 = 0xa0;
/// `UTF8String`, `PrintableString` and `IA5String`.
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];
/// The attributes `commonName` (2.5.4.3) and `organizationName` (2.5.4.10).
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

/// Returns the user of a certificate in DER; `None` if it has no common name.
pub(super) fn user(certificate: &[u8]) -> Option<User> {
    let (mut name, mut groups) = (String::new(), Vec::new());
    let mut relative_names = subject(certificate)?;
    while !relative_names.is_empty() {
        let (mut attributes, rest) = tagged(relative_names, SET)?;
        relative_names = rest;
        while !attributes.is_empty() {
            let (attribute, rest) = tagged(attributes, SEQUENCE)?;
            attributes = rest;
            let (id, value) = tagged(attribute, OBJECT_ID)?;
            let (tag, text, _) = element(value)?;
            if id != COMMON_NAME && id != ORGANIZATION {
                continue;
            }
            if !TEXTS.contains(&tag) {
                return None;
            }
            let text = std::str::from_utf8(text).ok()?.to_owned();
            // A name is printed in logs and in the trailers of commits.
            if text.chars().any(char::is_control) {
                return None;
            }
            if id == COMMON_NAME {
                name = text;
            } else {
                groups.push(text);
            }
        }
    }
    if name.is_empty() {
        return None;
    }
    groups.push(AUTHENTICATED.to_owned());
    Some(User {
        name,
        groups,
        ..User::default()
    })
}

/// Returns the content of the subject: the sixth field of the signed part, after version, serial number, algorithm, issuer and
/// validity.
fn subject(certificate: &[u8]) -> Option<&[u8]> {
    let (certificate, _) = tagged(certificate, SEQUENCE)?;
    let (mut fields, _) = tagged(certificate, SEQUENCE)?;
    let (first, _, after_version) = element(fields)?;
    if first == VERSION {
        fields = after_version;
    }
    for _ in 0..4 {
        (_, _, fields) = element(fields)?;
    }
    tagged(fields, SEQUENCE).map(|(subject, _)| subject)
}

/// Returns the content of an element with this tag, and what follows it.
fn tagged(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = element(bytes)?;
    (found == tag).then_some((content, rest))
}

/// Returns tag and content of the first element, and what follows it. DER has definite lengths only.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk::<2>()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        // A longer length would not fit into a handshake.
        if digits.is_empty() || digits.len() > 3 {
            return None;
        }
        let length = digits
            .iter()
            .fold(0, |length, digit| (length << 8) | usize::from(*digit));
        (length, rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    fn certificate(attributes: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (type_, text) in attributes {
            params.distinguished_name.push(type_.clone(), *text);
        }
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn the_common_name_is_the_user_and_the_organization_the_group() {
        let jane = user(&certificate(&[
            (DnType::OrganizationName, "dev"),
            (DnType::CountryName, "DE"),
            (DnType::CommonName, "jané"),
        ]))
        .unwrap();
        assert_eq!(jane.name, "jané");
        assert_eq!(jane.groups, ["dev", AUTHENTICATED]);
        for attribute in [(DnType::OrganizationName, "dev"), (DnType::CommonName, "a\nb")] {
            assert_eq!(user(&certificate(&[attribute])), None);
        }
    }

    #[test]
    fn a_truncated_certificate_has_no_user() {
        let whole = certificate(&[(DnType::CommonName, "jane")]);
        for length in 0..whole.len() {
            assert_eq!(user(&whole[..length]), None, "{length}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            drop(user(&bytes));
        }
    }
}

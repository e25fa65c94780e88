//! The user of a client certificate (RFC 5280): the common name is the name, the organizations are the groups, as in kube-apiserver.
//! The TLS handshake has verified the certificate; here only its subject and its end are read.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::rbac::{AUTHENTICATED, User};

/// DER tags.
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// `UTF8String`, `PrintableString` and `IA5String`.
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];
/// The attributes `commonName` (2.5.4.3) and `organizationName` (2.5.4.10).
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

/// The user of a client certificate, until its end. The handshake verifies the time only once, and a connection or a resumed session
/// can last longer than the certificate.
#[derive(Debug)]
pub(super) struct ClientCertificate {
    user: User,
    not_after: Timestamp,
}

impl ClientCertificate {
    /// Reads a certificate in DER; `None` if it has no common name.
    pub(super) fn parse(certificate: &[u8]) -> Option<Self> {
        let (validity, subject) = validity_and_subject(certificate)?;
        Some(Self {
            user: user(subject)?,
            not_after: not_after(validity)?,
        })
    }

    /// Returns the user; `None` after the end of the certificate.
    pub(super) fn user_at(&self, now: Timestamp) -> Option<&User> {
        (now <= self.not_after).then_some(&self.user)
    }
}

/// Returns the end of a validity (RFC 5280 §4.1.2.5).
fn not_after(validity: &[u8]) -> Option<Timestamp> {
    let (_, _, rest) = element(validity)?;
    let (tag, text, _) = element(rest)?;
    let text = std::str::from_utf8(text).ok()?;
    let text = match tag {
        // Two digits are a year from 1950 to 2049.
        UTC_TIME if text < "50" => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let time = DateTime::strptime("%Y%m%d%H%M%SZ", text).ok()?;
    // The last day of the year 9999 means a certificate without an end.
    Some(TimeZone::UTC.to_timestamp(time).unwrap_or(Timestamp::MAX))
}

/// Returns the user that a subject names.
fn user(subject: &[u8]) -> Option<User> {
    let (mut name, mut groups) = (String::new(), Vec::new());
    let mut relative_names = subject;
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

/// Returns the contents of validity and subject: the fifth and the sixth field of the signed part, after version, serial number,
/// algorithm and issuer.
fn validity_and_subject(certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let (certificate, _) = tagged(certificate, SEQUENCE)?;
    let (mut fields, _) = tagged(certificate, SEQUENCE)?;
    let (first, _, after_version) = element(fields)?;
    if first == VERSION {
        fields = after_version;
    }
    for _ in 0..3 {
        (_, _, fields) = element(fields)?;
    }
    let (validity, fields) = tagged(fields, SEQUENCE)?;
    let (subject, _) = tagged(fields, SEQUENCE)?;
    Some((validity, subject))
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
        signed(&params)
    }

    fn signed(params: &CertificateParams) -> Vec<u8> {
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    fn read_user(certificate: &[u8]) -> Option<User> {
        ClientCertificate::parse(certificate).map(|certificate| certificate.user)
    }

    #[test]
    fn the_common_name_is_the_user_and_the_organization_the_group() {
        let jane = read_user(&certificate(&[
            (DnType::OrganizationName, "dev"),
            (DnType::CountryName, "DE"),
            (DnType::CommonName, "jané"),
        ]))
        .unwrap();
        assert_eq!(jane.name, "jané");
        assert_eq!(jane.groups, ["dev", AUTHENTICATED]);
        for attribute in [(DnType::OrganizationName, "dev"), (DnType::CommonName, "a\nb")] {
            assert_eq!(read_user(&certificate(&[attribute])), None);
        }
    }

    #[test]
    fn a_certificate_ends_with_its_time() {
        let time = |text: &str| -> Timestamp { text.parse().unwrap() };
        // The two forms of a time, and no end.
        for (year, month, day) in [(2030, 5, 2), (2050, 5, 2), (9999, 12, 31)] {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name.push(DnType::CommonName, "jane");
            params.not_after = rcgen::date_time_ymd(year, month, day);
            let certificate = ClientCertificate::parse(&signed(&params)).unwrap();
            let is_valid = |text: &str| certificate.user_at(time(text)).is_some();
            assert!(is_valid(&format!("{year}-05-01T23:59:59Z")), "{year}");
            let is_valid_later = is_valid(&format!("{year}-05-03T00:00:00Z"));
            assert_eq!(is_valid_later, year == 9999, "{year}");
        }
    }

    #[test]
    fn a_truncated_certificate_has_no_user() {
        let whole = certificate(&[(DnType::CommonName, "jane")]);
        for length in 0..whole.len() {
            assert_eq!(read_user(&whole[..length]), None, "{length}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            drop(read_user(&bytes));
        }
    }
}

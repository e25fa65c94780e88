//! Why the two sides of a TLS connection do not trust each other, in words that say what to do. The first words are
//! those of Go, because alerts match on them: pure.

use std::error::Error;
use std::io;

use rustls::{AlertDescription, CertificateError};
use sluice_runtime::failure::chain;
use sluice_runtime::http::certificates;

use super::super::tls::Tls;

/// What a server may say about a client's certificate.
const OF_CERTIFICATES: [AlertDescription; 9] = [
    AlertDescription::CertificateRequired,
    AlertDescription::UnknownCA,
    AlertDescription::BadCertificate,
    AlertDescription::CertificateUnknown,
    AlertDescription::CertificateExpired,
    AlertDescription::CertificateRevoked,
    AlertDescription::UnsupportedCertificate,
    AlertDescription::AccessDenied,
    AlertDescription::DecryptError,
];

/// The text for a failed connection, if TLS is why it failed.
pub(super) fn explain(error: &(dyn Error + 'static), tls: &Tls) -> Option<String> {
    let Some(found) = find(error) else {
        // HTTP/2 keeps only the words of what broke its connection.
        let words = chain(error);
        let told = |alert: &AlertDescription| words.contains(&format!("received fatal alert: {alert:?}"));
        let alert = OF_CERTIFICATES.into_iter().find(told)?;
        return Some(format!("remote error: tls: {}", alerted(alert, tls)));
    };
    let text = match found {
        rustls::Error::InvalidCertificate(why) => {
            format!(
                "tls: failed to verify certificate: x509: {}",
                certificate(why, tls)
            )
        }
        rustls::Error::AlertReceived(alert) => format!("remote error: tls: {}", alerted(*alert, tls)),
        rustls::Error::InvalidMessage(_) => "the server does not speak TLS at this port".to_owned(),
        other => format!("tls: {other}"),
    };
    Some(text)
}

fn certificate(why: &CertificateError, tls: &Tls) -> String {
    match why {
        CertificateError::Expired
        | CertificateError::NotValidYet
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYetContext { .. } => {
            format!("certificate has expired or is not yet valid: {why}")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("certificate is valid for other names: {why}")
        }
        // An authority of the same name with another key is a stranger too.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            let advice = match (
                tls.authorities.is_empty(),
                certificates(&tls.authorities).is_empty(),
            ) {
                (true, _) => "the secret has no 'ca.crt' to name its authority",
                (_, true) => {
                    "the bundle of the secret ('ca.crt', or 'caFile') holds no certificate in PEM form"
                }
                (_, false) => "nor by one in the bundle of the secret ('ca.crt', or 'caFile')",
            };
            format!("certificate signed by unknown authority: {advice}")
        }
        other => other.to_string(),
    }
}

fn alerted(alert: AlertDescription, tls: &Tls) -> String {
    let shown = tls.identity.is_some();
    match alert {
        AlertDescription::CertificateRequired => {
            "certificate required: the server wants a client certificate ('tls.crt' and 'tls.key' of the secret)".into()
        }
        AlertDescription::UnknownCA
        | AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateRevoked
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::AccessDenied
        | AlertDescription::DecryptError
            if shown =>
        {
            format!("{alert:?}: the server refuses the client certificate ('tls.crt' of the secret)")
        }
        // Before TLS 1.3 a missing client certificate looks like this.
        AlertDescription::HandshakeFailure | AlertDescription::BadCertificate if !shown => format!(
            "{alert:?}: the server may want a client certificate ('tls.crt' and 'tls.key' of the secret)"
        ),
        other => format!("{other:?}"),
    }
}

/// The error of rustls among the causes. An `io::Error` does not name what it carries as its source.
fn find<'a>(mut error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    loop {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        let carried = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        error = match carried {
            Some(carried) => carried as &(dyn Error + 'static),
            None => error.source()?,
        };
    }
}

#[cfg(test)]
mod tests {
    use sluice_runtime::http::Identity;

    use super::*;

    fn text(error: rustls::Error, tls: &Tls) -> String {
        // As deep as hyper-rustls buries it.
        let buried = io::Error::other(io::Error::other(error));
        explain(&buried, tls).unwrap()
    }

    #[test]
    fn an_unknown_authority_says_what_the_secret_holds() {
        let unknown = || rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let with = |authorities: &str| Tls {
            authorities: authorities.into(),
            identity: None,
        };
        let made = rcgen::generate_simple_self_signed(vec!["h".to_owned()]).unwrap();
        for (tls, end) in [
            (with(""), "the secret has no 'ca.crt' to name its authority"),
            (with("nonsense"), "holds no certificate in PEM form"),
            (
                with(&made.cert.pem()),
                "nor by one in the bundle of the secret ('ca.crt', or 'caFile')",
            ),
        ] {
            let text = text(unknown(), &tls);
            assert!(
                text.starts_with(
                    "tls: failed to verify certificate: x509: certificate signed by unknown authority: "
                ),
                "{text}"
            );
            assert!(text.ends_with(end), "{text}");
        }
    }

    #[test]
    fn alerts_say_whether_a_client_certificate_was_shown() {
        let alert = |alert, identity: bool| {
            let tls = Tls {
                identity: identity.then(|| Identity {
                    certificate: Vec::new(),
                    key: Vec::new(),
                }),
                ..Tls::default()
            };
            text(rustls::Error::AlertReceived(alert), &tls)
        };
        assert!(alert(AlertDescription::CertificateRequired, false).contains("wants a client certificate"));
        assert!(alert(AlertDescription::UnknownCA, true).contains("refuses the client certificate"));
        assert!(alert(AlertDescription::HandshakeFailure, false).contains("may want a client certificate"));
        assert_eq!(
            alert(AlertDescription::UnknownCA, false),
            "remote error: tls: UnknownCA"
        );
    }

    #[test]
    fn other_failures_are_left_to_others() {
        assert_eq!(explain(&io::Error::other("refused"), &Tls::default()), None);
    }
}

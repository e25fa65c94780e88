//! Explains TLS failures in a message that suggests a fix. Each message begins with Go's text, because alerts match on
//! it. Pure.

use std::error::Error;
use std::io;

use rustls::{AlertDescription, CertificateError};
use sluice_runtime::failure::chain;
use sluice_runtime::http::certificates;

use super::super::tls::Tls;

/// Alerts of a server about the client certificate.
const CERTIFICATE_ALERTS: [AlertDescription; 9] = [
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

/// Returns the message for a failed connection if TLS is the cause.
pub(super) fn describe(error: &(dyn Error + 'static), tls: &Tls) -> Option<String> {
    let Some(rustls_error) = find_rustls_error(error) else {
        // HTTP/2 retains only the text of the error that broke its connection.
        let text = chain(error);
        let is_received =
            |alert: &AlertDescription| text.contains(&format!("received fatal alert: {alert:?}"));
        let alert = CERTIFICATE_ALERTS.into_iter().find(is_received)?;
        return Some(format!("remote error: tls: {}", describe_alert(alert, tls)));
    };
    let text = match rustls_error {
        rustls::Error::InvalidCertificate(why) => {
            format!(
                "tls: failed to verify certificate: x509: {}",
                describe_certificate_error(why, tls)
            )
        }
        rustls::Error::AlertReceived(alert) => format!("remote error: tls: {}", describe_alert(*alert, tls)),
        rustls::Error::InvalidMessage(_) => "the server does not speak TLS at this port".to_owned(),
        other => format!("tls: {other}"),
    };
    Some(text)
}

fn describe_certificate_error(why: &CertificateError, tls: &Tls) -> String {
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
        // An authority of the same name with another key is unknown as well.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            let advice = match (
                tls.authorities.is_empty(),
                certificates(&tls.authorities).is_empty(),
            ) {
                (true, _) => "the secret has no 'ca.crt' with its authority",
                (_, true) => "the bundle of the secret ('ca.crt', or 'caFile') contains no PEM certificate",
                (_, false) => "no authority in the bundle of the secret signed it ('ca.crt', or 'caFile')",
            };
            format!("certificate signed by unknown authority: {advice}")
        }
        other => other.to_string(),
    }
}

fn describe_alert(alert: AlertDescription, tls: &Tls) -> String {
    let has_identity = tls.identity.is_some();
    match alert {
        AlertDescription::CertificateRequired => {
            "certificate required: the server requires a client certificate ('tls.crt' and 'tls.key' of the secret)".into()
        }
        AlertDescription::UnknownCA
        | AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateRevoked
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::AccessDenied
        | AlertDescription::DecryptError
            if has_identity =>
        {
            format!("{alert:?}: the server refuses the client certificate ('tls.crt' of the secret)")
        }
        // Before TLS 1.3, servers send these alerts for a missing client certificate.
        AlertDescription::HandshakeFailure | AlertDescription::BadCertificate if !has_identity => format!(
            "{alert:?}: the server may require a client certificate ('tls.crt' and 'tls.key' of the secret)"
        ),
        other => format!("{other:?}"),
    }
}

/// Finds the rustls error among the causes. An `io::Error` does not return the wrapped error as its source.
fn find_rustls_error<'a>(mut error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    loop {
        if let Some(rustls_error) = error.downcast_ref() {
            return Some(rustls_error);
        }
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        error = match wrapped {
            Some(wrapped) => wrapped as &(dyn Error + 'static),
            None => error.source()?,
        };
    }
}

#[cfg(test)]
mod tests {
    use sluice_runtime::http::Identity;

    use super::*;

    fn text(error: rustls::Error, tls: &Tls) -> String {
        // The same nesting as in hyper-rustls.
        let nested = io::Error::other(io::Error::other(error));
        describe(&nested, tls).unwrap()
    }

    #[test]
    fn an_unknown_authority_error_describes_the_secret() {
        let unknown = || rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let with = |authorities: &str| Tls {
            authorities: authorities.into(),
            identity: None,
        };
        let generated = rcgen::generate_simple_self_signed(vec!["h".to_owned()]).unwrap();
        for (tls, end) in [
            (with(""), "the secret has no 'ca.crt' with its authority"),
            (with("nonsense"), "contains no PEM certificate"),
            (
                with(&generated.cert.pem()),
                "no authority in the bundle of the secret signed it ('ca.crt', or 'caFile')",
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
    fn alerts_depend_on_the_client_certificate() {
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
        assert!(
            alert(AlertDescription::CertificateRequired, false).contains("requires a client certificate")
        );
        assert!(alert(AlertDescription::UnknownCA, true).contains("refuses the client certificate"));
        assert!(
            alert(AlertDescription::HandshakeFailure, false).contains("may require a client certificate")
        );
        assert_eq!(
            alert(AlertDescription::UnknownCA, false),
            "remote error: tls: UnknownCA"
        );
    }

    #[test]
    fn other_failures_are_not_described() {
        assert_eq!(describe(&io::Error::other("refused"), &Tls::default()), None);
    }
}

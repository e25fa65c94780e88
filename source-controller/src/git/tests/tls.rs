//! Trust over TLS, with certificates created by the test.

use sluice_harness::git::{Fault, Scope};
use sluice_harness::tls::{Authority, ClientCertificates, TlsOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// Creates an environment whose repository is served over TLS on these terms; returns its address.
async fn served(terms: &TlsOptions<'_>) -> (TestEnvironment, GitServer, String) {
    let env = TestEnvironment::new().await;
    env.repository.commit("one").unwrap();
    let server = GitServer::start_tls_with(terms).await.unwrap();
    let url = server.serve("stack", &env.repository);
    (env, server, url)
}

fn identity_of(authority: &Authority) -> Identity {
    let issued = authority.issue("client", "tests", &[]).unwrap();
    Identity {
        certificate: issued.certificate.into(),
        key: issued.key.into(),
    }
}

impl TestEnvironment {
    async fn look_up(
        &self,
        url: &str,
        authorities: &str,
        identity: Option<Identity>,
    ) -> Result<Head, FetchError> {
        let tls = Arc::new(Tls {
            authorities: authorities.into(),
            identity,
        });
        let remote = self.remote_at(url).with_access(|access| access.tls = tls);
        bounded(head(&remote, &main())).await
    }

    async fn failure(&self, url: &str, authorities: &str, identity: Option<Identity>) -> String {
        let failed = self.look_up(url, authorities, identity).await;
        failed.unwrap_err().to_string()
    }
}

#[tokio::test]
async fn a_bundle_adds_authorities_and_an_unsuitable_one_is_reported() {
    let (env, server, url) = served(&TlsOptions::default()).await;
    let other = Authority::create().unwrap();
    let own = server.authority_pem().unwrap();
    let both = format!("{}\n# and the one that counts\n{own}", other.pem());
    for bundle in [own, &both] {
        env.look_up(&url, bundle, None).await.unwrap();
    }
    for (bundle, why) in [
        ("", "the secret has no 'ca.crt' with its authority"),
        ("nonsense", "contains no PEM certificate"),
        (other.pem(), "no authority in the bundle of the secret signed it"),
    ] {
        let text = env.failure(&url, bundle, None).await;
        assert!(
            text.contains("x509: certificate signed by unknown authority"),
            "{text}"
        );
        assert!(text.contains(why), "{text}");
    }
}

#[tokio::test]
async fn an_invalid_server_certificate_is_reported() {
    for (terms, why) in [
        (
            TlsOptions {
                expired: true,
                ..TlsOptions::default()
            },
            "x509: certificate has expired or is not yet valid",
        ),
        (
            TlsOptions {
                hosts: &["elsewhere.example"],
                ..TlsOptions::default()
            },
            "x509: certificate is valid for other names",
        ),
    ] {
        let (env, server, url) = served(&terms).await;
        let text = env.failure(&url, server.authority_pem().unwrap(), None).await;
        assert!(text.contains(why), "{text}");
        assert!(server.requests().is_empty());
    }
}

#[tokio::test]
async fn a_server_without_tls_is_reported() {
    let env = TestEnvironment::new().await;
    let url = env.url.replace("http://", "https://");
    let text = env.failure(&url, "", None).await;
    assert!(text.contains("does not speak TLS at this port"), "{text}");
}

#[tokio::test]
async fn a_client_certificate_is_sent_to_a_server_that_requires_one() {
    for http2 in [true, false] {
        let terms = TlsOptions {
            clients: ClientCertificates::Required,
            http2,
            ..TlsOptions::default()
        };
        let (env, server, url) = served(&terms).await;
        let authority = server.authority().unwrap();
        env.look_up(&url, authority.pem(), Some(identity_of(authority)))
            .await
            .unwrap();
        assert!(
            server
                .requests()
                .iter()
                .all(|request| request.has_client_certificate)
        );
        let without = env.failure(&url, authority.pem(), None).await;
        assert!(without.contains("requires a client certificate"), "{without}");
        let stranger = identity_of(&Authority::create().unwrap());
        let strange = env.failure(&url, authority.pem(), Some(stranger)).await;
        assert!(strange.contains("refuses the client certificate"), "{strange}");
    }
}

#[tokio::test]
async fn a_certificate_with_a_foreign_key_is_refused_before_any_connection() {
    let (env, server, url) = served(&TlsOptions::default()).await;
    let authority = server.authority().unwrap();
    let bad = Identity {
        key: identity_of(authority).key,
        ..identity_of(authority)
    };
    assert_eq!(
        env.failure(&url, authority.pem(), Some(bad)).await,
        "the client certificate cannot be used: the private key does not match the certificate ('tls.crt' and \
         'tls.key' of the secret)"
    );
    assert!(server.requests().is_empty());
}

/// Starts a TLS host that requires a client certificate and redirects to `location`.
async fn redirecting(authority: &Authority, location: String) -> String {
    let terms = TlsOptions {
        clients: ClientCertificates::Required,
        http2: false,
        ..TlsOptions::default()
    };
    let acceptor = authority.acceptor(&terms).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let Ok(mut socket) = acceptor.accept(socket).await else {
                continue;
            };
            let mut buffer = vec![0; 16 * 1024];
            let _ = socket.read(&mut buffer).await;
            let answer = format!(
                "HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            let _ = socket.write_all(answer.as_bytes()).await;
            let _ = socket.shutdown().await;
        }
    });
    format!("https://user:pw@{address}/old.git")
}

#[tokio::test]
async fn certificate_and_password_are_not_sent_to_a_redirect_target() {
    let terms = TlsOptions {
        clients: ClientCertificates::Optional,
        ..TlsOptions::default()
    };
    let (env, server, url) = served(&terms).await;
    let first = Authority::create().unwrap();
    let old = redirecting(&first, format!("{url}/info/refs?service=git-upload-pack")).await;
    let bundle = format!("{}{}", first.pem(), server.authority_pem().unwrap());
    env.look_up(&old, &bundle, Some(identity_of(&first)))
        .await
        .unwrap();
    let requests = server.requests();
    assert_eq!(requests.len(), 2, "{requests:?}");
    for request in requests {
        assert!(
            !request.has_client_certificate && request.authorization.is_none(),
            "{request:?}"
        );
    }
    server.require_basic("user", "pw");
    let text = env.failure(&old, &bundle, Some(identity_of(&first))).await;
    assert!(text.contains("authentication required"), "{text}");
    assert!(
        text.contains(&format!(
            "the address redirects to '{url}', to which the credentials were not sent"
        )),
        "{text}"
    );
}

#[tokio::test]
async fn a_redirected_command_is_refused() {
    let (env, server, url) = served(&TlsOptions::default()).await;
    server.fault(Scope::LS_REFS, Fault::Status(307));
    let text = env.failure(&url, server.authority_pem().unwrap(), None).await;
    assert!(text.contains("a command was redirected"), "{text}");
}

#[tokio::test]
async fn a_bearer_token_is_sent_in_the_header() {
    let env = TestEnvironment::new().await;
    env.repository.commit("one").unwrap();
    env.server.require_bearer("t0ken");
    let remote = |token: &str| {
        env.remote()
            .with_access(|access| access.credentials = Credentials::Bearer(token.into()))
    };
    bounded(head(&remote("t0ken"), &main())).await.unwrap();
    let error = bounded(head(&remote("other"), &main())).await.unwrap_err();
    assert!(
        matches!(error, FetchError::AuthenticationRequired { .. }),
        "{error}"
    );
}

#[tokio::test]
async fn mirrors_and_cached_responses_depend_on_reader_and_route() {
    let env = TestEnvironment::new().await;
    let with = |authorities: &str, identity: Option<&str>, proxy: Option<&str>| {
        let identity = identity.map(|text| Identity {
            certificate: text.into(),
            key: text.into(),
        });
        env.remote().with_access(|access| {
            access.tls = Arc::new(Tls {
                authorities: authorities.into(),
                identity,
            });
            access.proxy = proxy.map(|proxy| Arc::new(Proxy::new(proxy, None, None).unwrap()));
        })
    };
    let plain = with("", None, None);
    let existing = env.mirrors.open(&plain);
    for (other, same_reader, same_mirror) in [
        (with("", None, None), true, true),
        (with("authority", None, None), true, false),
        (with("", None, Some("http://p")), true, false),
        (with("", Some("me"), None), false, false),
    ] {
        assert_eq!(
            other.credentials_digest() == plain.credentials_digest(),
            same_reader,
            "{other:?}"
        );
        let opened = env.mirrors.open(&other);
        assert_eq!(Arc::ptr_eq(&opened, &existing), same_mirror, "{other:?}");
    }
    assert_eq!(with("", None, None).access_digest(), plain.access_digest());
    assert_eq!(with("", None, None).access_key(), plain.access_key());
    assert_ne!(with("authority", None, None).access_key(), plain.access_key());
    let elsewhere = plain
        .clone()
        .with_access(|access| access.address = Address::parse("https://h/other").unwrap());
    assert_eq!(elsewhere.access_digest(), plain.access_digest());
    assert_ne!(elsewhere.access_key(), plain.access_key());
    assert_ne!(
        with("authority", None, None).access_digest(),
        plain.access_digest()
    );
    assert_ne!(
        with("", None, Some("http://p")).access_digest(),
        plain.access_digest()
    );
    assert_ne!(
        with("", None, Some("http://u:v@p")).access_digest(),
        with("", None, Some("http://u:w@p")).access_digest()
    );
}

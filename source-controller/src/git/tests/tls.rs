//! Who trusts whom over TLS, with certificates made for the test.

use sluice_harness::git::{Fault, Scope};
use sluice_harness::tls::{Authority, Clients, Terms};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// A world whose repository is served over TLS on these terms, and its address there.
async fn served(terms: &Terms<'_>) -> (World, GitServer, String) {
    let world = World::new().await;
    world.repository.commit("one").unwrap();
    let server = GitServer::start_tls_on(terms).await.unwrap();
    let url = server.serve("stack", &world.repository);
    (world, server, url)
}

fn identity_of(authority: &Authority) -> Identity {
    let issued = authority.issue("client", "tests", &[]).unwrap();
    Identity {
        certificate: issued.certificate.into(),
        key: issued.key.into(),
    }
}

impl World {
    async fn look(
        &self,
        url: &str,
        authorities: &str,
        identity: Option<Identity>,
    ) -> Result<Head, FetchError> {
        let tls = Arc::new(Tls {
            authorities: authorities.into(),
            identity,
        });
        let remote = Remote {
            tls,
            ..self.remote_at(url)
        };
        bounded(head(&remote, &main())).await
    }

    async fn failure(&self, url: &str, authorities: &str, identity: Option<Identity>) -> String {
        let failed = self.look(url, authorities, identity).await;
        failed.unwrap_err().to_string()
    }
}

#[tokio::test]
async fn a_bundle_adds_authorities_and_says_so_if_it_has_none() {
    let (world, server, url) = served(&Terms::default()).await;
    let other = Authority::create().unwrap();
    let own = server.authority_pem().unwrap();
    let both = format!("{}\n# and the one that counts\n{own}", other.pem());
    for bundle in [own, &both] {
        world.look(&url, bundle, None).await.unwrap();
    }
    for (bundle, why) in [
        ("", "the secret has no 'ca.crt' to name its authority"),
        ("nonsense", "holds no certificate in PEM form"),
        (other.pem(), "nor by one in the bundle of the secret"),
    ] {
        let text = world.failure(&url, bundle, None).await;
        assert!(
            text.contains("x509: certificate signed by unknown authority"),
            "{text}"
        );
        assert!(text.contains(why), "{text}");
    }
}

#[tokio::test]
async fn a_server_with_a_bad_certificate_is_told_apart() {
    for (terms, why) in [
        (
            Terms {
                expired: true,
                ..Terms::default()
            },
            "x509: certificate has expired or is not yet valid",
        ),
        (
            Terms {
                hosts: &["elsewhere.example"],
                ..Terms::default()
            },
            "x509: certificate is valid for other names",
        ),
    ] {
        let (world, server, url) = served(&terms).await;
        let text = world.failure(&url, server.authority_pem().unwrap(), None).await;
        assert!(text.contains(why), "{text}");
        assert!(server.requests().is_empty());
    }
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_is_told_apart() {
    let world = World::new().await;
    let url = world.url.replace("http://", "https://");
    let text = world.failure(&url, "", None).await;
    assert!(text.contains("does not speak TLS at this port"), "{text}");
}

#[tokio::test]
async fn a_client_certificate_opens_a_server_that_wants_one() {
    for http2 in [true, false] {
        let terms = Terms {
            clients: Clients::Required,
            http2,
            ..Terms::default()
        };
        let (world, server, url) = served(&terms).await;
        let authority = server.authority().unwrap();
        world
            .look(&url, authority.pem(), Some(identity_of(authority)))
            .await
            .unwrap();
        assert!(server.requests().iter().all(|request| request.certified));
        let without = world.failure(&url, authority.pem(), None).await;
        assert!(without.contains("wants a client certificate"), "{without}");
        let stranger = identity_of(&Authority::create().unwrap());
        let strange = world.failure(&url, authority.pem(), Some(stranger)).await;
        assert!(strange.contains("refuses the client certificate"), "{strange}");
    }
}

#[tokio::test]
async fn a_certificate_with_the_key_of_another_is_refused_before_any_connection() {
    let (world, server, url) = served(&Terms::default()).await;
    let authority = server.authority().unwrap();
    let bad = Identity {
        key: identity_of(authority).key,
        ..identity_of(authority)
    };
    assert_eq!(
        world.failure(&url, authority.pem(), Some(bad)).await,
        "the client certificate cannot be used: the private key is not that of the certificate ('tls.crt' and \
         'tls.key' of the secret)"
    );
    assert!(server.requests().is_empty());
}

/// A host over TLS that wants the client's certificate and redirects to `location`.
async fn redirecting(authority: &Authority, location: String) -> String {
    let terms = Terms {
        clients: Clients::Required,
        http2: false,
        ..Terms::default()
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
            let mut seen = vec![0; 16 * 1024];
            let _ = socket.read(&mut seen).await;
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
async fn neither_certificate_nor_password_follow_a_redirection_to_another_server() {
    let terms = Terms {
        clients: Clients::Asked,
        ..Terms::default()
    };
    let (world, server, url) = served(&terms).await;
    let first = Authority::create().unwrap();
    let old = redirecting(&first, format!("{url}/info/refs?service=git-upload-pack")).await;
    let bundle = format!("{}{}", first.pem(), server.authority_pem().unwrap());
    world
        .look(&old, &bundle, Some(identity_of(&first)))
        .await
        .unwrap();
    let requests = server.requests();
    assert_eq!(requests.len(), 2, "{requests:?}");
    for request in requests {
        assert!(
            !request.certified && request.authorization.is_none(),
            "{request:?}"
        );
    }
    server.require_basic("user", "pw");
    let text = world.failure(&old, &bundle, Some(identity_of(&first))).await;
    assert!(text.contains("authentication required"), "{text}");
    assert!(
        text.contains(&format!(
            "the address redirects to '{url}', to which the credentials were not sent"
        )),
        "{text}"
    );
}

#[tokio::test]
async fn a_redirected_command_is_an_error() {
    let (world, server, url) = served(&Terms::default()).await;
    server.fault(Scope::LS_REFS, Fault::Status(307));
    let text = world.failure(&url, server.authority_pem().unwrap(), None).await;
    assert!(text.contains("a command was redirected"), "{text}");
}

#[tokio::test]
async fn a_bearer_token_is_shown_as_one() {
    let world = World::new().await;
    world.repository.commit("one").unwrap();
    world.server.require_bearer("t0ken");
    let remote = |token: &str| Remote {
        credentials: Credentials::Bearer(token.into()),
        ..world.remote()
    };
    bounded(head(&remote("t0ken"), &main())).await.unwrap();
    let error = bounded(head(&remote("other"), &main())).await.unwrap_err();
    assert!(
        matches!(error, FetchError::AuthenticationRequired { .. }),
        "{error}"
    );
}

#[tokio::test]
async fn mirrors_and_answers_belong_to_readers_and_ways() {
    let world = World::new().await;
    let with = |authorities: &str, identity: Option<&str>, proxy: Option<&str>| {
        let identity = identity.map(|text| Identity {
            certificate: text.into(),
            key: text.into(),
        });
        Remote {
            tls: Arc::new(Tls {
                authorities: authorities.into(),
                identity,
            }),
            proxy: proxy.map(|proxy| Arc::new(Proxy::new(proxy, None, None).unwrap())),
            ..world.remote()
        }
    };
    let plain = with("", None, None);
    let held = world.mirrors.open(&plain);
    for (other, same_reader, same_mirror) in [
        (with("", None, None), true, true),
        (with("authority", None, None), true, false),
        (with("", None, Some("http://p")), true, false),
        (with("", Some("me"), None), false, false),
    ] {
        assert_eq!(other.reader() == plain.reader(), same_reader, "{other:?}");
        let opened = world.mirrors.open(&other);
        assert_eq!(Arc::ptr_eq(&opened, &held), same_mirror, "{other:?}");
    }
    assert_eq!(with("", None, None).way(), plain.way());
    assert_ne!(with("authority", None, None).way(), plain.way());
    assert_ne!(with("", None, Some("http://p")).way(), plain.way());
    assert_ne!(
        with("", None, Some("http://u:v@p")).way(),
        with("", None, Some("http://u:w@p")).way()
    );
}

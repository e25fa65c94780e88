//! Through real proxies on loopback: what passes, what they see, and what happens when they misbehave.

use sluice_harness::closed::ClosedPort;
use sluice_harness::proxy::{Mischief, Passage, ProxyServer, Speech, Way};
use sluice_harness::tls::Terms;
use sluice_runtime::http::{Environment, Route, Settings};

use super::*;

/// A name that only a proxy knows.
const NAME: &str = "git.sluice.test";

/// A server that is known by name, and what leads to it.
struct Behind {
    world: World,
    server: GitServer,
    url: String,
}

async fn behind(tls: bool) -> Behind {
    let world = World::new().await;
    world.repository.commit("one").unwrap();
    let terms = Terms {
        hosts: &[NAME],
        ..Terms::default()
    };
    let server = if tls {
        GitServer::start_tls_on(&terms).await.unwrap()
    } else {
        GitServer::start().await.unwrap()
    };
    let url = server.serve("stack", &world.repository);
    let url = url.replace(&server.address().ip().to_string(), NAME);
    Behind { world, server, url }
}

impl Behind {
    fn remote(&self, proxy: &ProxyServer, user: Option<(&str, &str)>) -> Remote {
        proxy.resolve(NAME, self.server.address());
        let own = [self.server.authority_pem(), proxy.authority_pem()];
        let (name, password) = user.unzip();
        Remote {
            tls: Arc::new(Tls {
                authorities: own.into_iter().flatten().collect::<String>().into(),
                identity: None,
            }),
            proxy: Some(Arc::new(Proxy::new(&proxy.url(), name, password).unwrap())),
            ..self.world.remote_at(&self.url)
        }
    }
}

async fn failure(remote: &Remote) -> String {
    bounded(head(remote, &main())).await.unwrap_err().to_string()
}

#[tokio::test]
async fn every_kind_of_proxy_carries_http_and_https_and_looks_names_up() {
    for speech in [Speech::Http, Speech::Https, Speech::Socks5] {
        for tls in [false, true] {
            let behind = behind(tls).await;
            behind.server.require_basic("reader", "pw");
            let proxy = ProxyServer::start(speech).await.unwrap();
            proxy.require("user", "p:w");
            let remote = Remote {
                credentials: Credentials::Basic {
                    username: "reader".into(),
                    password: "pw".into(),
                },
                ..behind.remote(&proxy, Some(("user", "p:w")))
            };
            let checkout = behind.world.fetch_from(&remote, &main()).await.unwrap();
            assert_eq!(files(&checkout), ls_tree(&behind.world.repository, "HEAD"));
            let way = match (speech, tls) {
                (Speech::Socks5, _) => Way::Socks,
                (_, true) => Way::Tunnel,
                (_, false) => Way::Forward,
            };
            let port = behind.server.address().port();
            let passage = Passage {
                way,
                target: format!("{NAME}:{port}"),
                username: Some("user".into()),
            };
            let passages = proxy.passages();
            assert!(!passages.is_empty(), "{speech:?} {tls}");
            assert!(passages.iter().all(|seen| *seen == passage), "{passages:?}");
            let requests = behind.server.requests();
            assert!(
                requests
                    .iter()
                    .all(|request| !request.told_of_proxy && request.username.as_deref() == Some("reader")),
                "{requests:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_proxy_that_refuses_the_user_is_named_without_the_password() {
    for speech in [Speech::Http, Speech::Https, Speech::Socks5] {
        for user in [None, Some(("user", "s3cret"))] {
            let behind = behind(true).await;
            let proxy = ProxyServer::start(speech).await.unwrap();
            proxy.require("user", "other");
            let text = failure(&behind.remote(&proxy, user)).await;
            assert!(text.contains(&proxy.url()), "{text}");
            assert!(text.contains("username"), "{text}");
            assert!(!text.contains("s3cret"), "{text}");
            assert!(behind.server.requests().is_empty());
        }
    }
}

#[tokio::test]
async fn a_forwarding_proxy_that_refuses_the_user_is_no_answer_of_the_repository() {
    let behind = behind(false).await;
    let proxy = ProxyServer::start(Speech::Http).await.unwrap();
    proxy.require("user", "other");
    let text = failure(&behind.remote(&proxy, Some(("user", "s3cret")))).await;
    assert!(text.contains("407"), "{text}");
    assert!(
        text.contains("the proxy requires a username and a password"),
        "{text}"
    );
}

#[tokio::test]
async fn a_proxy_that_misbehaves_fails_the_lookup_with_its_name() {
    for speech in [Speech::Http, Speech::Https, Speech::Socks5] {
        for mischief in [Mischief::Refuse, Mischief::Hang, Mischief::Lie, Mischief::Babble] {
            let behind = behind(true).await;
            let proxy = ProxyServer::start(speech).await.unwrap();
            proxy.misbehave(Some(mischief));
            let settings = Settings {
                connect_timeout: Duration::from_millis(700),
                ..Settings::default()
            };
            let remote = Remote {
                transport: Transport::with(&settings, crate::git::ssh::Algorithms::default()).unwrap(),
                ..behind.remote(&proxy, None)
            };
            let text = failure(&remote).await;
            assert!(text.contains(&proxy.url()), "{speech:?} {mischief:?}: {text}");
            assert!(behind.server.requests().is_empty(), "{speech:?} {mischief:?}");
        }
    }
}

#[tokio::test]
async fn a_proxy_that_leads_to_another_server_gains_nothing_over_tls() {
    let behind = behind(true).await;
    let proxy = ProxyServer::start(Speech::Http).await.unwrap();
    let remote = behind.remote(&proxy, None);
    let terms = Terms {
        hosts: &[NAME],
        ..Terms::default()
    };
    let other = GitServer::start_tls_on(&terms).await.unwrap();
    proxy.resolve(NAME, other.address());
    let text = failure(&remote).await;
    assert!(
        text.contains("x509: certificate signed by unknown authority"),
        "{text}"
    );
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn a_proxy_that_is_not_there_is_named() {
    let behind = behind(true).await;
    let closed = ClosedPort::take().unwrap();
    let url = format!("socks5://{}", closed.address().unwrap());
    let remote = Remote {
        proxy: Some(Arc::new(Proxy::new(&url, None, None).unwrap())),
        ..behind.world.remote_at(&behind.url)
    };
    let text = failure(&remote).await;
    assert!(text.contains(&format!("cannot reach the proxy {url}")), "{text}");
}

#[tokio::test]
async fn the_environment_names_proxies_and_takes_hosts_out() {
    let behind = behind(false).await;
    let proxy = ProxyServer::start(Speech::Http).await.unwrap();
    proxy.resolve(NAME, behind.server.address());
    let environment = |no: &'static str| {
        let url = proxy.url();
        let environment = Environment::read(move |name| match name {
            "HTTP_PROXY" => Some(url.clone()),
            "NO_PROXY" => Some(no.to_owned()),
            _ => None,
        });
        Route::Environment(Arc::new(environment.unwrap()))
    };
    let look = async |no: &'static str, url: &str| {
        let remote = Remote {
            transport: Transport::on(environment(no), crate::git::ssh::Algorithms::default()).unwrap(),
            ..behind.world.remote_at(url)
        };
        bounded(head(&remote, &main())).await
    };
    look("", &behind.url).await.unwrap();
    let passed = proxy.passages().len();
    assert!(passed > 0);
    // The name means nothing without the proxy.
    look("sluice.test", &behind.url).await.unwrap_err();
    // Loopback never needs one.
    look("", &behind.world.url).await.unwrap();
    assert_eq!(proxy.passages().len(), passed);
}

#[tokio::test]
async fn an_http_proxy_does_not_carry_ssh() {
    let world = World::new().await;
    let remote = Remote {
        proxy: Some(Arc::new(Proxy::new("http://127.0.0.1:9", None, None).unwrap())),
        ..world.remote_at(&world.url)
    };
    let error = connect(remote.proxy.as_ref().unwrap(), "h", 22, DEADLINE).await;
    let text = error.unwrap_err().to_string();
    assert!(text.contains("only a socks5 proxy can"), "{text}");
}

#[tokio::test]
async fn a_socks_proxy_leaves_the_first_words_of_the_server_to_the_caller() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = ProxyServer::start(Speech::Socks5).await.unwrap();
    proxy.resolve(NAME, listener.local_addr().unwrap());
    proxy.require("user", "pw");
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.write_all(b"SSH-2.0-first").await.unwrap();
    });
    let through = Proxy::new(&proxy.url(), Some("user"), Some("pw")).unwrap();
    let mut socket = connect(&through, NAME, 22, DEADLINE).await.unwrap();
    let mut said = String::new();
    bounded(socket.read_to_string(&mut said)).await.unwrap();
    assert_eq!(said, "SSH-2.0-first");
    assert_eq!(proxy.passages()[0].target, format!("{NAME}:22"));
}

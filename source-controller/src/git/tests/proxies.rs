//! Tests with real proxies on loopback: transferred requests, recorded data, and misbehaviour.

use sluice_harness::closed_port::ClosedPort;
use sluice_harness::proxy::{Protocol, ProxiedRequest, ProxyFault, ProxyMode, ProxyServer};
use sluice_harness::tls::TlsOptions;
use sluice_runtime::http::{Environment, Route, Settings};

use super::*;

/// A name that only a proxy can resolve.
const NAME: &str = "git.sluice.test";

/// A server with a name that only the proxy resolves.
struct ProxiedServer {
    env: TestEnvironment,
    server: GitServer,
    url: String,
}

async fn proxied_server(tls: bool) -> ProxiedServer {
    let env = TestEnvironment::new().await;
    env.repository.commit("one").unwrap();
    let terms = TlsOptions {
        hosts: &[NAME],
        ..TlsOptions::default()
    };
    let server = if tls {
        GitServer::start_tls_with(&terms).await.unwrap()
    } else {
        GitServer::start().await.unwrap()
    };
    let url = server.serve("stack", &env.repository);
    let url = url.replace(&server.address().ip().to_string(), NAME);
    ProxiedServer { env, server, url }
}

impl ProxiedServer {
    fn remote(&self, proxy: &ProxyServer, user: Option<(&str, &str)>) -> Remote {
        proxy.resolve(NAME, self.server.address());
        let own = [self.server.authority_pem(), proxy.authority_pem()];
        let (name, password) = user.unzip();
        self.env.remote_at(&self.url).with_access(|access| {
            access.tls = Arc::new(Tls {
                authorities: own.into_iter().flatten().collect::<String>().into(),
                identity: None,
            });
            access.proxy = Some(Arc::new(Proxy::new(&proxy.url(), name, password).unwrap()));
        })
    }
}

async fn failure(remote: &Remote) -> String {
    bounded(head(remote, &main())).await.unwrap_err().to_string()
}

#[tokio::test]
async fn every_kind_of_proxy_supports_http_and_https_and_resolves_names() {
    for protocol in [Protocol::Http, Protocol::Https, Protocol::Socks5] {
        for tls in [false, true] {
            let proxied_server = proxied_server(tls).await;
            proxied_server.server.require_basic("reader", "pw");
            let proxy = ProxyServer::start(protocol).await.unwrap();
            proxy.require("user", "p:w");
            let remote = proxied_server.remote(&proxy, Some(("user", "p:w")));
            let remote = remote.with_access(|access| {
                access.credentials = Credentials::Basic {
                    username: "reader".into(),
                    password: "pw".into(),
                };
            });
            let checkout = proxied_server.env.fetch_from(&remote, &main()).await.unwrap();
            assert_eq!(files(&checkout), ls_tree(&proxied_server.env.repository, "HEAD"));
            let mode = match (protocol, tls) {
                (Protocol::Socks5, _) => ProxyMode::Socks,
                (_, true) => ProxyMode::Tunnel,
                (_, false) => ProxyMode::Forward,
            };
            let port = proxied_server.server.address().port();
            let request = ProxiedRequest {
                mode,
                target: format!("{NAME}:{port}"),
                username: Some("user".into()),
            };
            let requests = proxy.requests();
            assert!(!requests.is_empty(), "{protocol:?} {tls}");
            assert!(requests.iter().all(|actual| *actual == request), "{requests:?}");
            let requests = proxied_server.server.requests();
            assert!(
                requests
                    .iter()
                    .all(|request| !request.has_proxy_credentials
                        && request.username.as_deref() == Some("reader")),
                "{requests:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_refusing_proxy_is_reported_without_the_password() {
    for protocol in [Protocol::Http, Protocol::Https, Protocol::Socks5] {
        for user in [None, Some(("user", "s3cret"))] {
            let proxied_server = proxied_server(true).await;
            let proxy = ProxyServer::start(protocol).await.unwrap();
            proxy.require("user", "other");
            let text = failure(&proxied_server.remote(&proxy, user)).await;
            assert!(text.contains(&proxy.url()), "{text}");
            assert!(text.contains("username"), "{text}");
            assert!(!text.contains("s3cret"), "{text}");
            assert!(proxied_server.server.requests().is_empty());
        }
    }
}

#[tokio::test]
async fn a_refusal_of_a_forwarding_proxy_is_not_attributed_to_the_repository() {
    let proxied_server = proxied_server(false).await;
    let proxy = ProxyServer::start(Protocol::Http).await.unwrap();
    proxy.require("user", "other");
    let text = failure(&proxied_server.remote(&proxy, Some(("user", "s3cret")))).await;
    assert!(text.contains("407"), "{text}");
    assert!(
        text.contains("the proxy requires a username and a password"),
        "{text}"
    );
}

#[tokio::test]
async fn a_misbehaving_proxy_is_reported() {
    for protocol in [Protocol::Http, Protocol::Https, Protocol::Socks5] {
        for fault in [
            ProxyFault::Refuse,
            ProxyFault::Hang,
            ProxyFault::Impersonate,
            ProxyFault::Garbage,
        ] {
            let proxied_server = proxied_server(true).await;
            let proxy = ProxyServer::start(protocol).await.unwrap();
            proxy.set_fault(Some(fault));
            let settings = Settings {
                connect_timeout: Duration::from_millis(700),
                ..Settings::default()
            };
            let remote = Remote {
                transport: Transport::with_settings(&settings, crate::git::ssh::Algorithms::default())
                    .unwrap(),
                ..proxied_server.remote(&proxy, None)
            };
            let text = failure(&remote).await;
            assert!(text.contains(&proxy.url()), "{protocol:?} {fault:?}: {text}");
            assert!(
                proxied_server.server.requests().is_empty(),
                "{protocol:?} {fault:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_proxy_cannot_redirect_tls_to_another_server() {
    let proxied_server = proxied_server(true).await;
    let proxy = ProxyServer::start(Protocol::Http).await.unwrap();
    let remote = proxied_server.remote(&proxy, None);
    let terms = TlsOptions {
        hosts: &[NAME],
        ..TlsOptions::default()
    };
    let other = GitServer::start_tls_with(&terms).await.unwrap();
    proxy.resolve(NAME, other.address());
    let text = failure(&remote).await;
    assert!(
        text.contains("x509: certificate signed by unknown authority"),
        "{text}"
    );
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn an_unreachable_proxy_is_reported() {
    let proxied_server = proxied_server(true).await;
    let closed = ClosedPort::reserve().unwrap();
    let url = format!("socks5://{}", closed.address().unwrap());
    let remote = proxied_server.env.remote_at(&proxied_server.url);
    let remote =
        remote.with_access(|access| access.proxy = Some(Arc::new(Proxy::new(&url, None, None).unwrap())));
    let text = failure(&remote).await;
    assert!(text.contains(&format!("cannot reach the proxy {url}")), "{text}");
}

#[tokio::test]
async fn the_environment_sets_proxies_and_exceptions() {
    let proxied_server = proxied_server(false).await;
    let proxy = ProxyServer::start(Protocol::Http).await.unwrap();
    proxy.resolve(NAME, proxied_server.server.address());
    let environment = |no: &'static str| {
        let url = proxy.url();
        let environment = Environment::read(move |name| match name {
            "HTTP_PROXY" => Some(url.clone()),
            "NO_PROXY" => Some(no.to_owned()),
            _ => None,
        });
        Route::Environment(Arc::new(environment.unwrap()))
    };
    let look_up = async |no: &'static str, url: &str| {
        let remote = Remote {
            transport: Transport::with_route(environment(no), crate::git::ssh::Algorithms::default())
                .unwrap(),
            ..proxied_server.env.remote_at(url)
        };
        bounded(head(&remote, &main())).await
    };
    look_up("", &proxied_server.url).await.unwrap();
    let passed = proxy.requests().len();
    assert!(passed > 0);
    // The name does not resolve without the proxy.
    look_up("sluice.test", &proxied_server.url).await.unwrap_err();
    // Loopback never uses a proxy.
    look_up("", &proxied_server.env.url).await.unwrap();
    assert_eq!(proxy.requests().len(), passed);
}

#[tokio::test]
async fn an_http_proxy_cannot_open_raw_connections() {
    let env = TestEnvironment::new().await;
    let proxy = Arc::new(Proxy::new("http://127.0.0.1:9", None, None).unwrap());
    let remote = env.remote().with_access(|access| access.proxy = Some(proxy));
    let error = connect(remote.proxy.as_ref().unwrap(), "h", 22, DEADLINE).await;
    let text = error.unwrap_err().to_string();
    assert!(text.contains("only a socks5 proxy can"), "{text}");
}

#[tokio::test]
async fn a_socks_proxy_preserves_the_first_bytes_of_the_server() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = ProxyServer::start(Protocol::Socks5).await.unwrap();
    proxy.resolve(NAME, listener.local_addr().unwrap());
    proxy.require("user", "pw");
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.write_all(b"SSH-2.0-first").await.unwrap();
    });
    let through = Proxy::new(&proxy.url(), Some("user"), Some("pw")).unwrap();
    let mut socket = connect(&through, NAME, 22, DEADLINE).await.unwrap();
    let mut greeting = String::new();
    bounded(socket.read_to_string(&mut greeting)).await.unwrap();
    assert_eq!(greeting, "SSH-2.0-first");
    assert_eq!(proxy.requests()[0].target, format!("{NAME}:22"));
}

//! Connections through proxies.

use std::net::{Ipv4Addr, SocketAddr};

use sluice_runtime::http::Proxy;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::*;

/// Starts a SOCKS 5 proxy (RFC 1928) that connects to any IPv4 target and reports its port.
async fn socks() -> (SocketAddr, mpsc::UnboundedReceiver<u16>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, ports) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut head = [0; 2];
                client.read_exact(&mut head).await?;
                let mut methods = vec![0; usize::from(head[1])];
                client.read_exact(&mut methods).await?;
                client.write_all(&[5, 0]).await?;
                // Version, CONNECT, reserved, address type.
                let mut request = [0; 4];
                client.read_exact(&mut request).await?;
                let mut host = match request[3] {
                    1 => vec![0; 4],
                    3 => vec![0; usize::from(client.read_u8().await?)],
                    _ => vec![0; 16],
                };
                client.read_exact(&mut host).await?;
                let port = client.read_u16().await?;
                let _ = sender.send(port);
                let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
                client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    (address, ports)
}

fn through(proxy: &str, remote: Remote) -> Remote {
    remote.with_access(|access| access.proxy = Some(Arc::new(Proxy::new(proxy, None, None).unwrap())))
}

#[tokio::test]
async fn ssh_goes_through_a_socks_proxy() {
    let env = Ssh::new();
    let (address, mut ports) = socks().await;
    let remote = through(&format!("socks5://{address}"), env.remote());
    let checkout = env.fetch(&remote).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&env.repository, "main"));
    assert_eq!(ports.recv().await, Some(env.server.address().port()));
    // A direct connection is not shared with the proxied one.
    env.fetch(&env.remote()).await.unwrap();
    assert_eq!(env.connections().len(), 2);
    assert!(ports.try_recv().is_err());
}

#[tokio::test]
async fn an_http_proxy_is_refused_for_ssh() {
    let env = Ssh::new();
    for proxy in ["http://127.0.0.1:3128", "https://127.0.0.1:3128"] {
        let error = env.look_up(through(proxy, env.remote())).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "unable to construct auth method with options: ssh supports only socks5 proxies, not {proxy}"
            )
        );
    }
}

//! Through proxies.

use std::net::{Ipv4Addr, SocketAddr};

use sluice_runtime::http::Proxy;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::*;

/// A SOCKS 5 proxy (RFC 1928) that takes anybody anywhere by IPv4, and tells where.
async fn socks() -> (SocketAddr, mpsc::UnboundedReceiver<u16>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (told, ports) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let told = told.clone();
            tokio::spawn(async move {
                let mut head = [0; 2];
                client.read_exact(&mut head).await?;
                let mut methods = vec![0; usize::from(head[1])];
                client.read_exact(&mut methods).await?;
                client.write_all(&[5, 0]).await?;
                // Version, CONNECT, reserved, kind of address.
                let mut request = [0; 4];
                client.read_exact(&mut request).await?;
                let mut host = match request[3] {
                    1 => vec![0; 4],
                    3 => vec![0; usize::from(client.read_u8().await?)],
                    _ => vec![0; 16],
                };
                client.read_exact(&mut host).await?;
                let port = client.read_u16().await?;
                let _ = told.send(port);
                let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
                client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    (address, ports)
}

fn through(proxy: &str, remote: Remote) -> Remote {
    Remote {
        proxy: Some(Arc::new(Proxy::new(proxy, None, None).unwrap())),
        ..remote
    }
}

#[tokio::test]
async fn ssh_goes_through_a_socks_proxy() {
    let world = Ssh::new();
    let (address, mut ports) = socks().await;
    let remote = through(&format!("socks5://{address}"), world.remote());
    let checkout = world.fetch(&remote).await.unwrap();
    assert_eq!(files(&checkout), ls_tree(&world.repository, "main"));
    assert_eq!(ports.recv().await, Some(world.server.address().port()));
    // Who goes straight does not share that connection.
    world.fetch(&world.remote()).await.unwrap();
    assert_eq!(world.connections().len(), 2);
    assert!(ports.try_recv().is_err());
}

#[tokio::test]
async fn a_proxy_of_http_cannot_carry_ssh() {
    let world = Ssh::new();
    for proxy in ["http://127.0.0.1:3128", "https://127.0.0.1:3128"] {
        let error = world.look(through(proxy, world.remote())).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "unable to construct auth method with options: ssh goes through socks5 proxies only, and {proxy} is none"
            )
        );
    }
}

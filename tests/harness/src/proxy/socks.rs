//! The SOCKS 5 proxy (RFC 1928, RFC 1929).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{ProxyFault, ProxyMode, State, lock};

const WITH_USER: u8 = 2;

pub(super) async fn serve(mut client: TcpStream, state: &State) -> io::Result<()> {
    if state.fault() == Some(ProxyFault::Garbage) {
        return client.write_all(b"\x00\x01\x02 no protocol at all\r\n\r\n").await;
    }
    let _version = client.read_u8().await?;
    let offered = counted(&mut client).await?;
    let required = lock(&state.user).clone();
    let mut username = None;
    match required {
        None => client.write_all(&[5, 0]).await?,
        Some(_) if !offered.contains(&WITH_USER) => return client.write_all(&[5, 0xff]).await,
        Some(required) => {
            client.write_all(&[5, WITH_USER]).await?;
            let _version = client.read_u8().await?;
            let name = text(&mut client).await?;
            let provided = (name.clone(), text(&mut client).await?);
            let refused = u8::from(provided != required);
            client.write_all(&[1, refused]).await?;
            if refused == 1 {
                return Ok(());
            }
            username = Some(name);
        }
    }
    let target = target(&mut client).await?;
    state.record(ProxyMode::Socks, target.clone(), username);
    match state.fault() {
        Some(ProxyFault::Refuse) => return client.write_all(&[5, 2, 0, 1, 0, 0, 0, 0, 0, 0]).await,
        Some(ProxyFault::Hang) => std::future::pending().await,
        Some(ProxyFault::Impersonate) => {
            client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
            return client.write_all(b"bytes of another server\r\n").await;
        }
        _ => {}
    }
    let Ok(mut server) = state.connect(&target).await else {
        return client.write_all(&[5, 5, 0, 1, 0, 0, 0, 0, 0, 0]).await;
    };
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server)
        .await
        .map(drop)
}

/// Reads host and port of the request; a name is kept as sent.
async fn target(client: &mut TcpStream) -> io::Result<String> {
    let mut head = [0; 4];
    client.read_exact(&mut head).await?;
    let host = match head[3] {
        1 => Ipv4Addr::from(client.read_u32().await?).to_string(),
        4 => format!("[{}]", Ipv6Addr::from(client.read_u128().await?)),
        _ => text(client).await?,
    };
    Ok(format!("{host}:{}", client.read_u16().await?))
}

async fn counted(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = client.read_u8().await?;
    let mut bytes = vec![0; usize::from(length)];
    client.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn text(client: &mut TcpStream) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&counted(client).await?).into_owned())
}

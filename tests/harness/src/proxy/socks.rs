//! The SOCKS 5 proxy (RFC 1928, RFC 1929).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Mischief, State, Way, lock};

const WITH_USER: u8 = 2;

pub(super) async fn converse(mut client: TcpStream, state: &State) -> io::Result<()> {
    if state.mischief() == Some(Mischief::Babble) {
        return client.write_all(b"\x00\x01\x02 no protocol at all\r\n\r\n").await;
    }
    let _version = client.read_u8().await?;
    let offered = counted(&mut client).await?;
    let wanted = lock(&state.user).clone();
    let mut username = None;
    match wanted {
        None => client.write_all(&[5, 0]).await?,
        Some(_) if !offered.contains(&WITH_USER) => return client.write_all(&[5, 0xff]).await,
        Some(wanted) => {
            client.write_all(&[5, WITH_USER]).await?;
            let _version = client.read_u8().await?;
            let name = text(&mut client).await?;
            let shown = (name.clone(), text(&mut client).await?);
            let refused = u8::from(shown != wanted);
            client.write_all(&[1, refused]).await?;
            if refused == 1 {
                return Ok(());
            }
            username = Some(name);
        }
    }
    let target = target(&mut client).await?;
    state.note(Way::Socks, target.clone(), username);
    match state.mischief() {
        Some(Mischief::Refuse) => return client.write_all(&[5, 2, 0, 1, 0, 0, 0, 0, 0, 0]).await,
        Some(Mischief::Hang) => std::future::pending().await,
        Some(Mischief::Lie) => {
            client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
            return client.write_all(b"lies, and nothing but lies\r\n").await;
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

/// Host and port of the request; a name as it was sent.
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

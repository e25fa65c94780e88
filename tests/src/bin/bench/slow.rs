//! Slow readers of an artifact, as consumers behind a slow network are.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use sluice_tests::BoxError;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

/// Number of readers.
pub(crate) const READERS: usize = 200;
/// The addresses that they share: the server limits the downloads of each address.
const ADDRESSES: usize = 4;
/// How long they read.
const OBSERVED: Duration = Duration::from_secs(5);
/// What each of them reads at once, and the time between two reads.
const READ_BYTES: usize = 16 * 1024;
const PAUSE: Duration = Duration::from_millis(100);

/// Reads a file slowly over many connections at the same time. Fails if the server refuses one of them.
pub(crate) async fn read(server: SocketAddr, path: &str) -> Result<(), BoxError> {
    let end = Instant::now() + OBSERVED;
    let readers = (0..READERS).map(|number| {
        let last = u8::try_from(1 + number % ADDRESSES).unwrap_or(1);
        let own = Ipv4Addr::new(127, 0, 0, last);
        let path = path.to_owned();
        tokio::spawn(async move { read_one(server, own, &path, end).await })
    });
    for reader in readers.collect::<Vec<_>>() {
        reader.await??;
    }
    Ok(())
}

async fn read_one(server: SocketAddr, own: Ipv4Addr, path: &str, end: Instant) -> Result<(), BoxError> {
    let socket = TcpSocket::new_v4()?;
    // Little of the file waits in the kernel.
    socket.set_recv_buffer_size(u32::try_from(READ_BYTES)?)?;
    socket.bind(SocketAddr::from((own, 0)))?;
    let mut stream = socket.connect(server).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {server}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut buffer = vec![0; READ_BYTES];
    let count = stream.read(&mut buffer).await?;
    if !buffer[..count].starts_with(b"HTTP/1.1 200 ") {
        let head = String::from_utf8_lossy(&buffer[..count.min(200)]).into_owned();
        return Err(format!("a slow reader was refused: {head}").into());
    }
    while Instant::now() < end {
        tokio::time::sleep(PAUSE).await;
        if stream.read(&mut buffer).await? == 0 {
            return Err("the response to a slow reader ended early".into());
        }
    }
    Ok(())
}

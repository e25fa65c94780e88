//! A port that refuses connections, for as long as the test wants.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A port of loopback that is taken and on which nobody listens. A port that was merely free a moment ago may be given
/// to another test before it is tried.
#[derive(Debug)]
pub struct ClosedPort {
    socket: TcpSocket,
}

impl ClosedPort {
    /// Takes a port.
    ///
    /// # Errors
    /// When loopback has none left.
    pub fn take() -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Self { socket })
    }

    /// Where it is.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_is_connected() {
        let closed = ClosedPort::take().unwrap();
        let error = tokio::net::TcpStream::connect(closed.address().unwrap()).await;
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}

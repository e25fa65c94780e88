//! A port that refuses connections for as long as the test needs it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A bound port of loopback without a listener. It stays reserved: a port that is merely free could be assigned to
/// another test before it is used.
#[derive(Debug)]
pub struct ClosedPort {
    socket: TcpSocket,
}

impl ClosedPort {
    /// Reserves a port.
    ///
    /// # Errors
    /// When loopback has no free port.
    pub fn reserve() -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Self { socket })
    }

    /// Returns its address.
    ///
    /// # Errors
    /// When the system does not return it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_are_refused() {
        let closed = ClosedPort::reserve().unwrap();
        let error = tokio::net::TcpStream::connect(closed.address().unwrap()).await;
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}

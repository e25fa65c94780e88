//! A SOCKS 5 client (RFC 1928) with username and password (RFC 1929). `hyper-util`'s client reads ahead and loses the first
//! bytes of servers that speak first, such as SSH servers.

use std::io;
use std::net::IpAddr;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

const VERSION: u8 = 5;
const NO_USER: u8 = 0;
const WITH_USER: u8 = 2;
const NONE_ACCEPTED: u8 = 0xff;

/// A SOCKS proxy did not open a connection.
#[derive(Debug, thiserror::Error)]
pub enum SocksError {
    /// The connection to the proxy broke.
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    /// The proxy uses another protocol.
    #[error("it does not speak SOCKS 5")]
    Foreign,
    /// The proxy accepts none of the offered authentication methods.
    #[error("it accepts none of the offered authentication methods (a username and a password are {0})")]
    NoMethod(&'static str),
    /// The proxy rejects username and password.
    #[error("it refuses the username and the password")]
    User,
    /// The proxy refuses the connection.
    #[error("it does not connect: {0}")]
    Refused(String),
    /// The name is too long for the request.
    #[error("the name has {0} bytes, more than the 255 that SOCKS 5 allows")]
    LongName(usize),
}

/// Requests a connection to `host` and `port`. The proxy resolves names. Reads nothing after the proxy's response.
///
/// # Errors
/// The proxy does not support SOCKS 5, rejects the user, or cannot connect.
pub async fn handshake<S>(
    stream: &mut S,
    user: Option<(&str, &str)>,
    host: &str,
    port: u16,
) -> Result<(), SocksError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let request = request(host, port)?;
    greet(stream, user).await?;
    stream.write_all(&request).await?;
    let [version, code, _reserved, kind] = read(stream).await?;
    if version != VERSION {
        return Err(SocksError::Foreign);
    }
    if code != 0 {
        return Err(SocksError::Refused(refusal(code)));
    }
    // Skip the address that the proxy connects from.
    let length = match kind {
        1 => 4,
        4 => 16,
        3 => usize::from(stream.read_u8().await?),
        _ => return Err(SocksError::Foreign),
    };
    let mut rest = [0; 255 + 2];
    stream.read_exact(&mut rest[..length + 2]).await?;
    Ok(())
}

async fn greet<S>(stream: &mut S, user: Option<(&str, &str)>) -> Result<(), SocksError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match user {
        Some(_) => stream.write_all(&[VERSION, 2, NO_USER, WITH_USER]).await?,
        None => stream.write_all(&[VERSION, 1, NO_USER]).await?,
    }
    let [version, method] = read(stream).await?;
    match (version, method, user) {
        (VERSION, NO_USER, _) => Ok(()),
        (VERSION, WITH_USER, Some((name, password))) => introduce(stream, name, password).await,
        (VERSION, NONE_ACCEPTED, Some(_)) => Err(SocksError::NoMethod("given")),
        (VERSION, NONE_ACCEPTED, None) => Err(SocksError::NoMethod("not given")),
        _ => Err(SocksError::Foreign),
    }
}

async fn introduce<S>(stream: &mut S, name: &str, password: &str) -> Result<(), SocksError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut message = vec![1];
    for part in [name, password] {
        message.push(u8::try_from(part.len()).map_err(|_| SocksError::User)?);
        message.extend_from_slice(part.as_bytes());
    }
    stream.write_all(&message).await?;
    let [_version, status] = read(stream).await?;
    if status == 0 {
        Ok(())
    } else {
        Err(SocksError::User)
    }
}

fn request(host: &str, port: u16) -> Result<Vec<u8>, SocksError> {
    let mut request = vec![VERSION, 1, 0];
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => {
            request.push(1);
            request.extend(address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            request.push(4);
            request.extend(address.octets());
        }
        Err(_) => {
            let length = u8::try_from(host.len()).map_err(|_| SocksError::LongName(host.len()))?;
            request.extend([3, length]);
            request.extend(host.as_bytes());
        }
    }
    request.extend(port.to_be_bytes());
    Ok(request)
}

fn refusal(code: u8) -> String {
    match code {
        1 => "general failure".into(),
        2 => "its rules forbid it".into(),
        3 => "network unreachable".into(),
        4 => "host unreachable".into(),
        5 => "connection refused".into(),
        6 => "time to live expired".into(),
        7 => "it does not support the command".into(),
        8 => "it does not support the type of address".into(),
        other => format!("error {other}"),
    }
}

async fn read<const N: usize>(stream: &mut (impl AsyncRead + Unpin)) -> Result<[u8; N], SocksError> {
    let mut bytes = [0; N];
    match stream.read_exact(&mut bytes).await {
        Ok(_) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(SocksError::Foreign),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::duplex;

    use super::*;

    /// Returns the result for these bytes from the proxy, what was sent to it, and the bytes after its response.
    async fn handshake_with(
        said: &[u8],
        user: Option<(&str, &str)>,
        host: &str,
    ) -> (Result<(), SocksError>, Vec<u8>, Vec<u8>) {
        let (mut near, mut far) = duplex(4096);
        far.write_all(said).await.unwrap();
        let (mut reading, mut writing) = tokio::io::split(far);
        writing.shutdown().await.unwrap();
        let outcome = handshake(&mut near, user, host, 22).await;
        let mut rest = Vec::new();
        near.read_to_end(&mut rest).await.unwrap();
        drop(near);
        let mut sent = Vec::new();
        reading.read_to_end(&mut sent).await.unwrap();
        (outcome, sent, rest)
    }

    #[tokio::test]
    async fn the_first_bytes_of_the_server_are_left_for_the_caller() {
        let said = b"\x05\x00\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x16SSH-2.0-x";
        let (outcome, sent, rest) = handshake_with(said, None, "git.example").await;
        outcome.unwrap();
        assert_eq!(sent, b"\x05\x01\x00\x05\x01\x00\x03\x0bgit.example\x00\x16");
        assert_eq!(rest, b"SSH-2.0-x");
    }

    #[tokio::test]
    async fn credentials_are_sent_on_request() {
        let said = b"\x05\x02\x01\x00\x05\x00\x00\x03\x02ab\x00\x16";
        let (outcome, sent, _) = handshake_with(said, Some(("u", "pw")), "10.0.0.1").await;
        outcome.unwrap();
        assert_eq!(
            sent,
            b"\x05\x02\x00\x02\x01\x01u\x02pw\x05\x01\x00\x01\x0a\x00\x00\x01\x00\x16"
        );
        let (outcome, sent, _) = handshake_with(
            b"\x05\x00\x05\x00\x00\x01\0\0\0\0\0\0",
            Some(("u", "pw")),
            "[::1]",
        )
        .await;
        outcome.unwrap();
        assert!(!sent.contains(&b'u'));
    }

    #[tokio::test]
    async fn refusals_contain_the_reason() {
        let user = Some(("u", "p"));
        for (said, user, why) in [
            (
                &b"HTTP/1.1 400 Bad Request"[..],
                None,
                "it does not speak SOCKS 5",
            ),
            (b"", None, "it does not speak SOCKS 5"),
            (
                b"\x05\xff",
                None,
                "it accepts none of the offered authentication methods (a username and a password are not given)",
            ),
            (
                b"\x05\xff",
                user,
                "it accepts none of the offered authentication methods (a username and a password are given)",
            ),
            (
                b"\x05\x02\x01\x01",
                user,
                "it refuses the username and the password",
            ),
            (b"\x05\x02", None, "it does not speak SOCKS 5"),
            (
                b"\x05\x00\x05\x02\x00\x01",
                None,
                "it does not connect: its rules forbid it",
            ),
            (b"\x05\x00\x05\x63\x00\x01", None, "it does not connect: error 99"),
        ] {
            let (outcome, ..) = handshake_with(said, user, "h").await;
            assert_eq!(outcome.unwrap_err().to_string(), why);
        }
        let (outcome, ..) = handshake_with(b"\x05\x00", None, &"h".repeat(256)).await;
        assert!(matches!(outcome, Err(SocksError::LongName(256))));
    }

    proptest! {
        #[test]
        fn any_answer_is_read(said: Vec<u8>, valid in any::<bool>()) {
            let said = if valid { [&b"\x05\x00\x05\x00\x00"[..], &said].concat() } else { said };
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _ = runtime.block_on(handshake_with(&said, Some(("u", "p")), "h"));
        }
    }
}

//! Runs one request through the real `git http-backend` (RFC 3875: environment and body in, headers and body out).

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use super::super::repository::{hermetic, hermetic_program};
use super::Response;

/// Limit of a request body in bytes; larger ones are refused.
pub(super) const BODY_LIMIT: usize = 64 << 20;
/// Timeout until the response begins; then the process is ended.
const FIRST_LINE: Duration = Duration::from_mins(1);
/// Limit of the response headers in bytes.
const HEADERS: u64 = 64 << 10;

/// Starts the process, writes its input, and reads its headers; the body streams from the process.
pub(super) async fn run(head: &Parts, body: Bytes, git_dir: &Path, inner: &str) -> io::Result<Response> {
    let mut child = command(head, &body, git_dir, inner)?.spawn()?;
    let stdin = child.stdin.take();
    // In its own task: the process may write before it has read everything, and neither side may block the other.
    tokio::spawn(async move {
        if let Some(mut stdin) = stdin {
            drop(stdin.write_all(&body).await);
        }
    });
    let stdout = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
    let mut output = BufReader::new(stdout);
    let mut response = tokio::time::timeout(FIRST_LINE, headers(&mut output))
        .await
        .map_err(|_| io::Error::other("no answer in time"))??;
    *response.body_mut() = stream(output, child);
    Ok(response)
}

fn command(head: &Parts, body: &Bytes, git_dir: &Path, inner: &str) -> io::Result<Command> {
    let root = git_dir
        .parent()
        .ok_or_else(|| io::Error::other("the repository has no parent folder"))?;
    let name = git_dir.file_name().unwrap_or_default().to_string_lossy();
    let mut command = Command::from(hermetic_program(http_backend(root)?, root));
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command.kill_on_drop(true);
    command
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1");
    command
        .env("PATH_INFO", format!("/{name}{inner}"))
        .env("REMOTE_ADDR", "127.0.0.1");
    command
        .env("REQUEST_METHOD", head.method.as_str())
        .env("QUERY_STRING", head.uri.query().unwrap_or_default());
    command
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("SERVER_PROTOCOL", "HTTP/1.1");
    let passed = [
        (header::CONTENT_TYPE.as_str(), "CONTENT_TYPE"),
        (header::CONTENT_ENCODING.as_str(), "HTTP_CONTENT_ENCODING"),
        (header::ACCEPT_ENCODING.as_str(), "HTTP_ACCEPT_ENCODING"),
        ("git-protocol", "GIT_PROTOCOL"),
    ];
    for (name, variable) in passed {
        if let Some(value) = head.headers.get(name).and_then(|value| value.to_str().ok()) {
            command.env(variable, value);
        }
    }
    Ok(command)
}

/// Returns the path of `git-http-backend`. A web server starts it by its path too: `git http-backend` is one more process.
fn http_backend(home: &Path) -> io::Result<&'static Path> {
    static BACKEND: OnceLock<PathBuf> = OnceLock::new();
    if let Some(backend) = BACKEND.get() {
        return Ok(backend);
    }
    let output = hermetic(home).arg("--exec-path").output()?;
    let directory = String::from_utf8(output.stdout).map_err(io::Error::other)?;
    Ok(BACKEND.get_or_init(|| Path::new(directory.trim_end()).join("git-http-backend")))
}

/// Reads `Name: value` lines up to an empty one; `Status` is the status, 200 if it is absent.
async fn headers(output: &mut BufReader<ChildStdout>) -> io::Result<Response> {
    let mut response = http::Response::new(super::Body::default());
    let mut lines = output.take(HEADERS);
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).await? == 0 {
            return Err(io::Error::other("incomplete headers"));
        }
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            return Ok(response);
        };
        if name.eq_ignore_ascii_case("status") {
            let code = value
                .split(' ')
                .next()
                .and_then(|code| StatusCode::try_from(code).ok());
            *response.status_mut() = code.ok_or_else(|| io::Error::other("not a status"))?;
        } else if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().append(name, value);
        }
    }
}

/// Streams the rest of the output; dropping the body ends the process.
fn stream(output: BufReader<ChildStdout>, child: Child) -> super::Body {
    let chunks = futures::stream::try_unfold((output, child), |(mut output, child)| async move {
        let mut chunk = Vec::with_capacity(64 << 10);
        let read = output.read_buf(&mut chunk).await?;
        Ok((read > 0).then(|| (Frame::data(Bytes::from(chunk)), (output, child))))
    });
    StreamBody::new(chunks).boxed_unsync()
}

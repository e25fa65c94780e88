//! As much of HCP Terraform as a workspace with local runs needs: discovery, the workspace, its lock, its states.

use serde_json::{Value, json};
use sluice_harness::tls::{Authority, Terms};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

/// The organization and the workspace that there are.
pub(crate) const ORGANIZATION: &str = "org";
pub(crate) const WORKSPACE: &str = "net";
/// The token that it takes.
pub(crate) const TOKEN: &str = "hunter2";

/// The service, for as long as the test lasts.
pub(crate) struct Service {
    /// `localhost:<port>`.
    pub(crate) host: String,
    /// The authority that vouches for it, PEM.
    pub(crate) authority: PathBuf,
    held: Arc<Mutex<Held>>,
}

#[derive(Default)]
struct Held {
    states: Vec<Vec<u8>>,
    locked: bool,
    refused: usize,
}

impl Service {
    pub(crate) async fn start(folder: &std::path::Path) -> Self {
        let authority = Authority::create().unwrap();
        let terms = Terms {
            http2: false,
            ..Terms::default()
        };
        let acceptor = authority.acceptor(&terms).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = format!("localhost:{}", listener.local_addr().unwrap().port());
        let file = folder.join("authority.pem");
        std::fs::write(&file, authority.pem()).unwrap();
        let held = Arc::new(Mutex::new(Held::default()));
        let (shared, name) = (Arc::clone(&held), host.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, held, host) = (acceptor.clone(), Arc::clone(&shared), name.clone());
                tokio::spawn(async move {
                    if let Ok(open) = acceptor.accept(stream).await {
                        // A client that goes away in the middle is its own affair.
                        drop(answer(open, &held, &host).await);
                    }
                });
            }
        });
        Self {
            host,
            authority: file,
            held,
        }
    }

    /// The newest state.
    pub(crate) fn state(&self) -> Value {
        let held = self.held.lock().unwrap();
        serde_json::from_slice(held.states.last().unwrap()).unwrap()
    }

    /// Requests without the token.
    pub(crate) fn refused(&self) -> usize {
        self.held.lock().unwrap().refused
    }
}

struct Request {
    method: String,
    path: String,
    has_token: bool,
    body: Vec<u8>,
}

async fn answer(
    mut open: impl AsyncRead + AsyncWrite + Unpin,
    held: &Mutex<Held>,
    host: &str,
) -> std::io::Result<()> {
    let request = read(&mut open).await?;
    let (code, body) = respond(&request, &mut held.lock().unwrap(), host);
    let kind = if request.path.starts_with("/.well-known/") {
        "application/json"
    } else {
        "application/vnd.api+json"
    };
    let front = format!(
        "HTTP/1.1 {code} Said\r\nContent-Type: {kind}\r\nTFP-API-Version: 2.5\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    open.write_all(front.as_bytes()).await?;
    open.write_all(&body).await?;
    open.shutdown().await
}

async fn read(open: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Request> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if open.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let field = |name: &str| {
        head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    let length = field("content-length")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let mut body = bytes[end + 4..].to_vec();
    while body.len() < length && open.read_buf(&mut body).await? > 0 {}
    let mut words = head.split_whitespace();
    let method = words.next().unwrap_or_default().to_owned();
    let path = words
        .next()
        .unwrap_or_default()
        .split('?')
        .next()
        .unwrap_or_default()
        .to_owned();
    Ok(Request {
        method,
        path,
        has_token: field("authorization").is_some_and(|value| value == format!("Bearer {TOKEN}")),
        body,
    })
}

fn respond(request: &Request, held: &mut Held, host: &str) -> (u16, Vec<u8>) {
    let text = |value: Value| (200, value.to_string().into_bytes());
    let missing = || {
        (
            404,
            br#"{"errors":[{"status":"404","title":"not found"}]}"#.to_vec(),
        )
    };
    match request.path.as_str() {
        "/.well-known/terraform.json" => {
            return text(json!({ "tfe.v2": "/api/v2/", "tfe.v2.1": "/api/v2/", "tfe.v2.2": "/api/v2/" }));
        }
        "/json" => return (200, Vec::new()),
        "/state" if request.method == "PUT" => {
            if let Some(last) = held.states.last_mut() {
                last.clone_from(&request.body);
            }
            return (200, Vec::new());
        }
        "/state" => {
            return held
                .states
                .last()
                .map_or_else(missing, |state| (200, state.clone()));
        }
        _ => {}
    }
    if !request.has_token {
        held.refused += 1;
        return (
            401,
            br#"{"errors":[{"status":"401","title":"unauthorized"}]}"#.to_vec(),
        );
    }
    let path = request.path.strip_prefix("/api/v2/").unwrap_or_default();
    match path {
        "ping" => (204, Vec::new()),
        "organizations/org/entitlement-set" => {
            text(json!({ "data": { "id": "org-1", "type": "entitlement-sets",
            "attributes": { "operations": true, "state-storage": true } } }))
        }
        "organizations/org/workspaces/net" => text(workspace(held)),
        "workspaces/ws-1/actions/lock" | "workspaces/ws-1/actions/unlock" => {
            held.locked = path.ends_with("/lock");
            text(workspace(held))
        }
        "workspaces/ws-1/current-state-version" if held.states.is_empty() => missing(),
        "workspaces/ws-1/state-versions" => {
            held.states.push(Vec::new());
            text(version(held, host))
        }
        "workspaces/ws-1/current-state-version-outputs" => text(outputs(held)),
        path if path.starts_with("state-versions/") || path.ends_with("/current-state-version") => {
            text(version(held, host))
        }
        _ => missing(),
    }
}

fn workspace(held: &Held) -> Value {
    json!({ "data": { "id": "ws-1", "type": "workspaces", "attributes": { "name": WORKSPACE, "execution-mode": "local",
        "operations": false, "locked": held.locked, "auto-apply": false, "terraform-version": "latest",
        "permissions": { "can-update": true, "can-lock": true, "can-unlock": true } } } })
}

fn version(held: &Held, host: &str) -> Value {
    let serial = held.states.len();
    json!({ "data": { "id": format!("sv-{serial}"), "type": "state-versions", "attributes": { "serial": serial,
        "status": "finalized", "hosted-state-download-url": format!("https://{host}/state"),
        "hosted-state-upload-url": format!("https://{host}/state"),
        "hosted-json-state-upload-url": format!("https://{host}/json") } } })
}

fn outputs(held: &Held) -> Value {
    let state: Value = held
        .states
        .last()
        .and_then(|state| serde_json::from_slice(state).ok())
        .unwrap_or_default();
    let members = state["outputs"].as_object().cloned().unwrap_or_default();
    let data: Vec<_> = members
        .iter()
        .map(|(name, output)| {
            json!({ "id": format!("wsout-{name}"), "type": "state-version-outputs", "attributes": { "name": name,
                "sensitive": false, "type": output["type"], "value": output["value"], "detailed-type": output["type"] } })
        })
        .collect();
    json!({ "data": data, "meta": { "pagination": { "current-page": 1, "total-pages": 1 } } })
}
